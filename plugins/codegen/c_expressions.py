"""Scalar expressions of the tensor IR as C; what is used twice, or is long, gets a name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, TypeAlias

import numpy as np

from graft.core.tensor_ir import ir
from graft.core.tensor_ir.arithmetic.small_floats import SMALL_FLOATS, bits_of
from graft.core.tensor_ir.visit import children, statement_expressions, walk_expressions
from graft.core.types import INT32, INTEGERS, SIGNED, Type
from graft.errors import CompileError
from graft.plugins.codegen.index_ranges import IndexRanges
from graft.runtime.c_operators import UNARY, Operation, cast, choice, infix, prefix
from graft.runtime.export.c_names import TYPES, WORDS, identifier

SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
WHOLE = SIGNS | {"mod": "%"}
"""The operators of integers that do not overflow."""
LOGIC = {"and": "&&", "or": "||", "xor": "!=", "min": "&&", "max": "||"}
_OF_INDICES = ("add", "sub", "mul", "div", "mod")
STEMS = {
    "add": "sum", "sub": "difference", "mul": "product", "div": "quotient", "mod": "rest", "min": "least",
    "max": "most", "and": "both", "or": "either", "xor": "other", "shl": "shifted", "shr": "shifted",
    "eq": "is_equal", "ne": "differs", "lt": "is_less", "le": "is_at_most", "gt": "is_more", "ge": "is_at_least",
    "neg": "negated", "abs": "size", "sqrt": "root", "fma": "fused", "muladd": "fused", "round_even": "rounded",
    "bitnot": "flipped", "not": "inverted",
}  # fmt: skip
"""What results of operators are called."""
LONGEST = 120
"""Characters from which on an expression gets a name."""


RESERVED = WORDS | {"context", "begin", "end", "closure", "data", "state", "inputs", "outputs"}
"""Words of C and of compilers, and the parameters that every function has."""
_WHOLE = re.compile(r"-?\d+$")
_OF_THE_PRELUDE = re.compile(r"int(8|16|32|64)|float(32|64)|^graft_|^GRAFT_|_t$|^fmaf?$")


class ExpressionWriter:
    """Writes expressions; what gets a name becomes a line before the statement that they stand in."""

    backend: ClassVar[str] = "c_source"
    """Who writes, in errors."""

    def __init__(self, function: str, ranges: IndexRanges | None = None, *, narrow: bool = False) -> None:
        """Write expressions of a function of this name, with ``narrow`` indices in 32 bits where ``ranges`` allow."""
        self.function = function
        self.ranges = ranges
        self.narrow = narrow and ranges is not None and ranges.in_32_bits
        self.variables: dict[ir.Variable, str] = {}
        self.pointers: dict[ir.Buffer, str] = {}
        self.lines: list[str] = []
        self.depth = 0
        self._known: dict[int, tuple[ir.Expression, str]] = {}
        self._indices: dict[int, tuple[ir.Expression, str]] = {}
        self._uses: dict[int, int] = {}
        self._taken = {function, *RESERVED}
        self._numbers: dict[str, int] = {}

    def line(self, text: str) -> None:
        """Add a line at the present depth."""
        self.lines.append("  " * self.depth + text)

    def fresh(self, stem: str) -> str:
        """Return a new identifier: the stem and a number."""
        while True:
            self._numbers[stem] = self._numbers.get(stem, 0) + 1
            name = f"{stem}{self._numbers[stem]}"
            if name not in self._taken:
                return self.reserve(name)

    def reserve(self, name: str) -> str:
        """Return an identifier, which nothing else gets from now on."""
        self._taken.add(name)
        return name

    def bind(self, one: ir.Variable | ir.Buffer) -> str:
        """Give a variable or buffer a C identifier like its name, and return that."""
        stem = identifier(one.name)
        ambiguous = stem in self._taken or f"{stem}_shape" in self._taken or _OF_THE_PRELUDE.search(stem) is not None
        name = self.fresh(f"{stem}_") if ambiguous else self.reserve(stem)
        if isinstance(one, ir.Buffer):
            self.pointers[one] = name
        else:
            self.variables[one] = name
        return name

    def type_of(self, value: ir.Expression) -> str:
        """Return the C type of a variable, or of what gets a name."""
        return "int32_t" if self.is_narrow(value) else self.c_type(value.type)

    def is_narrow(self, index: ir.Expression) -> bool:
        """Whether an index is computed in 32 bits."""
        found = self.ranges.of(index) if self.narrow and self.ranges is not None else None
        return found is not None and max(-found[0], found[1]) < 1 << 31

    def has_range(self, index: ir.Expression) -> bool:
        """Whether an index is computed without overflow."""
        return self.ranges is not None and self.ranges.of(index) is not None

    def begin(self, statement: ir.Statement) -> None:
        """Forget what was written: memory is about to change, and names end with their block."""
        self._known.clear()
        self._indices.clear()
        self._uses.clear()
        for node in walk_expressions(*statement_expressions(statement)):
            for operand in children(node):
                self._uses[id(operand)] = self._uses.get(id(operand), 0) + 1

    def index(self, expression: ir.Expression) -> str:
        """Return an index or an extent: these do not overflow, so C's own operators will do."""
        known = self._indices.get(id(expression))
        if known is None:
            text = self._index(expression)
            if len(text) > LONGEST:
                text = self._named("int32_t" if self.is_narrow(expression) else "int64_t", text, "index")
            known = self._indices[id(expression)] = (expression, text)
        return known[1]

    def _index(self, expression: ir.Expression) -> str:
        match expression:
            case ir.Constant(value, _):
                return str(int(value))
            case ir.Binary("add" | "sub" as operator, left, right):
                return sum_text(self.index(left), self.index(right), SIGNS[operator])
            case ir.Binary("mul", left, right):
                return product_text(self.index(left), self.index(right))
            case ir.Binary("div" | "mod" as operator, left, ir.Constant(number)) if number > 0:
                return infix(self.index(left), WHOLE[operator], str(int(number)))
        return self.value(expression)

    def place(self, buffer: ir.Buffer, indices: Sequence[ir.Expression]) -> str:
        """Return an element of a buffer."""
        return self.element(buffer, [self.index(index) for index in indices])

    def element(self, buffer: ir.Buffer, indices: Sequence[str]) -> str:
        """Return the element at some indices."""
        return f"{self.pointers[buffer]}[{self.offset_text(buffer, indices)}]"

    def offset_text(self, buffer: ir.Buffer, indices: Sequence[str]) -> str:
        """Return where in a buffer the element at some indices lies."""
        place = "0"
        for axis, index in enumerate(indices):
            if buffer.strides is not None:
                place = sum_text(place, product_text(index, self.index(buffer.strides[axis])), "+")
            else:
                place = sum_text(product_text(place, self.index(buffer.shape[axis])), index, "+") if axis else index
        return place

    def value(self, expression: ir.Expression) -> str:
        """Return the C expression of a scalar; raise CompileError for what is not known here."""
        stack = [expression]  # of its own: expressions are as deep as chains of operators are long
        while stack:
            node = stack[-1]
            waiting = [one for one in self.operands(node) if id(one) not in self._known]
            if waiting:
                stack += reversed(waiting)
                continue
            stack.pop()
            if id(node) not in self._known:
                text = self.write(node, [self._known[id(one)][1] for one in self.operands(node)])
                is_shared = self._uses.get(id(node), 0) > 1 and not isinstance(node, ir.Constant | ir.Variable)
                if is_shared or len(text) > LONGEST:
                    text = self._named(self.type_of(node), text, stem_of(node, self.pointers))
                self._known[id(node)] = (node, text)
        return self._known[id(expression)][1]

    def refused(self, what: str) -> CompileError:
        """Return the error for something that this emitter does not know."""
        name = self.function
        return CompileError(f"function '{name}' has {what}, which {self.backend} cannot write", function=name)

    def _named(self, type: str, text: str, stem: str = "value") -> str:
        name = self.fresh(stem)
        self.line(f"const {type} {name} = {text};")
        return name

    def atom(self, text: str, type: Type) -> str:
        """Return a text that may be written twice: a name."""
        return text if text.isidentifier() else self._named(self.c_type(type), text)

    def c_type(self, type: Type) -> str:
        """Return the C type of a value."""
        return TYPES[type.dtype]

    def operands(self, node: ir.Expression) -> Sequence[ir.Expression]:
        """Return what is written before a node; indices are written otherwise (`index`)."""
        if isinstance(node, ir.Load):
            return () if node.mask is None else (node.mask,)
        if isinstance(node, ir.Intrinsic) and node.name == "word_at":
            return ()  # the place is meant, not what is there
        return children(node)

    def write(self, node: ir.Expression, texts: list[str]) -> str:
        """Return the C of an expression whose operands are written."""
        row = self.rows(node).get(type(node))
        if row is None:
            raise self.refused(f"a {type(node).__name__} of type {node.type}")
        return row(self, node, texts)

    def rows(self, node: ir.Expression) -> Mapping[type, Row]:
        """Return the table of texts that has a node."""
        return SCALARS

    def load(self, load: ir.Load, texts: Sequence[str]) -> str:
        """Return a load of one element."""
        place = self.place(load.buffer, load.indices)
        return place if load.mask is None else choice(texts[0], place, _zero(load.type))

    def scalar_pair(self, node: ir.Binary, texts: Sequence[str]) -> str:
        """Return a binary operation of scalars; of indices, which do not overflow, by C's own operators."""
        operator, type = node.operator, node.left.type
        if operator in _OF_INDICES and self.has_range(node):
            return infix(texts[0], WHOLE[operator], texts[1])
        return binary_text(operator, texts[0], texts[1], INT32 if self.is_narrow(node) else type)

    def bitcast(self, node: ir.Bitcast, texts: Sequence[str]) -> str:
        """Return the same bits as another element."""
        source, target, (text,) = node.value.type.dtype, node.dtype, texts
        if node.type.lanes != 1 or node.value.type.lanes != 1:
            raise self.refused(f"a Bitcast of type {node.type}")
        if source in ("float32", "float64"):
            text = f"bits_of_{source}({text})"
        if target not in ("float32", "float64"):
            return cast(TYPES[target], text)
        is_cast = source in INTEGERS and source not in ("uint32", "uint64")
        return f"{target}_of_bits({cast(f'uint{target[-2:]}_t', text) if is_cast else text})"

    def intrinsic(self, node: ir.Intrinsic, texts: Sequence[str]) -> str:
        """Return a call of a function of the prelude or of a library."""
        name, kind, given = node.name, node.type, ", ".join(texts)
        match name, node.arguments:
            case "fma" | "muladd", _:
                return f"fma_{kind.dtype}({given})"
            case "word_at", (ir.Load(buffer, indices),):
                return f"word_at(&{self.place(buffer, indices)})"
            case "dot4_u8s8" | "dot2_s16", (_, _, _) if kind.lanes == 1:
                return f"{name}({given})"
            case _, arguments if name.startswith("extern:") and "@" in name:
                taken = ", ".join(TYPES[argument.type.dtype] for argument in arguments) or "void"
                symbol = name.removeprefix("extern:").partition("@")[0]
                self.line(f"extern {TYPES[kind.dtype]} {symbol}({taken});")
                return f"{symbol}({given})"
        raise self.refused(f"the intrinsic '{name}' of type {kind}")


