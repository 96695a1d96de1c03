"""Vector expressions of the tensor IR as C with the vector types of GCC and Clang.

A type is ``float32x16``, as the prelude has it; what a machine has no instruction for is written lane by lane. A
condition of several lanes is a vector of int32 that are -1 or 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graft.core.machine.instructions import DOTS
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.visit import statement_expressions, walk_expressions, walk_statements
from graft.core.types import INT64, Type, element_bits
from graft.plugins.codegen import c_expressions as c
from graft.plugins.codegen.c_statements import StatementWriter
from graft.plugins.codegen.index_forms import MIRRORED
from graft.runtime.c_operators import cast, choice, infix, prefix
from graft.runtime.export.c_names import TYPES

LANES = frozenset({1, 2, 4, 8, 16, 32, 64})
_DOT_LANES = frozenset({4, 8, 16})
_FMA = frozenset({"fma", "muladd"})
_KNOWN = _FMA | frozenset(DOTS)
_OF_BOOL = {
    "and": "&",
    "min": "&",
    "or": "|",
    "max": "|",
    "xor": "^",
    "ne": "^",
    "lt": "~&",
    "le": "~|",
    "gt": "&~",
    "ge": "|~",
}
"""The operator of conditions of several lanes, with a sign beside the operand that is inverted."""

_INTEGER_RANGE = {"int8": (-128.0, 127.0), "uint8": (0.0, 255.0), "int16": (-32768.0, 32767.0),
                  "uint16": (0.0, 65535.0), "int32": (-2147483648.0, 2147483520.0)}  # fmt: skip
"""The least and the greatest float32 that such an integer holds."""
_STEPPED = frozenset({"float32", "int32"})
"""Of these the prelude loads lanes that are some elements apart."""


def has_vector_types(function: ir.Function) -> bool:
    """Return whether C's vector types say everything in a function."""
    for statement in walk_statements(function.body):
        for node in walk_expressions(*statement_expressions(statement)):
            lanes = node.type.lanes
            if lanes not in LANES or node.type.dtype not in TYPES:
                return False
            match node:
                case ir.Intrinsic(name, _, kind) if kind.lanes > 1:
                    if name not in _KNOWN or (name in DOTS and kind.lanes not in _DOT_LANES):
                        return False
                case ir.Bitcast(value, dtype):
                    if value.type.lanes != lanes and "bool" in (dtype, value.type.dtype):
                        return False
    return True


def vector_type(type: Type) -> str:
    """Return the C type of some lanes; of one, that of an element."""
    if type.lanes == 1:
        return TYPES[type.dtype]
    return f"{_register(type.dtype)}x{type.lanes}"


def _register(dtype: str) -> str:
    return {"bool": "int32", "float16": "uint16", "bfloat16": "uint16"}.get(dtype, dtype)


def _memory(type: Type) -> str:
    """The C type of some lanes in memory."""
    return f"uint8x{type.lanes}" if type.dtype == "bool" else vector_type(type)


def _bits(dtype: str) -> int:
    return 32 if dtype == "bool" else element_bits(dtype)


