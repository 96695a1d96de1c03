"""The C text of a kernel that a vendor's function computes: a plain function around the call."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graft.errors import CompileError, PluginError
from graft.plugins.c_calls import C, CCall, CKernel, COperand, nearest
from graft.plugins.codegen.kernel_source import KernelSource
from graft.plugins.graph_symbols import GraphSymbols
from graft.plugins.json_graph import BodyOperator
from graft.runtime.c_source import VARIES, CFunction
from graft.runtime.export.c_names import TYPES, WORDS
from graft.runtime.extents import Extent, Operation, Symbol

KEYWORDS = WORDS | {"context", "kept", "object", "scratch", "status"}
"""What a parameter cannot be called, among them the names that the functions have besides."""
OPERAND = dict.fromkeys(("shape", "rank", "size", "strides", "value", "dtype"))
"""What a field may ask an operand for."""
NOT_FINITE = {"inf": "HUGE_VALF", "-inf": "-HUGE_VALF", "nan": "NAN"}
_TOKEN = re.compile(
    r"""
      "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*'                      # what C has in quotes
    | \{ (?:[A-Za-z_][\w-]*|\d+) (?:\.\w+|\[\d+\])* (?::[^{}]*)? \}  # a field, or C's braces around a name or number
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_FIELD = re.compile(r"\{(?P<name>[A-Za-z_][\w-]*|\d+)(?P<steps>(?:\.\w+|\[\d+\])*)(?::(?P<kind>[^{}]*))?\}")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
CLOSE = 0.75
"""How like a known name one in C's braces is that is taken for a misspelling of it (`difflib`)."""
SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "/", "mod": "%"}


@dataclass(frozen=True, slots=True)
class CText:
    """What a kernel's function does, and which tensors it gets; its name is chosen later."""

    body: str
    parameters: str
    inputs: tuple[COperand, ...]
    """Those that are read, packed ones with what they became."""
    shapes: tuple[bool, ...]
    """By input, then output: whether the shape is passed."""
    scratch: int
    keeps: bool

    def is_like(self, other: CText) -> bool:
        """Whether the functions are the same but for their names."""
        return (self.body, self.parameters) == (other.body, other.parameters)

    def named(self, name: str) -> KernelSource:
        """Return the function under a name."""
        function = CFunction(
            name, self.parameters, self.shapes, (False,) * len(self.shapes), self.scratch, keeps=self.keeps
        )
        return KernelSource(f"GRAFT_KERNEL {function.declaration} {{\n{self.body}}}\n", function)