def stem_of(node: ir.Expression, pointers: Mapping[ir.Buffer, str]) -> str:
    """Return what the name of a value begins with: what it is, or of which buffer."""
    row = _STEMS.get(type(node))
    return "value" if row is None else row(node, pointers)


_STEMS: Mapping[type, Callable[..., str]] = {
    ir.Load: lambda node, pointers: f"{pointers[node.buffer]}_at",
    ir.Unary: lambda node, _: STEMS.get(node.operator, node.operator),
    ir.Binary: lambda node, _: STEMS.get(node.operator, node.operator),
    ir.Intrinsic: lambda node, _: STEMS.get(node.name, "value"),
    ir.Select: lambda *_: "chosen",
    ir.Horizontal: lambda *_: "total",
    ir.Cast: lambda node, _: f"as_{node.dtype}_",
}


def sum_text(left: str, right: str, sign: str) -> str:
    """Return a sum or difference of indices."""
    if _WHOLE.match(left) and _WHOLE.match(right):
        return str(int(left) + (int(right) if sign == "+" else -int(right)))
    if right == "0":
        return left
    return right if left == "0" and sign == "+" else infix(left, sign, right)


def product_text(left: str, right: str) -> str:
    """Return a product of indices."""
    if _WHOLE.match(left) and _WHOLE.match(right):
        return str(int(left) * int(right))
    if "0" in (left, right):
        return "0"
    return right if left == "1" else left if right == "1" else infix(left, "*", right)