class VectorWriter(StatementWriter[tuple[str, int]]):
    """Writes expressions of any number of lanes; the form of an index is its first lane and the step between lanes."""

    def c_type(self, type: Type) -> str:
        """Return the C type of a value."""
        return vector_type(type)

    def operands(self, node: ir.Expression) -> Sequence[ir.Expression]:
        """A comparison of indices may be a mask of the first lanes, whose operands are not computed."""
        if node.type.lanes > 1 and isinstance(node, ir.Binary) and self._first_lanes(node) is not None:
            return ()
        return super().operands(node)

    def form(self, expression: ir.Expression) -> tuple[str, int] | None:
        """Return an index's first lane and the step from lane to lane; None where that is not constant."""
        match expression:
            case _ if expression.type.lanes == 1:
                return self.index(expression), 0
            case ir.Ramp(base, stride, _):
                return self.index(base), stride
            case ir.Broadcast(value, _):
                return self.index(value), 0
            case ir.Constant(value, _):
                return str(int(value)), 0
            case ir.Variable():
                return self.forms.get(expression)
            case ir.Binary("add" | "sub" | "mul" as operator, left, right):
                first, second = self.form(left), self.form(right)
                if first is None or second is None:
                    return None
                if operator != "mul":
                    sign = 1 if operator == "add" else -1
                    return c.sum_text(first[0], second[0], c.SIGNS[operator]), first[1] + sign * second[1]
                for one, factor in ((first, second), (second, first)):
                    if factor[1] == 0 and (factor[0].isdigit() or one[1] == 0):
                        step = one[1] * int(factor[0]) if one[1] else 0
                        return c.product_text(one[0], factor[0]), step
        return None

    def _first_lanes(self, node: ir.Binary) -> str | None:
        """Return the mask of ``ramp < bound`` and its like: the first lanes, up to a count of them or from that on."""
        if node.operator not in MIRRORED or node.left.type.dtype != "int64":
            return None
        left, right = self.form(node.left), self.form(node.right)
        operator: str = node.operator
        if left is None or right is None:
            return None
        if right[1] > left[1]:
            left, right, operator = right, left, MIRRORED[operator]
        step = left[1] - right[1]
        if step == 0:
            return None
        count = c.sum_text(right[0], left[0], "-")  # of lanes: ceil(count / step)
        count = c.sum_text(count, str(step - 1 + (operator in ("le", "gt"))), "+")
        count = (
            count if step == 1 else str(int(int(count) / step)) if _is_whole(count) else infix(count, "/", str(step))
        )
        inside = f"first_x{node.type.lanes}({count})"
        return inside if operator in ("lt", "le") else prefix("~", inside)

    # ---- Memory ----

    def _access(self, buffer: ir.Buffer, indices: Sequence[ir.Expression]) -> tuple[str, int] | None:
        """Return where in a buffer the first lane lies, and the step between lanes; None where that is not constant."""
        forms = [self.form(index) for index in indices]
        known = [form for form in forms if form is not None]
        if len(known) != len(forms):
            return None
        step, stride = 0, 1
        for axis in reversed(range(len(known))):
            own: ir.Expression = ir.Constant(stride, INT64) if buffer.strides is None else buffer.strides[axis]
            if known[axis][1]:
                if stride < 0 or not isinstance(own, ir.Constant):
                    return None
                step += known[axis][1] * int(own.value)
            extent = buffer.shape[axis]
            stride = stride * int(extent.value) if stride > 0 and isinstance(extent, ir.Constant) else -1
        return self.offset_text(buffer, [form[0] for form in known]), step

    def _elements(self, buffer: ir.Buffer, indices: Sequence[ir.Expression], lanes: int) -> list[str]:
        """Return the element of each lane."""
        access = self._access(buffer, indices)
        if access is not None:
            (first, step), pointer = access, self.pointers[buffer]
            return [f"{pointer}[{infix(first, '+', str(lane * step))}]" for lane in range(lanes)]
        names = [self.atom(self.value(one), one.type) if one.type.lanes > 1 else self.index(one) for one in indices]
        return [
            self.element(
                buffer,
                [f"{name}[{lane}]" if one.type.lanes > 1 else name for one, name in zip(indices, names, strict=True)],
            )
            for lane in range(lanes)
        ]

    def _load(self, load: ir.Load) -> str:
        lanes, own = load.type.lanes, _memory(load.type)
        mask = None if load.mask is None else self._lanes_of(load.mask, lanes)
        access = self._access(load.buffer, load.indices)
        first = "" if access is None else f"{self.pointers[load.buffer]}[{access[0]}]"
        if access is not None and access[1] == 1:
            kind = TYPES[load.type.dtype] if load.type.dtype != "bool" else "uint8_t"
            plain = prefix("*", cast(f"const {own}_at *", prefix("&", first)))
            text = plain if mask is None else f"load_{own}((const {kind} *)&{first}, {mask})"
        elif access is not None and access[1] == 0 and mask is None:
            text = f"splat_{own}({first})"
        elif access is not None and access[1] > 1 and load.type.dtype in _STEPPED:
            text = f"step_{own}(&{first}, {access[1]}, {mask or f'first_x{lanes}({lanes})'})"
        else:
            elements = self._elements(load.buffer, load.indices, lanes)
            if mask is not None:
                on = self.atom(mask, Type("bool", lanes))
                elements = [f"{on}[{lane}] ? {one} : 0" for lane, one in enumerate(elements)]
            text = _braced(own, elements)
        return (
            f"__builtin_convertvector({infix(text, '!=', '0')}, int32x{lanes})" if load.type.dtype == "bool" else text
        )

    def store_lanes(self, store: ir.Store, lanes: int) -> None:
        """Write a store of several lanes."""
        type = store.value.type.with_lanes(lanes)
        value, own = self._lanes_of(store.value, lanes), _memory(type)
        mask = None if store.mask is None else self._lanes_of(store.mask, lanes)
        if type.dtype == "bool":
            value = infix(f"__builtin_convertvector({value}, uint8x{lanes})", "&", "1")
        access = self._access(store.buffer, store.indices)
        if access is not None and access[1] == 1:
            first = f"{self.pointers[store.buffer]}[{access[0]}]"
            kind = TYPES[type.dtype] if type.dtype != "bool" else "uint8_t"
            if mask is None:
                self.line(f"*({own}_at *)&{first} = {value};")
            else:
                self.line(f"store_{own}(({kind} *)&{first}, {mask}, {value});")
            return
        elements, name = self._elements(store.buffer, store.indices, lanes), self.fresh("lanes")
        self.line(f"const {own} {name} = {value};")
        on = None if mask is None else self.atom(mask, Type("bool", lanes))
        for lane, one in enumerate(elements):
            self.line(f"{'' if on is None else f'if ({on}[{lane}]) '}{one} = {name}[{lane}];")

    # ---- Expressions ----

    def _lanes_of(self, expression: ir.Expression, lanes: int) -> str:
        """Return an expression in so many lanes."""
        text = self.value(expression)
        return text if expression.type.lanes == lanes else self._splat(text, expression.type.with_lanes(lanes))

    def _splat(self, text: str, type: Type) -> str:
        return f"splat_{vector_type(type)}({prefix('-', text) if type.dtype == 'bool' else text})"

    def rows(self, node: ir.Expression) -> Mapping[type, c.Row]:
        """Return the table of texts that has a node."""
        return _SCALARS if node.type.lanes == 1 else _VECTORS

    def load(self, load: ir.Load, texts: Sequence[str]) -> str:
        """Return a load of any number of lanes."""
        return super().load(load, texts) if load.type.lanes == 1 else self._load(load)

    def intrinsic(self, node: ir.Intrinsic, texts: Sequence[str]) -> str:
        """Return a call of a function of the prelude."""
        if node.type.lanes > 1:
            called = f"fma_{vector_type(node.type)}" if node.name in _FMA else f"{node.name}_x{node.type.lanes}"
            return f"{called}({', '.join(texts)})"
        if node.name in ("dot4_u8s8", "dot2_s16"):  # of vectors that the prelude's function takes as a word
            texts = [texts[0], *(cast("int32_t", one) for one in texts[1:])]
        return super().intrinsic(node, texts)

    def ramp(self, node: ir.Ramp, texts: Sequence[str]) -> str:
        """Return numbers with a constant step."""
        own, steps = vector_type(node.type), [str(lane * node.stride) for lane in range(node.lanes)]
        return infix(f"splat_{own}({texts[0]})", "+", f"({own}){{{', '.join(steps)}}}")

    def pair(self, node: ir.Binary, texts: Sequence[str]) -> str:
        """Return a binary operation, or the mask that a comparison of indices is."""
        operator, left, right = node.operator, node.left, node.right
        first = self._first_lanes(node)
        if first is not None:
            return first
        if _is_number(right) and operator in ("min", "max"):
            return self.binary(operator, texts[1], texts[0], left.type, True)
        return self.binary(operator, texts[0], texts[1], left.type, _is_number(left), _shift(right))

    def _by_lane(self, texts: Sequence[str], type: Type, result: Type, write: Callable[[list[str]], str]) -> str:
        """Return what is computed for each lane by itself."""
        names = [self.atom(text, type) for text in texts]
        lanes = [write([f"{name}[{lane}]" for name in names]) for lane in range(type.lanes)]
        return _braced(vector_type(result), lanes)

    def _unary(self, operator: str, text: str, type: Type) -> str:
        own = vector_type(type)
        match operator:
            case "not" | "bitnot":
                return prefix("~", text)
            case "neg":
                unsigned = f"u{own.removeprefix('u')}"
                return prefix("-", text) if type.is_float else cast(own, prefix("-", cast(unsigned, text)))
            case _ if type.is_float:
                return f"{operator}_{own}({text})"
        return self._by_lane([text], type, type, lambda one: f"{operator}_{type.dtype}({one[0]})")

    def binary(
        self, operator: str, left: str, right: str, type: Type, is_number: bool = False, shift: int | None = None
    ) -> str:
        """Return a binary operation; ``is_number`` says that the left operand is a constant that is no NaN."""
        own, unsigned = vector_type(type), f"u{vector_type(type).removeprefix('u')}"
        if type.dtype == "bool":
            if operator == "eq":
                return prefix("~", infix(left, "^", right))
            sign = _OF_BOOL[operator]
            left = prefix("~", left) if sign[0] == "~" else left
            return infix(left, sign.strip("~"), prefix("~", right) if sign[-1] == "~" else right)
        if operator in ir.COMPARISONS:
            compared = infix(left, c.SIGNS[operator], right)
            return compared if _bits(type.dtype) == 32 else f"__builtin_convertvector({compared}, int32x{type.lanes})"
        if type.is_float and operator in ("add", "sub", "mul", "div"):
            return infix(left, c.SIGNS[operator], right)
        if operator in ("add", "sub", "mul"):
            return cast(own, infix(cast(unsigned, left), c.SIGNS[operator], cast(unsigned, right)))
        if operator in ("and", "or", "xor"):
            return infix(left, c.SIGNS[operator], right)
        if operator in ("min", "max"):
            if is_number:
                return f"{operator}_{own}({left}, {right})"
            left, right = self.atom(left, type), self.atom(right, type)
            if type.is_float:
                return f"choose_{own}({left} != {left}, {left}, {operator}_{own}({left}, {right}))"
            on = self._named(
                f"int{_bits(type.dtype)}x{type.lanes}", f"{left} {'<' if operator == 'min' else '>'} {right}"
            )
            return _chosen(on, left, right, type)
        if operator in ("shl", "shr") and shift is not None and shift < _bits(type.dtype):
            if operator == "shl":
                return cast(own, infix(cast(unsigned, left), "<<", str(shift)))
            return infix(left, ">>", str(shift))
        return self._by_lane([left, right], type, type, lambda two: c.binary_text(operator, two[0], two[1], type))

    def select(self, node: ir.Select, texts: Sequence[str]) -> str:
        """Return a choice in each lane."""
        (on, on_true, on_false), type = texts, node.type
        if node.condition.type.lanes == 1:
            return choice(on, on_true, on_false)
        bits = _bits(type.dtype)
        if bits != 32:
            on = f"__builtin_convertvector({on}, int{bits}x{type.lanes})"
        if type.dtype in ("float32", "float64"):
            return f"choose_{vector_type(type)}({on}, {on_true}, {on_false})"
        return _chosen(self.atom(on, Type(f"int{bits}", type.lanes)), on_true, on_false, type)

    def _cast(self, text: str, source: Type, to: Type) -> str:
        own = vector_type(to)
        if source.dtype == to.dtype:
            return text
        if source.dtype == "bool":
            return f"__builtin_convertvector({infix(text, '&', '1')}, {own})"
        if to.dtype == "bool":
            return self.binary("ne", text, f"({vector_type(source)}){{0}}", source)
        if source.is_float and not to.is_float:
            if source.dtype == "float32" and to.dtype in _INTEGER_RANGE:
                return self._saturated(text, source, to)
            return self._by_lane([text], source, to, lambda one: f"{to.dtype}_of_double({one[0]})")
        return f"__builtin_convertvector({text}, {own})" if _register(source.dtype) != _register(to.dtype) else text

    def _saturated(self, text: str, source: Type, to: Type) -> str:
        """Return float32 as an integer: NaN is 0, what is out of range the nearest."""
        own, whole = vector_type(source), f"int32x{to.lanes}"
        low, high = (f"splat_{own}({c.literal(one, source.with_lanes(1))})" for one in _INTEGER_RANGE[to.dtype])
        value = self.atom(text, source)
        number = self._named(own, f"({own})(({whole}){value} & ({value} == {value}))")
        bounded = f"min_{own}({high}, max_{own}({low}, {number}))"
        if to.dtype != "int32":
            inner = f"__builtin_convertvector({bounded}, {whole})"
            return f"__builtin_convertvector({inner}, {vector_type(to)})"
        over = self._named(whole, f"{number} >= splat_{own}(2147483648.0f)")
        inner = infix(f"__builtin_convertvector({bounded}, {whole})", "&", prefix("~", over))
        return infix(inner, "|", infix(over, "&", "INT32_MAX"))

    def bitcast(self, node: ir.Bitcast, texts: Sequence[str]) -> str:
        """Return the same bits as another element."""
        source, to, (text,) = node.value.type, node.type, texts
        if source.lanes == to.lanes == 1:
            return super().bitcast(node, texts)
        if "bool" in (source.dtype, to.dtype):
            return self._cast(text, source, to)
        if source.lanes == 1 and source.dtype in ("float32", "float64"):
            text = f"bits_of_{source.dtype}({text})"
        if to.lanes == 1 and to.dtype in ("float32", "float64"):
            return f"{to.dtype}_of_bits({cast(f'uint{_bits(to.dtype)}_t', text)})"
        return cast(vector_type(to), text)

    def _shuffle(self, texts: Sequence[str], types: Sequence[Type], lanes: Sequence[int], type: Type) -> str:
        widths = {one.lanes for one in types}
        if len(lanes) > 1 and len(texts) <= 2 and len(widths) == 1 and widths != {1}:
            first = self.atom(texts[0], types[0]) if len(texts) == 1 else texts[0]
            second = first if len(texts) == 1 else texts[1]
            return f"__builtin_shufflevector({first}, {second}, {', '.join(map(str, lanes))})"
        names = [self.atom(text, one) for text, one in zip(texts, types, strict=True)]
        every = [
            f"{name}[{lane}]" if one.lanes > 1 else prefix("-", name) if type.dtype == "bool" else name
            for name, one in zip(names, types, strict=True)
            for lane in range(one.lanes)
        ]
        if len(lanes) > 1:
            return _braced(vector_type(type), [every[lane] for lane in lanes])
        return infix(every[lanes[0]], "!=", "0") if type.dtype == "bool" else every[lanes[0]]

    def _horizontal(self, operator: str, text: str, type: Type) -> str:
        """Halve the vector until one lane is left."""
        while type.lanes > 1:
            name, half = self.atom(text, type), type.lanes // 2
            type = type.with_lanes(half)
            if half == 1:
                low, high = f"{name}[0]", f"{name}[1]"
                if type.dtype == "bool":
                    sign = "&&" if operator in ("and", "min") else "||"
                    return infix(infix(low, "!=", "0"), sign, infix(high, "!=", "0"))
                return c.binary_text(operator, low, high, type)
            low, high = (
                f"__builtin_shufflevector({name}, {name}, {', '.join(str(first + lane) for lane in range(half))})"
                for first in (0, half)
            )
            text = self.binary(operator, low, high, type)
        return text


