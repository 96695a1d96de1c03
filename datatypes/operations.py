"""Operations of custom datatypes, one by one: by the format, by what was registered, or from other operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from graft.core.operators.definition import build as b
from graft.core.tensor_ir.ir import (
    Binary,
    Broadcast,
    Buffer,
    Cast,
    Constant,
    Expression,
    Intrinsic,
    Load,
    Select,
    Unary,
)
from graft.core.tensor_ir.scalar_math import Value
from graft.core.types import Type, is_custom, storage_dtype
from graft.datatypes.formats import Format, power
from graft.datatypes.lowering import Extern, Lookup, Lowering, Via, bits_of, formula_result
from graft.errors import DatatypeError

FLOAT_TYPES = frozenset({"float16", "bfloat16", "float32", "float64"})
OPERATION_OF = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "mod": "Mod", "fmod": "Mod", "neg": "Neg", "abs": "Abs",
    "min": "Min", "max": "Max", "eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE", "fma": "Fma",
    "sqrt": "Sqrt", "floor": "Floor", "ceil": "Ceil", "trunc": "Trunc", "round_even": "Round",
    "exp": "Exp", "exp2": "Exp2", "expm1": "Expm1", "log": "Log", "log2": "Log2", "log1p": "Log1p", "tanh": "Tanh",
    "sigmoid": "Sigmoid", "erf": "Erf", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos",
    "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "pow": "Pow",
    "rsqrt": "Rsqrt",
}  # fmt: skip
"""The operation behind each operator and intrinsic of the tensor IR."""
OPERATOR_OF = {operation: operator for operator, operation in OPERATION_OF.items() if operator != "mod"}
COMPARISONS = frozenset({"EQ", "NE", "LT", "LE", "GT", "GE"})
_BINARY = frozenset({"Add", "Sub", "Mul", "Div", "Mod", "Min", "Max"}) | COMPARISONS
_EXPONENTIAL = frozenset({"Exp", "Exp2", "Expm1", "Sinh", "Cosh", "Sigmoid"})
"""Functions whose results leave float64, but whose results at 700 leave every format: no infinity, no zero."""
_UNARY = frozenset({"Neg", "Abs", "Sqrt", "Floor", "Ceil", "Trunc", "Round"})


def operate(format: Format, operation: str, operands: tuple[Value, ...]) -> Value:
    """Return an operation on numbers in the carrier, rounded once."""
    own = format.function(operation, operands)
    if own is not None:
        return own
    direct = _DIRECT.get(operation)
    if direct is not None:
        return direct(format, *operands)
    if operation in _UNARY:
        return format.round(operands[0].unary(OPERATOR_OF[operation]))
    # A function: in float64, whose error is far below the format's precision.
    wide = [operand if format.carrier == "float64" else operand.cast("float64") for operand in operands]
    if operation in _EXPONENTIAL:
        wide = [operand.clamp(-700.0, 700.0) for operand in wide]
    if operation == "Pow":
        return format.convert(power(*wide))
    return format.convert(Value(plain_operation(operation, tuple(part.expression for part in wide))))


def _negate(format: Format, value: Value) -> Value:
    return -value if format.is_symmetric else format.round(-value)


def _absolute(format: Format, value: Value) -> Value:
    return abs(value) if format.is_symmetric else format.round(abs(value))


def _binary(operator: str) -> Callable[[Format, Value, Value], Value]:
    return lambda format, x, y: Value(Binary(operator, x.expression, y.expression))  # type: ignore[arg-type]


def _not(condition: Value) -> Value:
    return Value(Unary("not", condition.expression))


_DIRECT: dict[str, Callable[..., Value]] = {
    "Add": lambda format, x, y: format.add(x, y),
    "Sub": lambda format, x, y: format.subtract(x, y),
    "Mul": lambda format, x, y: format.multiply(x, y),
    "Div": lambda format, x, y: format.divide(x, y),
    "Mod": lambda format, x, y: format.round(_binary("fmod")(format, x, y)),
    "Fma": lambda format, x, y, z: format.multiply_add(x, y, z),
    "Neg": _negate,
    "Abs": _absolute,
    "Min": _binary("min"),
    "Max": _binary("max"),
    "Sqrt": lambda format, x: format.root(x),
    "EQ": lambda format, x, y: format.equal(x, y),
    "NE": lambda format, x, y: _not(format.equal(x, y)),
    "LT": lambda format, x, y: format.less(x, y),
    "GT": lambda format, x, y: format.less(y, x),
    "LE": lambda format, x, y: format.less(x, y) | format.equal(x, y),
    "GE": lambda format, x, y: format.less(y, x) | format.equal(x, y),
}


def plain_operation(operation: str, operands: tuple[Expression, ...]) -> Expression:
    """Return an operation on ordinary numbers."""
    operator = OPERATOR_OF[operation]
    if operation in _BINARY:
        return Binary(operator, operands[0], operands[1])  # type: ignore[arg-type]
    if operation in _UNARY:
        return Unary(operator, operands[0])  # type: ignore[arg-type]
    return Intrinsic(operator, operands, operands[0].type)


class Lowerer(Protocol):
    """The function in which an operation stands (`graft.datatypes.lower_function`), as far as operations ask it."""

    @property
    def tables(self) -> dict[Buffer, np.ndarray]:
        """The lookup tables that the function reads."""
        ...

    @property
    def missing(self) -> set[str]:
        """What has no lowering."""
        ...

    @property
    def libraries(self) -> set[str]:
        """The libraries whose C functions are called."""
        ...

    def can(self, operation: str, dtype: str) -> bool:
        """Whether an operation of a custom type has a registered lowering."""
        ...

    def operation(self, operation: str, operands: tuple[Expression, ...], dtype: str) -> Expression:
        """Return an operation on storage bits."""
        ...

    def cast(self, value: Expression, source: str, target: str) -> Expression:
        """Return ``value`` of the type ``source`` as ``target``."""
        ...

    def constant(self, node: Constant) -> Expression:
        """Return a constant of a custom type as one of the ordinary type."""
        ...


def apply_lowering(
    function: Lowerer,
    lowering: Lowering,
    operation: str,
    operands: tuple[Expression, ...],
    dtype: str,
    source: str | None = None,
) -> Expression:
    """Return a registered lowering's result for storage bits; raise DatatypeError if its type is wrong."""
    expected = "bool" if operation in COMPARISONS else storage_dtype(dtype)
    result: Expression
    match lowering:
        case Extern():
            if not lowering.has(dtype, source):
                of = f"from {source} to {dtype}" if operation == "Cast" else f"of {dtype}"
                function.missing.add(f"{operation} {of}")
                return b.literal(0, Type(expected, operands[0].type.lanes if operands else 1))
            call = lowering.call(operands, dtype, source)
            function.libraries.add(call.name.partition("@")[2])
            result = call
            if expected == "bool":
                result = b.not_equal(replace(call, type=Type("uint8", call.type.lanes)), 0)
        case Via(carrier):
            numbers = tuple(function.cast(operand, dtype, carrier) for operand in operands)
            computed = plain_operation(operation, numbers)
            result = computed if operation in COMPARISONS else function.cast(computed, carrier, dtype)
        case Lookup():
            _require_size(lowering, operation, len(operands), source if source and is_custom(source) else dtype)
            result = _read(function, lowering, operands)
            if expected == "bool" and result.type.dtype != "bool":
                result = b.not_equal(result, 0)
        case _:
            result = formula_result(lowering, operands, f"the lowering of {operation} of {dtype}")
    return require_stored(result, operation, dtype)