def binary_text(operator: str, left: str, right: str, type: Type) -> str:
    """Return a binary operation of scalars."""
    if type.dtype == "bool" and operator in LOGIC:
        return infix(left, LOGIC[operator], right)
    if operator in ir.COMPARISONS or (type.is_float and operator in ("add", "sub", "mul", "div")):
        return infix(left, SIGNS[operator], right)
    if operator in ("and", "or", "xor"):
        return cast(TYPES[type.dtype], infix(left, SIGNS[operator], right))
    return f"{operator}_{type.dtype}({left}, {right})"


def cast_text(text: str, source: str, target: str) -> str:
    """Return a cast of a scalar."""
    if source == target:
        return text
    if target == "bool":
        return infix(text, "!=", "0")
    if Type(source).is_float and Type(target).is_integer:
        return f"{target}_of_{'float' if source == 'float32' else 'double'}({text})"
    return cast(TYPES[target], text)


def literal(value: int | float | bool, type: Type) -> str:
    """Return a constant as C writes it; floats in hexadecimal, exactly."""
    if type.dtype == "bool":
        return "true" if value else "false"
    if type.is_integer:
        return integer_literal(int(value), type.dtype)
    if type.dtype in SMALL_FLOATS:
        return str(bits_of(float(value), type.dtype))
    exact = float(np.float32(value)) if type.dtype == "float32" else float(value)
    if math.isfinite(exact):
        short = abs(exact) < 1e6 and exact * 64 == int(exact * 64) and (exact != 0 or math.copysign(1, exact) > 0)
        text = f"{exact!r}" if short else exact.hex()
        text += "f" if type.dtype == "float32" else ""
        return _signed(text)
    return cast(TYPES[type.dtype], _signed("NAN" if math.isnan(exact) else "INFINITY" if exact > 0 else "-INFINITY"))


