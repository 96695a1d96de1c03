"""Expressions of the tensor IR in LLVM IR.

Expressions are shared DAGs: within one statement each node is emitted once, by identity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from graft.core.machine.instructions import DOTS
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.arithmetic.small_floats import in_float32
from graft.core.tensor_ir.visit import children
from graft.core.types import INT64, Type, element_bits
from graft.errors import CompileError
from graft.plugins.codegen.llvm_ir import addresses, arithmetic, dot, memory
from graft.plugins.codegen.llvm_ir.builder import ModuleText, Value, literal, mangled, register_type
from graft.plugins.codegen.llvm_ir.cast import cast


class ExpressionEmitter(addresses.MemoryBuilder):
    """Emits expressions of one LLVM function; variables and buffers are bound by the enclosing statements."""

    def __init__(self, module: ModuleText) -> None:
        super().__init__(module)
        self.variables: dict[ir.Variable, Value] = {}
        self._emitted: dict[int, tuple[ir.Expression, Value]] = {}

    def begin_statement(self) -> None:
        """Forget what was emitted: memory, or the block, is about to change."""
        self._emitted.clear()

    def value(self, expression: ir.Expression) -> Value:
        """Return the value of an expression, emitting it unless this statement already has."""
        if type(expression) is ir.Variable:
            return self._variable(expression)
        emitted = self._emitted
        known = emitted.get(id(expression))
        if known is not None:
            return known[1]
        stack = [expression]
        while stack:
            node = stack[-1]
            waiting = [one for one in _emitted_first(node) if id(one) not in emitted]
            if waiting:
                waiting.reverse()
                stack += waiting
                continue
            if id(node) not in emitted:
                emitted[id(node)] = (node, self._emit(node))
            stack.pop()
        return emitted[id(expression)][1]

    def _emit(self, expression: ir.Expression) -> Value:
        plain = in_float32(expression, self.module.roundings)
        if plain is not expression:
            return self.value(plain)
        return _ROWS[type(expression)](self, expression)

    def _variable(self, variable: ir.Variable) -> Value:
        assert variable in self.variables, f"variable '{variable.name}' is not bound here"
        return self.variables[variable]

    def _binary(self, node: ir.Binary) -> Value:
        counted = addresses.counting_mask(self, node)
        if counted is not None:
            return counted
        return arithmetic.binary(self, node.operator, self.value(node.left), self.value(node.right))

    def _ramp(self, base: ir.Expression, stride: int, lanes: int) -> Value:
        type = INT64.with_lanes(lanes)
        steps = ", ".join(f"i64 {lane * stride}" for lane in range(lanes))
        start = self.value(base)
        if start.integer is not None:
            numbers = ", ".join(f"i64 {start.integer + lane * stride}" for lane in range(lanes))
            return Value(f"<{numbers}>", type)
        return Value(self.let(f"add {register_type(type)} {self.splat(start, lanes).text}, <{steps}>"), type)

    def _select(self, condition: Value, on_true: Value, on_false: Value) -> Value:
        assert condition.type.lanes in (1, on_true.type.lanes), (condition.type, on_true.type)
        return self.select(condition, on_true, on_false)

    def _bitcast(self, value: Value, to: Type) -> Value:
        if register_type(value.type) == register_type(to):
            return Value(value.text, to)
        if to.dtype == "bool":
            return self.compare("icmp ne", value, 0)
        return self.convert("zext" if value.type.dtype == "bool" else "bitcast", value, to)

    def _intrinsic(self, expression: ir.Intrinsic) -> Value:
        arguments = [self.value(argument) for argument in expression.arguments]
        match expression.name:
            case "fma" | "muladd":
                return self._fma(*arguments)
            case "ldexp":
                return self._ldexp(*arguments)
            case "round_bf16":
                return dot.round_bf16(self, *arguments)
            case name if name in DOTS:
                return dot.dot(self, name, arguments, self._fma)
            case name if name.startswith("extern:") and "@" in name:
                symbol = name.removeprefix("extern:").partition("@")[0]
                return self._extern(symbol, expression.type, arguments)
        raise CompileError(
            f"the built-in compiler has no intrinsic '{expression.name}' of type {expression.type}; "
            "expand it to arithmetic first",
            intrinsic=expression.name,
        )

    def _extern(self, symbol: str, type: Type, arguments: list[Value]) -> Value:
        """Call a C function of a library, at a place that whoever loads the code fills, once for every lane."""
        scalar = type.with_lanes(1)
        result = _c_type(scalar, before=True)
        taken = ", ".join(_c_type(argument.type.with_lanes(1)) for argument in arguments)
        self.module.declarations.setdefault(symbol, f"declare {result} @{symbol}({taken}) nonlazybind")

        def called(lane: int) -> Value:
            parts = [self._element([argument], lane) if type.lanes > 1 else argument for argument in arguments]
            given = ", ".join(f"{_c_type(part.type)} {part.text}" for part in parts)
            return Value(self.let(f"call {result} @{symbol}({given})"), scalar)

        return self.in_lanes(type.lanes, called)

    def _fma(self, left: Value, right: Value, addend: Value) -> Value:
        return self.call(self.module.instruction("fma") or "fmuladd", left, right, addend)

    def _ldexp(self, value: Value, exponent: Value) -> Value:
        kinds = [register_type(one.type) for one in (value, exponent)]
        full = f"llvm.ldexp.{mangled(kinds[0])}.{mangled(kinds[1])}"
        self.module.declarations.setdefault(full, f"declare {kinds[0]} @{full}({', '.join(kinds)})")
        call = f"call {kinds[0]} @{full}({kinds[0]} {value.text}, {kinds[1]} {exponent.text})"
        return Value(self.let(call), value.type)

    def _shuffle(self, vectors: list[Value], lanes: tuple[int, ...]) -> Value:
        to = vectors[0].type.with_lanes(len(lanes))
        widths = [vector.type.lanes for vector in vectors]
        if len(lanes) > 1 and len(vectors) <= 2 and len(set(widths)) == 1 and widths[0] > 1:
            kind = register_type(vectors[0].type)
            second = vectors[1].text if len(vectors) == 2 else "poison"
            chosen = ", ".join(f"i32 {lane}" for lane in lanes)
            mask = f"<{len(lanes)} x i32> <{chosen}>"
            return Value(self.let(f"shufflevector {kind} {vectors[0].text}, {kind} {second}, {mask}"), to)
        elements = [self._element(vectors, lane) for lane in lanes]
        return self.in_lanes(len(lanes), lambda lane: elements[lane])

    def _element(self, vectors: list[Value], lane: int) -> Value:
        for vector in vectors:
            if lane < vector.type.lanes:
                return self.element(vector, lane)
            lane -= vector.type.lanes
        raise AssertionError(f"lane {lane} is past the end of the vectors")

    def _horizontal(self, operator: str, value: Value) -> Value:
        type = value.type
        scalar = type.with_lanes(1)
        if type.lanes == 1:
            return value
        kind, result = register_type(type), register_type(scalar)
        if type.is_float and operator in ("add", "mul"):
            full = f"llvm.vector.reduce.f{operator}.v{type.lanes}f{element_bits(type.dtype)}"
            self.module.declarations.setdefault(full, f"declare {result} @{full}({result}, {kind})")
            start = literal(0.0 if operator == "add" else 1.0, scalar)
            return Value(self.let(f"call reassoc {result} @{full}({result} {start}, {kind} {value.text})"), scalar)
        if type.is_float:
            return self._tree(operator, value)
        name = operator
        if operator in ("min", "max"):
            name = f"{'s' if type.dtype.startswith('int') else 'u'}{operator}"
        return Value(self.intrinsic(f"vector.reduce.{name}", result, [(kind, value.text)], [kind]), scalar)

    def _tree(self, operator: str, value: Value) -> Value:
        """Halve the vector until one lane is left; an odd lane is put aside."""
        rest: Value | None = None
        while value.type.lanes > 1:
            lanes = value.type.lanes
            if lanes % 2:
                last = self._element([value], lanes - 1)
                rest = last if rest is None else arithmetic.binary(self, operator, rest, last)  # type: ignore[arg-type]
            half = lanes // 2
            low = self._shuffle([value], tuple(range(half)))
            high = self._shuffle([value], tuple(range(half, 2 * half)))
            value = arithmetic.binary(self, operator, low, high)  # type: ignore[arg-type]
        return value if rest is None else arithmetic.binary(self, operator, value, rest)  # type: ignore[arg-type]


_ROWS: dict[type, Callable[..., Value]] = {
    ir.Constant: lambda self, node: Value(literal(node.value, node.type), node.type),
    ir.Variable: ExpressionEmitter._variable,
    ir.Load: memory.load,
    ir.Ramp: lambda self, node: self._ramp(node.base, node.stride, node.lanes),
    ir.Broadcast: lambda self, node: self.splat(self.value(node.value), node.lanes),
    ir.Unary: lambda self, node: arithmetic.unary(self, node.operator, self.value(node.value)),
    ir.Binary: ExpressionEmitter._binary,
    ir.Select: lambda self, node: self._select(*map(self.value, children(node))),
    ir.Cast: lambda self, node: cast(self, self.value(node.value), node.dtype),
    ir.Bitcast: lambda self, node: self._bitcast(self.value(node.value), node.type),
    ir.Intrinsic: ExpressionEmitter._intrinsic,
    ir.Shuffle: lambda self, node: self._shuffle([self.value(vector) for vector in node.vectors], node.lanes),
    ir.Horizontal: lambda self, node: self._horizontal(node.operator, self.value(node.value)),
}
assert set(_ROWS) == set(get_args(ir.Expression)), "an expression without a row"


def _emitted_first(node: ir.Expression) -> tuple[ir.Expression, ...]:
    """The operands that are emitted before a node whatever they are; those of the others depend on what they mean."""
    if type(node) in _BY_MEANING:
        return ()
    if type(node) is ir.Binary and node.operator in ir.COMPARISONS and node.left.type.dtype == "int64":
        return ()
    return children(node)


_BY_MEANING = frozenset({ir.Load, ir.Ramp, ir.Constant, ir.Variable})
"""An access and its indices are one address, where that is linear; a comparison of indices may be a mask."""


def _c_type(type: Type, *, before: bool = False) -> str:
    """Return a C argument's (or, with ``before``, result's) type: small integers are extended by the caller."""
    kind, small = register_type(type), type.is_integer and element_bits(type.dtype) < 32
    if not small:
        return kind
    extension = "zeroext" if type.dtype.startswith("u") else "signext"
    return f"{extension} {kind}" if before else f"{kind} {extension}"