_ACROSS: Mapping[type, c.Row] = {
    ir.Shuffle: lambda writer, node, texts: writer._shuffle(
        texts, [one.type for one in node.vectors], node.lanes, node.type
    ),
    ir.Horizontal: lambda writer, node, texts: writer._horizontal(node.operator, texts[0], node.value.type),
}
_SCALARS: Mapping[type, c.Row] = {**c.SCALARS, **_ACROSS}
_VECTORS: Mapping[type, c.Row] = {
    **c.COMMON,
    **_ACROSS,
    ir.Constant: lambda writer, node, _: writer._splat(c.literal(node.value, node.type.with_lanes(1)), node.type),
    ir.Ramp: VectorWriter.ramp,
    ir.Broadcast: lambda writer, node, texts: writer._splat(texts[0], node.type),
    ir.Unary: lambda writer, node, texts: writer._unary(node.operator, texts[0], node.type),
    ir.Binary: VectorWriter.pair,
    ir.Select: VectorWriter.select,
    ir.Cast: lambda writer, node, texts: writer._cast(texts[0], node.value.type, node.type),
}


def _chosen(on: str, on_true: str, on_false: str, type: Type) -> str:
    signed = f"int{_bits(type.dtype)}x{type.lanes}"
    taken = infix(on, "&", cast(signed, on_true)), infix(prefix("~", on), "&", cast(signed, on_false))
    return cast(vector_type(type), infix(taken[0], "|", taken[1]))


def _braced(type: str, elements: Sequence[str]) -> str:
    """Return a compound literal, in parentheses for the macros that would take its commas for theirs."""
    return f"(({type}){{{', '.join(elements)}}})"


def _is_number(node: ir.Expression) -> bool:
    value = node.value if isinstance(node, ir.Broadcast) else node
    return isinstance(value, ir.Constant) and value.type.is_float and value.value == value.value


def _shift(node: ir.Expression) -> int | None:
    value = node.value if isinstance(node, ir.Broadcast) else node
    return int(value.value) if isinstance(value, ir.Constant) and value.type.is_integer and value.value >= 0 else None


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdigit()