def _zero(type: Type) -> str:
    """Return 0 as what has the kind of the type, as MISRA C's rule 10.4 asks of what is chosen from."""
    return "0u" if TYPES[type.dtype].startswith("uint") else literal(0, type)


def integer_literal(number: int, dtype: str) -> str:
    """Return a whole number as C writes it in its type, which holds it once what is too large has wrapped."""
    bits = int(dtype.removeprefix("u").removeprefix("int"))
    number %= 1 << bits
    number -= (number >> (bits - 1) << bits) if dtype in SIGNED else 0
    if number == -(1 << (bits - 1)):
        return f"INT{bits}_MIN"
    if abs(number) < 1 << 31:
        return _signed(str(number)) if dtype in SIGNED else f"{number}u"
    return f"INT64_C({number})" if dtype in SIGNED else f"UINT{bits}_C({number})"


def _signed(text: str) -> str:
    return Operation(text, "-", UNARY) if text.startswith("-") else text


Row: TypeAlias = Callable[..., str]
"""The text of an expression: of its writer, itself and the texts of its operands."""
COMMON: Mapping[type, Row] = {
    ir.Variable: lambda writer, node, _: writer.variables[node],
    ir.Load: lambda writer, node, texts: writer.load(node, texts),
    ir.Intrinsic: lambda writer, node, texts: writer.intrinsic(node, texts),
    ir.Bitcast: lambda writer, node, texts: writer.bitcast(node, texts),
}
"""What a writer has a method for, whatever the language."""
SCALARS: Mapping[type, Row] = {
    **COMMON,
    ir.Constant: lambda _, node, __: literal(node.value, node.type),
    ir.Unary: lambda _, node, texts: (
        prefix("!", texts[0]) if node.operator == "not" else f"{node.operator}_{node.type.dtype}({texts[0]})"
    ),
    ir.Binary: lambda writer, node, texts: writer.scalar_pair(node, texts),
    ir.Select: lambda _, __, texts: choice(*texts),
    ir.Cast: lambda writer, node, texts: cast_text(
        texts[0], node.value.type.dtype, "int32" if writer.is_narrow(node) else node.dtype
    ),
}
"""Scalars in C with its prelude."""
