"""The removal of custom types from a scheduled function.

1. A decoded type (see `graft.datatypes.compute_type`) becomes its carrier, and every operation of it the carrier's
operation
   and a rounding.
2. A custom type becomes its storage type; operations of it that remain are what was registered for them.

Every result is rounded, once, where the operation stands; nothing is regrouped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from graft.core.schedule.primitives.vectorize import broadcast
from graft.core.tensor_ir.arithmetic.exact_rounding import integer_to_odd, narrow_to_odd
from graft.core.tensor_ir.ir import (
    Binary,
    BinaryOperator,
    Bitcast,
    Buffer,
    Cast,
    Constant,
    Expression,
    Function,
    Horizontal,
    Intrinsic,
    Load,
    Select,
    Statement,
    Unary,
    Variable,
    is_ordered,
)
from graft.core.tensor_ir.scalar_math import Value
from graft.core.tensor_ir.visit import children, unknown, with_children, with_parts
from graft.core.types import Type, is_custom, storage_dtype
from graft.datatypes.compute_type import encoded, format_of
from graft.datatypes.constants import code_of
from graft.datatypes.formats import Format
from graft.datatypes.native_float import as_carrier, is_fused
from graft.datatypes.operations import COMPARISONS, FLOAT_TYPES, OPERATION_OF, apply_lowering, derived, operate
from graft.datatypes.registry import DatatypeRegistry
from graft.datatypes.shipped import DATATYPES
from graft.errors import DatatypeError


@dataclass(slots=True)
class FunctionLowering:
    """One function's buffers, variables, expressions and tables, without custom types.

    ``tables`` are further inputs of the function, behind the others: lookup tables by buffer. ``missing`` collects
    what has no lowering.
    """

    registry: DatatypeRegistry = DATATYPES
    backend: str | None = None
    tables: dict[Buffer, np.ndarray] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    libraries: set[str] = field(default_factory=set)
    is_exact: bool = False
    """Whether there were custom types, whose operations are rounded one by one."""
    _buffers: dict[Buffer, Buffer] = field(default_factory=dict)
    _variables: dict[Variable, Variable] = field(default_factory=dict)
    _known: dict[int, tuple[Expression, Expression]] = field(default_factory=dict)

    # ---- Types ----

    def plain(self, dtype: str) -> str:
        """Return the ordinary type that takes a type's place."""
        format = format_of(self.registry, dtype)
        return storage_dtype(dtype) if format is None else format.carrier

    def buffer(self, buffer: Buffer) -> Buffer:
        """Return the buffer of the ordinary type."""
        if not is_custom(buffer.dtype):
            return buffer
        self.is_exact = True
        if buffer not in self._buffers:
            self._buffers[buffer] = replace(buffer, dtype=self.plain(buffer.dtype))
        return self._buffers[buffer]

    def variable(self, variable: Variable) -> Variable:
        """Return the variable of the ordinary type."""
        if not variable.type.is_custom:
            return variable
        if variable not in self._variables:
            kind = Type(self.plain(variable.type.dtype), variable.type.lanes)
            self._variables[variable] = Variable(variable.name, kind)
        return self._variables[variable]

    # ---- Statements ----

    def statement(self, statement: Statement) -> Statement:
        """Return the statement without custom types."""
        return with_parts(statement, self.expression, self.statement, self.variable, self.buffer)

    # ---- Expressions ----

    def expression(self, expression: Expression) -> Expression:
        """Return the expression without custom types; a shared one stays shared."""
        for node in unknown(expression, self._known):
            self._known[id(node)] = (node, self._lower(node))
        return self._known[id(expression)][1]

    def _lower(self, node: Expression) -> Expression:
        if isinstance(node, Variable):
            return self.variable(node)
        if isinstance(node, Constant):
            return self.constant(node) if node.type.is_custom else node
        operands = tuple(map(self.expression, children(node)))
        kinds = {kind.dtype for kind in (node.type, *(child.type for child in children(node)))}
        if not any(map(is_custom, kinds)):
            return with_children(node, operands)
        self.is_exact = True
        rule = _RULES.get(type(node))
        return with_children(node, operands) if rule is None else rule(self, node, operands)

    def _bitcast(self, node: Bitcast, operands: tuple[Expression, ...]) -> Expression:
        same = self.plain(node.value.type.dtype) == self.plain(node.dtype)
        return operands[0] if same else Bitcast(operands[0], self.plain(node.dtype))

    def _binary(self, node: Binary, operands: tuple[Expression, ...]) -> Expression:
        if node.operator != "add" or not is_fused(format_of(self.registry, node.type.dtype)):
            return self._operation(OPERATION_OF[node.operator], operands, node.left.type.dtype)
        pair = (node.left, node.right)
        product = next((one for one in pair if isinstance(one, Binary) and one.operator == "mul"), None)
        if product is None:
            return Binary("add", *operands)
        factors = map(self.expression, (product.left, product.right))
        return Intrinsic("muladd", (*factors, operands[product is node.left]), operands[0].type)

    def _horizontal(self, node: Horizontal, operands: tuple[Expression, ...]) -> Expression:
        kind = node.value.type
        assert not is_ordered(node.operator, kind), f"terms of {kind} are combined across lanes"
        return with_children(node, operands)

    def constant(self, node: Constant) -> Expression:
        """Return a constant of a custom type as one of the ordinary type."""
        dtype, lanes = node.type.dtype, node.type.lanes
        format, value = format_of(self.registry, dtype), float(node.value)
        if format is not None:
            return Constant(format.nearest(value), Type(format.carrier, lanes))
        code = code_of(value, dtype, self.registry, self.backend)
        if code is None:
            self.missing.add(f"Cast from float32 to {dtype}")
        return Constant(code or 0, Type(storage_dtype(dtype), lanes))

    def _load(self, node: Load, operands: tuple[Expression, ...]) -> Expression:
        """Return a load; what is not read is the number 0, whose code may be another than 0."""
        rank, buffer = len(node.indices), self.buffer(node.buffer)
        if node.mask is None:
            return Load(buffer, operands)
        mask, kind = operands[rank], node.type
        value = Load(buffer, operands[:rank], mask)
        zero = self.constant(Constant(0.0, kind))
        is_zero = isinstance(zero, Constant) and zero.value == 0
        return value if is_zero else Select(broadcast(mask, kind.lanes), value, zero)

    def _operation(self, operation: str, operands: tuple[Expression, ...], dtype: str) -> Expression:
        format = format_of(self.registry, dtype)
        custom = encoded(dtype) or dtype
        lowering = self.registry.lowering(operation, self.backend, custom)
        if format is None and lowering is None and (own := self.registry.format(custom)) is not None:
            numbers = tuple(own.decode(Value(operand)) for operand in operands)
            number = operate(own, operation, numbers)
            return (number if operation in COMPARISONS else own.encode(number)).expression
        if format is not None and lowering is None:
            return operate(format, operation, tuple(map(Value, operands))).expression
        if format is not None:
            operands = tuple(format.encode(Value(operand)).expression for operand in operands)
        if lowering is not None:
            result = apply_lowering(self, lowering, operation, operands, custom)
        else:
            found = derived(self, operation, operands, custom)
            if found is None:
                self.missing.add(f"{operation} of {custom}")
                found = self._placeholder(operation, operands, custom)
            result = found
        if format is not None and operation not in COMPARISONS:
            return format.decode(Value(result)).expression
        return result

    def reduce(self, operator: BinaryOperator, value: Expression) -> Expression:
        """Return one step of a reduction, as a schedule will write it."""
        return self.expression(Binary(operator, value, value))

    def can(self, operation: str, dtype: str) -> bool:
        """Whether an operation of a custom type has a registered lowering."""
        return self.registry.lowering(operation, self.backend, dtype) is not None

    def operation(self, operation: str, operands: tuple[Expression, ...], dtype: str) -> Expression:
        """Return an operation on storage bits."""
        return self._operation(operation, operands, dtype)

    def _placeholder(self, operation: str, operands: tuple[Expression, ...], dtype: str) -> Expression:
        lanes = operands[0].type.lanes if operands else 1
        kind = Type("bool" if operation in COMPARISONS else storage_dtype(dtype), lanes)
        return Constant(False if kind.dtype == "bool" else 0, kind)

    # ---- Casts ----

    def cast(self, value: Expression, source: str, target: str) -> Expression:
        """Return ``value`` (without custom types) of the type ``source`` as ``target``."""
        source, target = as_carrier(source), as_carrier(target)
        if source == target:
            return value
        before, after = format_of(self.registry, source), format_of(self.registry, target)
        if before is not None and encoded(source) == target:
            return before.encode(Value(value)).expression
        if after is not None and encoded(target) == source:
            return after.decode(Value(value)).expression
        ends = encoded(source) or source, encoded(target) or target
        lowering = self.registry.lowering("Cast", self.backend, ends[1], ends[0])
        if lowering is not None:
            bits = value if before is None else before.encode(Value(value)).expression
            result = apply_lowering(self, lowering, "Cast", (bits,), ends[1], ends[0])
            return result if after is None else after.decode(Value(result)).expression
        before, after = self._format(source), self._format(target)
        if (is_custom(source) and before is None) or (is_custom(target) and after is None):
            return self._cast_by_float32(value, source, target)
        number = value
        if before is not None and encoded(source) is None:
            number = before.decode(Value(value)).expression
        if after is None:
            return Cast(number, target) if number.type.dtype != target else number
        result = after.convert(Value(self._wide(number))).expression
        return result if encoded(target) is not None else after.encode(Value(result)).expression

    def _format(self, dtype: str) -> Format | None:
        if not is_custom(dtype):
            return None
        return format_of(self.registry, dtype) or (None if encoded(dtype) else self.registry.format(dtype))

    def _wide(self, number: Expression) -> Expression:
        kind = number.type.dtype
        if kind in ("float32", "float64"):
            return number
        if kind in ("int64", "uint64"):
            return integer_to_odd(Value(number)).expression
        return Cast(number, "float32" if kind in FLOAT_TYPES else "float64")

    def _cast_by_float32(self, value: Expression, source: str, target: str) -> Expression:
        """A cast that nobody registered: from and to other numbers through float32, where that is registered."""
        if "float32" in (source, target):
            self.missing.add(f"Cast from {source} to {target}")
            kind = Type(storage_dtype(target), value.type.lanes)
            return Constant(0.0 if kind.is_float else 0, kind)
        if is_custom(source) and self._format(source) is None:
            return self.cast(self.cast(value, source, "float32"), "float32", target)
        before = self._format(source)
        if before is not None and encoded(source) is None:
            value = before.decode(Value(value)).expression
        number = Value(self._wide(value))
        if number.expression.type.dtype == "float64":
            number = narrow_to_odd(number)
        return self.cast(number.expression, "float32", target)