@dataclass(slots=True)
class KernelWriter:
    """Writes the function of one kernel, from what its backend said."""

    kernel: CKernel
    call: CCall
    success: str
    """What the call returns where nothing failed, "" if it cannot fail."""
    _pointers: dict[int, str] = field(default_factory=dict)
    _read: dict[str, COperand] = field(default_factory=dict)
    _shaped: set[str] = field(default_factory=set)
    _symbols: GraphSymbols | None = None
    _axes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        taken = set(KEYWORDS)
        for operand in (*self.kernel.inputs, *self.kernel.outputs):
            if operand is not None:
                self._pointers[id(operand)] = _parameter(operand.name, taken)
        for name in self.call.packed:
            self._operand(name)
        shaped = [one for one in (*self.kernel.inputs, *self.kernel.outputs) if one is not None]
        self._symbols = GraphSymbols.of([one.name for one in shaped], [one.shape for one in shaped])
        for symbol in self._symbols:
            self._axes[symbol.name] = f"{self._pointers[id(shaped[symbol.input])]}_shape[{symbol.axis}]"

    def text(self) -> CText:
        """Return the text; raise PluginError for a field that the kernel does not have."""
        try:
            said = self._replaced(self.call.text, self._fields())
        except (AttributeError, IndexError, TypeError, ValueError) as error:
            what = str(error)
            if isinstance(error, AttributeError) and isinstance(error.obj, COperand):
                what = f"an operand has no '{error.name}'{nearest(error.name or '', OPERAND)}"
            raise PluginError(f"{self.kernel.where}: the call '{self.call.text}' cannot be written: {what}") from error
        lines = self._guard() + self._scratch() + self._statement(said)
        inputs = tuple(one for one in self.kernel.inputs if one is not None and one.name in self._read)
        tensors = [*(self._packed(one) for one in inputs), *self.kernel.outputs]
        names = [self._pointers[id(one)] for one in (*inputs, *self.kernel.outputs)]
        shapes = tuple(name in self._shaped for name in names)
        parameters = ["GraftContext *context", *(["GraftKept *kept"] if self.call.destroy else [])]
        for number, (operand, name, shape) in enumerate(zip(tensors, names, shapes, strict=True)):
            const = "const " if number < len(inputs) else ""
            parameters.append(f"{const}{self._type(operand)} *restrict {name}")
            parameters += [f"const int64_t *{name}_shape"] if shape else []
        scratch = self.call.scratch if isinstance(self.call.scratch, int) else VARIES
        body = "".join(f"  {line}\n" for line in (*lines, "return GRAFT_OK;"))
        return CText(
            body, ", ".join(parameters), tuple(tensors[: len(inputs)]), shapes, scratch, bool(self.call.destroy)
        )

    def _fields(self) -> dict[str, Any]:
        known: dict[str, Any] = {"inputs": self.kernel.inputs}
        known |= {"scratch": C("scratch")} if self.call.scratch else {}
        known |= {"kept": C("&object")} if self.call.destroy else {}
        known |= {operator.op: Attributes(operator) for operator in self.kernel.body}
        return known | dict(self.kernel.node.attributes) | dict(self.kernel.names) | dict(self.call.values)

    # ---- Fields ----

    def _replaced(self, text: str, known: Mapping[str, Any]) -> str:
        """Return a call with its fields in C: braces around a known name; all others are C's own.

        C has a brace behind ``)`` or ``=`` and within braces. There a name that is not known is C's too, unless it is
        nearly a known one; elsewhere it is an error.
        """
        done, at, depth = "", 0, 0
        while at < len(text):
            token = _TOKEN.match(text, at)
            assert token is not None
            at = token.end()
            field = _FIELD.fullmatch(token[0])
            if field is None:
                depth = max(0, depth + {"{": 1, "}": -1}.get(token[0], 0))
                done += token[0]
            elif field["name"] in known:
                done += self._field(field, known)
            else:
                self._require_of_c(field, known, depth > 0 or done.rstrip()[-1:] in (")", "="))
                done += token[0]
        return done

    def _field(self, field: re.Match[str], known: Mapping[str, Any]) -> str:
        value = known[field["name"]]
        for attribute, index in _STEP.findall(field["steps"]):
            if value is self.kernel.inputs and index and int(index) >= len(self.kernel.inputs):
                count = len(self.kernel.inputs)
                raise PluginError(f"{self.kernel.where} has {count} inputs; the call names the one at {index}")
            value = value[int(index)] if index else getattr(value, attribute)
        return self._operand(value.name) if isinstance(value, COperand) else self.literal(value, field["kind"] or "")

    def _require_of_c(self, field: re.Match[str], known: Mapping[str, Any], is_place_of_c: bool) -> None:
        """Raise PluginError for braces that C cannot have where they are, and for a misspelt name."""
        if is_place_of_c and not (close := difflib.get_close_matches(field["name"], known, 1, CLOSE)):
            return
        where = f"{self.kernel.where}: the call '{self.call.text}' has '{field[0]}'"
        if is_place_of_c:
            raise PluginError(f"{where}; did you mean '{close[0]}'? write '{{ {field['name']} }}' for C's own braces")
        if field["name"].isdecimal():
            raise PluginError(f"{where}; write {{inputs[{field['name']}]}} for the input at a position")
        raise PluginError(f"{where}{nearest(field['name'], known)}")

    def literal(self, value: Any, kind: str = "") -> str:
        """Return a value in C; ``kind`` is the element type of a list.

        Raise PluginError for a value that C cannot say.
        """
        match value:
            case C():
                return str(value)
            case None:
                return "NULL"
            case bool() | np.bool_():
                return str(int(value))
            case int() | np.integer():
                return str(int(value)) if abs(int(value)) < 1 << 31 else f"INT64_C({int(value)})"
            case float() | np.floating():
                return _float(float(value))
            case str() if value in NOT_FINITE:
                return NOT_FINITE[value]
            case str():
                return json.dumps(value)
            case Symbol() | Operation():
                return self._extent(value)
            case list() | tuple() | np.ndarray():
                return self._list(list(np.ravel(value)) if isinstance(value, np.ndarray) else list(value), kind)
        raise PluginError(f"{self.kernel.where}: the call '{self.call.text}' has {value!r}, which C cannot say")

    def _list(self, values: Sequence[Any], kind: str) -> str:
        if not values:
            return "NULL"
        is_float = any(isinstance(value, float | np.floating) for value in values)
        texts = ", ".join(self.literal(value) for value in values)
        return f"(const {kind or ('float' if is_float else 'int64_t')}[]){{{texts}}}"

    def _operand(self, name: str) -> str:
        operand = self.kernel[name]
        self._read[operand.name] = operand
        return self._pointers[id(operand)]

    def _packed(self, operand: COperand) -> COperand:
        for name, array in self.call.packed.items():
            if self.kernel.names[name] is operand:
                return COperand.of(operand.name, array)
        return operand

    def _type(self, operand: COperand) -> str:
        if operand.dtype not in TYPES:
            raise CompileError(f"{self.kernel.where}: '{operand.name}' is {operand.dtype}, which has no type in C")
        return TYPES[operand.dtype]

    # ---- Extents ----

    def _extent(self, extent: Extent) -> str:
        """Return an extent as an expression over the shapes that the function is given."""
        assert self._symbols is not None
        known = self._symbols.said(extent)
        if known is None:
            raise CompileError(f"{self.kernel.where}: the shapes of its tensors do not say '{extent}'")
        return self._written(known)

    def _written(self, extent: Extent) -> str:
        match extent:
            case int():
                return self.literal(extent)
            case Symbol(name):
                axis = self._axes[name]
                self._shaped.add(axis.partition("_shape[")[0])
                self._note(axis.partition("_shape[")[0])
                return axis
            case Operation("min" | "max" as operator, left, right):
                one, other = self._written(left), self._written(right)
                return f"({one} {'<' if operator == 'min' else '>'} {other} ? {one} : {other})"
            case Operation(operator, left, right):
                return f"({self._written(left)} {SIGNS[operator]} {self._written(right)})"

    def _note(self, pointer: str) -> None:
        """Have the tensor whose shape is read among those that are passed."""
        for operand in self.kernel.inputs:
            if operand is not None and self._pointers[id(operand)] == pointer:
                self._read[operand.name] = operand

    # ---- Statements ----

    def _guard(self) -> list[str]:
        """Leave a kernel without elements alone: vendors' functions need not take such."""
        sizes = [self.literal(output.size) for output in self.kernel.outputs if not isinstance(output.size, int)]
        sizes += ["0" for output in self.kernel.outputs if output.size == 0]
        return [f"if ({' && '.join(f'{size} == 0' for size in sizes)}) return GRAFT_OK;"] if sizes else []

    def _scratch(self) -> list[str]:
        if not self.call.scratch:
            return []
        asked = f"void *const scratch = graft_scratch(context, {self.literal(self.call.scratch)});"
        return [asked, "if (!scratch) return GRAFT_ERROR_MEMORY;"]

    def _statement(self, said: str) -> list[str]:
        text, destroy = said.strip().rstrip(";"), self.call.destroy
        unused = [] if self.call.scratch or self.success else ["(void)context;"]
        take = ["void *object = graft_take(kept);"] if destroy else []
        keep = [f"graft_keep(kept, object, {destroy});"] if destroy else []
        if not self.success:
            return [*unused, *take, f"{text};", *keep]
        name = text.partition("(")[0].strip()
        failed = f'return graft_fail(context, "{name} returned %lld", (long long)status);'
        give = [f"if (status != (long long)({self.success}) && object) {destroy}(object);"] if destroy else []
        return [
            *take,
            f"const long long status = (long long)({text});",
            *give,
            f"if (status != (long long)({self.success})) {failed}",
            *keep,
        ]


class Attributes:
    """The attributes of one operator of a composite, as fields see them."""

    def __init__(self, operator: BodyOperator) -> None:
        self._operator = operator

    def __getattr__(self, name: str) -> Any:
        known = self._operator.attributes
        if name.startswith("_") or name not in known:
            raise AttributeError(f"{self._operator.op} has no attribute '{name}'{nearest(name, known)}")
        return known[name]


def _parameter(name: str, taken: set[str]) -> str:
    """Return a parameter's name, in lower case, that is not taken yet."""
    plain = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name.lower())
    stem = found = plain if plain[:1].isalpha() else f"x{plain}"
    number = 1
    while found in taken:
        number += 1
        found = f"{stem}{number}"
    taken.add(found)
    return found


def _float(value: float) -> str:
    if not math.isfinite(value):
        return NOT_FINITE[str(value)]
    with np.errstate(over="ignore"):
        single = np.float32(value)
    return f"{single!s}f" if float(single) == value else repr(value)
