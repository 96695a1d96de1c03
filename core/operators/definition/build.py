"""Short names for writing tensor IR: arithmetic with literals, index helpers, stages.

Index arithmetic (int64) is folded as it is built, so that what a lowering writes in general form (strides, pads,
groups) comes out small in the common case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from graft.core.tensor_ir import ir
from graft.core.tensor_ir.anchors import Contraction, Structure, Window
from graft.core.types import BOOL, INT64, SIGNED, UNSIGNED, Type, element_bits, is_custom, storage_dtype

Operand: TypeAlias = ir.Expression | int | float | bool
Extent: TypeAlias = int | ir.Variable
"""An extent of a buffer: a number, or what is known when the kernel runs."""
Count: TypeAlias = int | ir.Expression
"""An extent of what lies between stages: it may be computed, too."""
OF_BOOL: dict[ir.BinaryOperator, ir.BinaryOperator] = {"add": "or", "mul": "and"}
"""What sums and products of truth values are."""
NARROW_FLOATS = frozenset({"float16", "bfloat16"})


def constant(value: float, dtype: str) -> ir.Constant:
    """Return a scalar constant of type ``dtype``; a number for an integer type is truncated."""
    if dtype == "bool":
        return ir.Constant(bool(value), BOOL)
    kind = Type(dtype)
    return ir.Constant(int(value) if kind.is_integer else float(value), kind)


def index(value: int) -> ir.Constant:
    """Return an int64 constant."""
    return ir.Constant(int(value), INT64)


def dims(buffer: ir.Buffer) -> tuple[int, ...]:
    """Return the extents of a buffer of static shape."""
    extents = []
    for extent in buffer.shape:
        assert isinstance(extent, ir.Constant), f"buffer '{buffer.name}' has a symbolic extent"
        extents.append(int(extent.value))
    return tuple(extents)


def extents(buffer: ir.Buffer) -> tuple[Extent, ...]:
    """Return the extents of a buffer; those that are no numbers are variables, the same where they are the same."""
    found: list[Extent] = []
    for extent in buffer.shape:
        assert isinstance(extent, ir.Constant | ir.Variable), f"buffer '{buffer.name}' has a computed extent"
        found.append(int(extent.value) if isinstance(extent, ir.Constant) else extent)
    return tuple(found)


def counts(buffer: ir.Buffer) -> tuple[Count, ...]:
    """Return the extents of a buffer, of which some may be computed."""
    return tuple(int(one.value) if isinstance(one, ir.Constant) else one for one in buffer.shape)


def numbers(buffer: ir.Buffer, first: int, last: int | None = None) -> tuple[int, ...]:
    """Return the extents of a buffer from dimension ``first`` to before ``last``, which are numbers."""
    return dims(replace(buffer, shape=buffer.shape[first:last]))


def extent(value: Count) -> ir.Expression:
    """Return an extent as an expression."""
    return index(value) if isinstance(value, int) else value


def product_of(counts: Sequence[Count]) -> Count:
    """Return the product of extents: a number where all are."""
    known = math.prod(count for count in counts if isinstance(count, int))
    total: int | ir.Expression = known
    for count in counts:
        if not isinstance(count, int):
            total = count if total == 1 else multiply(total, count)
    return total


def counted(extent: ir.Expression) -> Count:
    """Return an extent as a number where it is one."""
    return int(extent.value) if isinstance(extent, ir.Constant) else extent


def raised(count: Count, by: int) -> Count:
    """Return an extent plus a number."""
    return count + by if isinstance(count, int) else add(count, by)


def variables(count: int, prefix: str = "i") -> tuple[ir.Variable, ...]:
    """Return fresh int64 variables ``i0, i1, ...``."""
    return tuple(ir.Variable(f"{prefix}{number}") for number in range(count))


def reduction_axes(extents: Sequence[Count], prefix: str = "k") -> tuple[ir.Axis, ...]:
    """Return fresh reduction axes of the given extents."""
    names = variables(len(extents), prefix)
    return tuple(ir.Axis(name, extent(count)) for name, count in zip(names, extents, strict=True))


# ---- Arithmetic ---------------------------------------------------------------------------------------------------


def literal(value: float, kind: Type) -> ir.Constant:
    """Return a constant, or its splat, of type ``kind``."""
    return ir.Constant(constant(value, kind.dtype).value, kind)


def _lift(left: Operand, right: Operand) -> tuple[ir.Expression, ir.Expression]:
    if isinstance(left, (int, float)):
        assert not isinstance(right, (int, float)), f"two literals: {left}, {right}"
        return literal(left, right.type), right
    return left, literal(right, left.type) if isinstance(right, (int, float)) else right


def binary(operator: ir.BinaryOperator, left: Operand, right: Operand) -> ir.Expression:
    """Return ``left operator right``; a literal takes the type of the other side; int64 constants are folded.

    Truth values are added by ``or`` and multiplied by ``and``.
    """
    a, b = _lift(left, right)
    assert a.type == b.type, f"{operator}: {a.type} with {b.type}"
    operator = of_type(operator, a.type.dtype)
    if a.type == INT64:
        folded = _fold(operator, a, b)
        if folded is not None:
            return folded
    return ir.Binary(operator, a, b)


def of_type(operator: ir.BinaryOperator, dtype: str) -> ir.BinaryOperator:
    """Return the operator by which elements of a type are combined: sums of truth values hold where any does."""
    return OF_BOOL.get(operator, operator) if dtype == "bool" else operator


def _fold(operator: ir.BinaryOperator, a: ir.Expression, b: ir.Expression) -> ir.Expression | None:
    x = int(a.value) if isinstance(a, ir.Constant) else None
    y = int(b.value) if isinstance(b, ir.Constant) else None
    if x is not None and y is not None:
        return _fold_constants(operator, x, y)
    match operator:
        case "add":
            return a if y == 0 else b if x == 0 else None
        case "sub":
            return a if y == 0 else None
        case "mul":
            return a if y == 1 else b if x == 1 else index(0) if 0 in (x, y) else None
        case "div":
            return a if y == 1 else None
        case "mod":
            return index(0) if y == 1 else None
    return None


def _fold_constants(operator: ir.BinaryOperator, x: int, y: int) -> ir.Expression | None:
    match operator:
        case "add":
            return index(x + y)
        case "sub":
            return index(x - y)
        case "mul":
            return index(x * y)
        case "div" if y != 0:
            return index(abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1))
        case "min":
            return index(min(x, y))
        case "max":
            return index(max(x, y))
        case "lt":
            return ir.Constant(x < y, BOOL)
        case "ge":
            return ir.Constant(x >= y, BOOL)
    return None


def add(left: Operand, right: Operand) -> ir.Expression:
    """Return the sum."""
    return binary("add", left, right)


def subtract(left: Operand, right: Operand) -> ir.Expression:
    """Return the difference."""
    return binary("sub", left, right)


def multiply(left: Operand, right: Operand) -> ir.Expression:
    """Return the product."""
    return binary("mul", left, right)


def divide(left: Operand, right: Operand) -> ir.Expression:
    """Return the quotient; of integers it is truncated."""
    return binary("div", left, right)


def modulo(left: Operand, right: Operand) -> ir.Expression:
    """Return the remainder with the sign of ``left``."""
    return binary("mod", left, right)


def minimum(left: Operand, right: Operand) -> ir.Expression:
    """Return the smaller; NaN if either is NaN."""
    return binary("min", left, right)


def maximum(left: Operand, right: Operand) -> ir.Expression:
    """Return the larger; NaN if either is NaN."""
    return binary("max", left, right)


def less(left: Operand, right: Operand) -> ir.Expression:
    """Return ``left < right``."""
    return binary("lt", left, right)


def less_equal(left: Operand, right: Operand) -> ir.Expression:
    """Return ``left <= right``."""
    return binary("le", left, right)


def greater(left: Operand, right: Operand) -> ir.Expression:
    """Return ``left > right``."""
    return binary("gt", left, right)


def greater_equal(left: Operand, right: Operand) -> ir.Expression:
    """Return ``left >= right``."""
    return binary("ge", left, right)


def equal(left: Operand, right: Operand) -> ir.Expression:
    """Return ``left == right``."""
    return binary("eq", left, right)


def not_equal(left: Operand, right: Operand) -> ir.Expression:
    """Return ``left != right`` (true for NaN)."""
    return binary("ne", left, right)


def both(left: Operand, right: Operand) -> ir.Expression:
    """Return the logical conjunction."""
    return binary("and", left, right)


def either(left: Operand, right: Operand) -> ir.Expression:
    """Return the logical disjunction."""
    return binary("or", left, right)


def unary(operator: ir.UnaryOperator, value: ir.Expression) -> ir.Expression:
    """Return a unary operation; rounding an integer gives it back."""
    if operator in ("floor", "ceil", "trunc", "round_even") and (value.type.is_integer or value.type.dtype == "bool"):
        return value
    return ir.Unary(operator, value)


def select(condition: ir.Expression, on_true: Operand, on_false: Operand) -> ir.Expression:
    """Return ``on_true`` where ``condition``, else ``on_false``; at most one of them is a literal."""
    a, b = _lift(on_true, on_false)
    if isinstance(condition, ir.Constant):
        return a if condition.value else b
    return ir.Select(condition, a, b)


def cast(value: ir.Expression, dtype: str) -> ir.Expression:
    """Return ``value`` as ``dtype``; to bool it is ``value != 0``."""
    if value.type.dtype == dtype:
        return value
    if dtype == "bool":
        return not_equal(value, 0)
    return ir.Cast(value, dtype)


def intrinsic(name: str, *arguments: Operand) -> ir.Expression:
    """Return a pure function of floats; the first argument gives the type."""
    first = next(argument for argument in arguments if not isinstance(argument, (int, float)))
    kind = first.type
    lifted = tuple(literal(a, kind) if isinstance(a, (int, float)) else a for a in arguments)
    return ir.Intrinsic(name, lifted, kind)


def all_of(conditions: Sequence[ir.Expression]) -> ir.Expression | None:
    """Return the conjunction of the conditions that are not constantly true; None when there is none."""
    result: ir.Expression | None = None
    for condition in conditions:
        if isinstance(condition, ir.Constant) and condition.value:
            continue
        result = condition if result is None else both(result, condition)
    return result


def inside(position: ir.Expression, extent: Count) -> tuple[ir.Expression, ir.Expression]:
    """Return the two conditions of ``0 <= position < extent``."""
    return greater_equal(position, 0), less(position, extent)


def clamp(position: ir.Expression, extent: Count) -> ir.Expression:
    """Return ``position`` moved into ``[0, extent)``; 0 where that is empty."""
    if isinstance(extent, int):
        return minimum(maximum(position, 0), max(extent - 1, 0))
    return maximum(minimum(position, subtract(extent, 1)), 0)


def is_nan(value: ir.Expression) -> ir.Expression:
    """Return whether a float is NaN; of a custom datatype, whether float32 has only NaN for it.

    A custom datatype compares as it likes: a posit's NaR equals itself.
    """
    value = cast(value, "float32") if value.type.is_custom else value
    return not_equal(value, value)


def same(left: ir.Expression, right: ir.Expression) -> ir.Expression:
    """Return whether two numbers are equal, or both NaN; NaNs of a custom datatype are so where their bits are."""
    equals = equal(left, right)
    if left.type.is_float:
        return either(equals, both(is_nan(left), is_nan(right)))
    if is_custom(left.type.dtype):
        storage = storage_dtype(left.type.dtype)
        return either(equals, equal(ir.Bitcast(left, storage), ir.Bitcast(right, storage)))
    return equals


def lowest(dtype: str) -> ir.Constant:
    """Return the least value: minus infinity for floats."""
    if dtype in SIGNED:
        return constant(-(1 << (element_bits(dtype) - 1)), dtype)
    return constant(0, dtype) if dtype in UNSIGNED or dtype == "bool" else constant(-math.inf, dtype)


def highest(dtype: str) -> ir.Constant:
    """Return the largest value: infinity for floats."""
    if dtype == "bool":
        return constant(1, dtype)
    if dtype in SIGNED or dtype in UNSIGNED:
        return constant((1 << (element_bits(dtype) - (dtype in SIGNED))) - 1, dtype)
    return constant(math.inf, dtype)


def wide(dtype: str) -> str:
    """Return the type in which sums and functions of ``dtype`` are computed: float32 for the 16-bit floats."""
    return "float32" if dtype in NARROW_FLOATS else dtype


# ---- Loads and stages ---------------------------------------------------------------------------------------------


def load(buffer: ir.Buffer, *indices: Operand) -> ir.Expression:
    """Return one element of a buffer."""
    return ir.Load(buffer, tuple(index(int(i)) if isinstance(i, (int, float)) else i for i in indices))


def masked_load(
    buffer: ir.Buffer, indices: Sequence[ir.Expression], conditions: Sequence[ir.Expression]
) -> ir.Expression:
    """Return an element, or zero where a condition fails; without a mask where all conditions are constantly true."""
    return ir.Load(buffer, tuple(indices), all_of(conditions))


def broadcast(buffer: ir.Buffer, axes: Sequence[ir.Expression], shape: Sequence[Count]) -> ir.Expression:
    """Return the element of ``buffer`` that NumPy's broadcasting pairs with element ``axes`` of a shape.

    An axis that both have keeps its variable even where its extent is 1.
    """
    own = extents(buffer)
    skipped = len(axes) - len(own)
    return load(buffer, *map(broadcast_place, own, shape[skipped:], axes[skipped:]))


def broadcast_place(own: Count, wanted: Count, axis: ir.Expression) -> ir.Expression:
    """Return where an operand of extent ``own`` lies along an axis of extent ``wanted``.

    Whether two extents with names are equal, or the operand's is 1, may be known only when the kernel runs: by the
    node's demand it is one of both, so the last element is meant where there is none at the axis.
    """
    if own == wanted:
        return axis
    return index(0) if isinstance(own, int) and own == 1 else minimum(axis, subtract(extent(own), 1))


def compute(buffer: ir.Buffer, value: Callable[[tuple[ir.Variable, ...]], ir.Expression]) -> ir.Stage:
    """Return the stage that stores ``value(axes)`` in every element of ``buffer``, cast to its type."""
    axes = variables(len(buffer.shape))
    return ir.Stage(buffer, axes, cast(value(axes), buffer.dtype))


def reduce(
    buffer: ir.Buffer,
    operator: ir.BinaryOperator,
    extents: Sequence[Count],
    value: Callable[[tuple[ir.Variable, ...], tuple[ir.Variable, ...]], ir.Expression],
    initial: ir.Expression | None = None,
    epilogue: Callable[[ir.Expression], ir.Expression] | None = None,
    prefix: str = "k",
    structure: Structure | None = None,
) -> ir.Stage:
    """Return the stage that reduces ``value(axes, reduced)`` over axes of the given extents.

    The reduction runs in the type of ``value``; ``epilogue``, then a cast to the buffer's type, are applied at the
    end. ``initial`` defaults to the neutral element; ``structure`` is what the stage is said to be.
    """
    axes = variables(len(buffer.shape))
    reduced = reduction_axes(extents, prefix)
    summand = value(axes, tuple(axis.variable for axis in reduced))
    operator = of_type(operator, summand.type.dtype)
    start = initial if initial is not None else neutral(operator, summand.type.dtype)
    reduction = ir.Reduction(operator, reduced, start)
    if epilogue is None and summand.type.dtype == buffer.dtype:
        return ir.Stage(buffer, axes, summand, reduction, structure=structure)
    total = ir.Variable("total", summand.type)
    result = epilogue(total) if epilogue is not None else total
    return ir.Stage(buffer, axes, summand, reduction, total, cast(result, buffer.dtype), structure=structure)


def contract(
    buffer: ir.Buffer,
    extents: Sequence[Count],
    value: Callable[[tuple[ir.Variable, ...], tuple[ir.Variable, ...]], ir.Expression],
    structure: Contraction | Window | None = None,
) -> ir.Stage:
    """Return the stage that sums products ``value(axes, terms)``; by default it is said to be no more than that."""
    return reduce(buffer, "add", extents, value, structure=structure or Contraction())


def neutral(operator: ir.BinaryOperator, dtype: str) -> ir.Constant:
    """Return the neutral element of a reduction."""
    match operator:
        case "add" | "or":
            return constant(0, dtype)
        case "mul" | "and":
            return constant(1, dtype)
        case "min":
            return highest(dtype)
        case "max":
            return lowest(dtype)
    raise AssertionError(f"'{operator}' does not reduce")