def require_stored(result: Expression, operation: str, dtype: str) -> Expression:
    """Return what a lowering gives; raise DatatypeError if it is of another type than an operation's results."""
    expected = "bool" if operation in COMPARISONS else storage_dtype(dtype)
    if result.type.dtype != expected:
        raise DatatypeError(
            f"the lowering of {operation} of {dtype} gives {result.type.dtype}, but its storage type is {expected}; "
            "return an expression of that type",
            operation=operation,
            datatype=dtype,
        )
    return result


def _require_size(lowering: Lookup, operation: str, operands: int, dtype: str) -> None:
    if (lowering.bits, lowering.operands) != (bits_of(dtype), operands):
        raise DatatypeError(
            f"the table of {operation} of {dtype} is for {lowering.operands} operands of {lowering.bits} bits; make "
            f"one for {operands} of {bits_of(dtype)} bits",
            operation=operation,
            datatype=dtype,
        )


def _read(function: Lowerer, lowering: Lookup, operands: tuple[Expression, ...]) -> Expression:
    place: Expression = Cast(operands[0], "int64")
    for operand in operands[1:]:
        place = b.add(b.multiply(place, 1 << lowering.bits), Cast(operand, "int64"))
    known = {id(table): buffer for buffer, table in function.tables.items()}
    buffer = known.get(id(lowering.table))
    if buffer is None:
        dtype = lowering.table.dtype.name
        buffer = Buffer(f"table{len(known)}", dtype, (b.index(lowering.table.size),))
        function.tables[buffer] = lowering.table
    return Load(buffer, (place,))


def derived(function: Lowerer, operation: str, operands: tuple[Expression, ...], dtype: str) -> Expression | None:
    """Return an operation computed by others that are registered, None if there are none."""
    x = operands[0] if operands else None
    y = operands[1] if len(operands) > 1 else None

    def has(*names: str) -> bool:
        return all(function.can(name, dtype) for name in names)

    def of(name: str, *arguments: Expression | None) -> Expression:
        return function.operation(name, tuple(part for part in arguments if part is not None), dtype)

    match operation:
        case "NE" if has("EQ"):
            return Unary("not", of("EQ", x, y))
        case "GT" if has("LT"):
            return of("LT", y, x)
        case "LE" if has("LT", "EQ"):
            return b.either(of("LT", x, y), of("EQ", x, y))
        case "GE" if has("LT", "EQ"):
            return b.either(of("LT", y, x), of("EQ", x, y))
        case "Max" if has("LT") and x is not None and y is not None:
            return Select(of("LT", x, y), y, x)
        case "Min" if has("LT") and x is not None and y is not None:
            return Select(of("LT", y, x), y, x)
        case "Sub" if has("Add", "Neg"):
            return of("Add", x, of("Neg", y))
        case "Neg" if has("Sub") and x is not None:
            zero = function.constant(b.literal(0.0, Type(dtype)))
            lanes = x.type.lanes
            return of("Sub", zero if lanes == 1 else Broadcast(zero, lanes), x)
        case "Fma" if has("Mul", "Add"):
            return of("Add", of("Mul", x, y), operands[2])
    return None