_RULES: dict[type, Callable[..., Expression]] = {
    Load: FunctionLowering._load,
    Cast: lambda self, node, operands: self.cast(operands[0], node.value.type.dtype, node.dtype),
    Bitcast: FunctionLowering._bitcast,
    Binary: FunctionLowering._binary,
    Unary: lambda self, node, operands: self.operation(OPERATION_OF[node.operator], operands, node.type.dtype),
    Intrinsic: lambda self, node, operands: self.operation(OPERATION_OF[node.name], operands, node.type.dtype),
    Horizontal: FunctionLowering._horizontal,
}
"""What becomes of an operation with a custom type, given its lowered operands; all others are rebuilt."""


@dataclass(frozen=True, slots=True)
class LoweredFunction:
    """A function without custom types.

    ``tables`` are the lookup tables that are its last inputs, ``missing`` what has no lowering, ``libraries`` those
    whose C functions it calls.
    """

    function: Function
    tables: dict[Buffer, np.ndarray]
    missing: frozenset[str]
    libraries: frozenset[str]


def lower_function(
    function: Function, registry: DatatypeRegistry = DATATYPES, backend: str | None = None, *, is_plain: bool = False
) -> LoweredFunction:
    """Return a scheduled function without custom types; with ``is_plain`` it is known to have none."""
    if is_plain:
        return LoweredFunction(function, {}, frozenset(), frozenset())
    lowering = FunctionLowering(registry, backend)
    body = lowering.statement(function.body)
    inputs = tuple(map(lowering.buffer, function.input_buffers))
    outputs = tuple(map(lowering.buffer, function.output_buffers))
    parameters = (*inputs, *lowering.tables, *outputs)
    lowered = replace(function, parameters=parameters, body=body, is_exact=lowering.is_exact)
    return LoweredFunction(lowered, lowering.tables, frozenset(lowering.missing), frozenset(lowering.libraries))


def require(missing: frozenset[str] | set[str], backend: str | None, where: str) -> None:
    """Raise DatatypeError if any lowering is missing, naming all of them."""
    if missing:
        listed = ", ".join(sorted(missing))
        who = f"backend '{backend}' has" if backend else "there is"
        raise DatatypeError(
            f"{where}: {who} no lowering of {listed}; register each with graft.datatypes.register_op",
            missing=tuple(sorted(missing)),
        )
