"""Arithmetic, comparison, logic and mathematical functions, element by element with broadcasting."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from functools import reduce as fold

import numpy as np
from onnx import TensorProto

from graft.core.affine import expressions as extents
from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition import shape_rules
from graft.core.operators.definition.adjoint import NARROW, nowhere
from graft.core.operators.definition.cost import per_output
from graft.core.operators.definition.facts import Facts, IdentityRule
from graft.core.operators.definition.function_body import Body
from graft.core.operators.definition.table import LowerFunction, Lowering, Trait, define
from graft.core.operators.elementwise import contents as known
from graft.core.operators.elementwise import derivatives as derivative
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Bitcast, Constant, Expression, Stage
from graft.core.types import FLOATS, SIGNED, UNSIGNED, element_bits, is_custom

ELEMENTWISE = frozenset({Trait.ELEMENTWISE})
SELECTING = ELEMENTWISE | {Trait.SELECTING}
COMMUTATIVE = ELEMENTWISE | {Trait.COMMUTATIVE}
ASSOCIATIVE = COMMUTATIVE | {Trait.ASSOCIATIVE}
Function1 = Callable[[Expression], Expression]
Function2 = Callable[[Expression, Expression], Expression]


def unary(function: Function1) -> LowerFunction:
    """Lower to one stage ``y = function(x)``; 16-bit floats are computed in float32 and rounded once."""

    def lower(lowering: Lowering) -> tuple[Stage, ...]:
        source = lowering.input(0)

        def value(axes: tuple[Expression, ...]) -> Expression:
            return function(b.cast(b.load(source, *axes), b.wide(source.dtype)))

        return (b.compute(lowering.output(), value),)

    return lower


def binary(function: Function2) -> LowerFunction:
    """Lower to one stage ``z = function(x, y)`` with broadcasting."""

    def lower(lowering: Lowering) -> tuple[Stage, ...]:
        x, y = lowering.input(0), lowering.input(1)
        target, shape = lowering.output(), b.extents(lowering.output())
        return (b.compute(target, lambda i: function(b.broadcast(x, i, shape), b.broadcast(y, i, shape))),)

    return lower


def variadic(function: Function2, finish: Callable[[Expression, int], Expression] | None = None) -> LowerFunction:
    """Lower to one stage that folds all inputs with ``function`` from the left."""

    def lower(lowering: Lowering) -> tuple[Stage, ...]:
        buffers = [lowering.input(number) for number in range(len(lowering.inputs))]
        shape = b.extents(lowering.output())

        def value(axes: tuple[Expression, ...]) -> Expression:
            kind = b.wide(buffers[0].dtype)
            total = fold(function, (b.cast(b.broadcast(buffer, axes, shape), kind) for buffer in buffers))
            return finish(total, len(buffers)) if finish else total

        return (b.compute(lowering.output(), value),)

    return lower


def called(name: str) -> Function1:
    """Return the function that applies an intrinsic."""
    return lambda x: b.intrinsic(name, x)


define_unary = partial(define, traits=ELEMENTWISE, cost=per_output(1), shapes=shape_rules.LIKE_FIRST)
define_broadcasting = partial(
    define, traits=ELEMENTWISE, cost=per_output(1), demands=demand.broadcasting(), shapes=shape_rules.broadcasted,
    bounds=shape_rules.broadcasted_bounds,
)  # fmt: skip


# ---- One input ----------------------------------------------------------------------------------------------------


def sign(x: Expression) -> Expression:
    """Return -1, 0 or 1; NaN for NaN."""
    negative = b.select(b.less(x, 0), b.constant(-1, x.type.dtype), x) if x.type.dtype not in UNSIGNED else x
    if x.type.is_custom:  # whose NaN may be less than 0
        negative = b.select(b.is_nan(x), x, negative)
    return b.select(b.greater(x, 0), 1, negative)


def absolute(x: Expression) -> Expression:
    """Return the magnitude; an unsigned integer is its own."""
    return x if x.type.dtype in UNSIGNED else b.unary("abs", x)


define_unary("Abs", lower=unary(absolute), traits=SELECTING, contents=known.absolute, vjp=derivative.magnitude)
define_unary(
    "Neg", lower=unary(lambda x: b.unary("neg", x)), traits=SELECTING, contents=known.negated, vjp=derivative.negated
)
_rounded = partial(define_unary, traits=SELECTING, contents=shape_rules.same, vjp=nowhere)
_rounded("Ceil", lower=unary(lambda x: b.unary("ceil", x)))
_rounded("Floor", lower=unary(lambda x: b.unary("floor", x)))
_rounded("Round", lower=unary(lambda x: b.unary("round_even", x)))
define_unary("Sqrt", lower=unary(lambda x: b.unary("sqrt", x)), vjp=derivative.square_root)
define_unary("Reciprocal", lower=unary(lambda x: b.divide(1, x)), vjp=derivative.reciprocal)
define_unary("Sign", lower=unary(sign), traits=SELECTING, vjp=nowhere)
define_unary("Not", lower=unary(lambda x: b.unary("not", x)), contents=known.opposite_truth)
define_unary("BitwiseNot", lower=unary(lambda x: b.unary("bitnot", x)))
define_unary("IsNaN", lower=unary(b.is_nan))
INTRINSICS = {
    "Exp": 8, "Log": 8, "Erf": 12, "Sin": 12, "Cos": 12, "Tan": 16, "Asin": 12, "Acos": 12, "Atan": 12, "Sinh": 12,
    "Cosh": 12, "Asinh": 16, "Acosh": 16, "Atanh": 12,
}  # fmt: skip
"""Functions of one number, with the operations that one costs."""
for _name, _flops in INTRINSICS.items():
    define_unary(_name, lower=unary(called(_name.lower())), cost=per_output(_flops), vjp=derivative.FUNCTIONS[_name])


def _lower_is_inf(lowering: Lowering) -> tuple[Stage, ...]:
    positive = lowering.node.attribute("detect_positive", 1)
    negative = lowering.node.attribute("detect_negative", 1)

    def function(x: Expression) -> Expression:
        no = b.constant(False, "bool")
        above = b.equal(x, float("inf")) if positive else no
        below = b.equal(x, float("-inf")) if negative else no
        return b.either(above, below)

    return unary(function)(lowering)


define_unary("IsInf", lower=_lower_is_inf)

# ---- Two inputs ---------------------------------------------------------------------------------------------------


def remainder(x: Expression, y: Expression) -> Expression:
    """Return the remainder with the sign of the divisor (Python's ``%``)."""
    rest = b.binary("fmod" if x.type.is_float else "mod", x, y)
    if x.type.dtype in UNSIGNED:
        return rest
    differs = b.both(b.not_equal(rest, 0), b.not_equal(b.less(rest, 0), b.less(y, 0)))
    return b.select(differs, b.add(rest, y), rest)


def _lower_mod(lowering: Lowering) -> tuple[Stage, ...]:
    c_like = lowering.node.attribute("fmod", 0)

    def function(x: Expression, y: Expression) -> Expression:
        kind = b.wide(x.type.dtype)
        x, y = b.cast(x, kind), b.cast(y, kind)
        return b.binary("fmod" if x.type.is_float else "mod", x, y) if c_like else remainder(x, y)

    return binary(function)(lowering)


def _lower_bit_shift(lowering: Lowering) -> tuple[Stage, ...]:
    left = lowering.node.attribute("direction") == "LEFT"
    bits = element_bits(lowering.input(0).dtype)

    def function(x: Expression, y: Expression) -> Expression:
        shifted = b.binary("shl" if left else "shr", x, b.minimum(y, bits - 1))
        return b.select(b.less(y, bits), shifted, 0) if left or x.type.dtype not in SIGNED else shifted

    return binary(function)(lowering)


def prelu(x: Expression, slope: Expression) -> Expression:
    """Return x, or ``slope * x`` where it is negative."""
    return b.select(b.less(x, 0), b.multiply(x, slope), x)


def _neutral(number: int, more: Callable[[np.ndarray], bool] = lambda operand: True) -> IdentityRule:
    """Return the rule that the second operand is this number everywhere, and what else must hold of it."""

    def rule(facts: Facts) -> bool:
        operand = facts.view.input(1)
        array = None if operand is None else operand.constant
        return (
            facts.keeps_shape and array is not None and array.size > 0 and bool((array == number).all()) and more(array)
        )

    return rule


def _is_integer(operand: np.ndarray) -> bool:
    return operand.dtype.kind in "iu"  # a float -0.0 + 0 would change


def _is_positive(operand: np.ndarray) -> bool:
    return not bool(np.signbit(operand).any())


def _times_reciprocal(f: Body) -> None:
    f.require(f.dtype(f.input(0)) in {TensorProto.FLOAT, TensorProto.DOUBLE, *NARROW}, "of whole numbers")
    f.give(0, f("Mul", f.input(0), f("Reciprocal", f.input(1))))


define_broadcasting(
    "Add",
    lower=binary(b.add),
    traits=ASSOCIATIVE | {Trait.QUANTIZABLE},
    contents=shape_rules.each(extents.add),
    identity=_neutral(0, _is_integer),
    vjp=derivative.added,
)
define_broadcasting(
    "Sub", lower=binary(b.subtract), contents=shape_rules.each(extents.subtract), identity=_neutral(0, _is_positive),
    vjp=derivative.subtracted,
)  # fmt: skip
define_broadcasting(
    "Mul",
    lower=binary(b.multiply),
    traits=ASSOCIATIVE,
    contents=shape_rules.each(extents.multiply),
    identity=_neutral(1),
    vjp=derivative.product,
)
define_broadcasting(
    "Div", lower=binary(b.divide), contents=known.divide, bounds=known.divisor, identity=_neutral(1),
    vjp=derivative.quotient, function=_times_reciprocal,
)  # fmt: skip
define_broadcasting("And", lower=binary(b.both), traits=ASSOCIATIVE, contents=shape_rules.each(operator.and_))
define_broadcasting("Or", lower=binary(b.either), traits=ASSOCIATIVE, contents=shape_rules.each(operator.or_))
define_broadcasting("Xor", lower=binary(lambda x, y: b.binary("xor", x, y)), traits=ASSOCIATIVE)
define_broadcasting("BitwiseAnd", lower=binary(b.both), traits=ASSOCIATIVE)
define_broadcasting("BitwiseOr", lower=binary(b.either), traits=ASSOCIATIVE)
define_broadcasting("BitwiseXor", lower=binary(lambda x, y: b.binary("xor", x, y)), traits=ASSOCIATIVE)
define_broadcasting("Equal", lower=binary(b.equal), traits=COMMUTATIVE, contents=known.is_equal)
define_broadcasting("Less", lower=binary(b.less), contents=known.compared(known.less))
define_broadcasting("Greater", lower=binary(b.greater), contents=known.compared(known.greater))
define_broadcasting("LessOrEqual", lower=binary(b.less_equal), contents=known.compared(known.opposite(known.greater)))
define_broadcasting(
    "GreaterOrEqual", lower=binary(b.greater_equal), contents=known.compared(known.opposite(known.less))
)
define_unary("PRelu", lower=binary(prelu), demands=demand.expanding(1, 0), vjp=derivative.prelu)
define_broadcasting(
    "Mod", lower=_lower_mod, cost=per_output(4), contents=known.modulo, bounds=known.divisor, vjp=derivative.remainder
)
define_broadcasting("BitShift", lower=_lower_bit_shift, attributes=(check.one_of("direction", "LEFT", "RIGHT"),))

# ---- Pow ----------------------------------------------------------------------------------------------------------


def integer_power(x: Expression, exponent: int) -> Expression:
    """Return ``x ** exponent`` for a small constant exponent by repeated squaring."""
    if exponent < 0:
        return b.divide(1, integer_power(x, -exponent))
    if exponent == 0:
        return b.select(b.equal(x, x), b.constant(1, x.type.dtype), 1)
    half = integer_power(x, exponent // 2) if exponent > 1 else None
    if half is None:
        return x
    square = b.multiply(half, half)
    return b.multiply(square, x) if exponent % 2 else square


def whole_power(x: Expression, exponent: Expression) -> Expression:
    """Return ``x ** exponent`` of an integer for an int64 exponent, wrapping: one factor per bit of the exponent.

    From 2^16 on an exponent counts as the largest below of the same parity, which changes odd bases beyond 1 only.
    """
    exponent = b.maximum(exponent, 0)
    bounded = b.minimum(exponent, b.add(b.modulo(exponent, 2), (1 << 16) - 2))
    square: Expression = x
    result: Expression = b.constant(1, x.type.dtype)
    for bit in range(16):
        odd = b.equal(b.modulo(b.divide(bounded, 1 << bit), 2), 1)
        result = b.multiply(result, b.select(odd, square, 1))
        square = b.multiply(square, square)
    return result


def _small_exponent(lowering: Lowering) -> int | None:
    """The exponent if it is one constant whole number of magnitude 1 to 4 and the base can be multiplied up exactly."""
    value = lowering.constant(1)
    if value is None or value.size != 1:
        return None
    exponent = float(value.reshape(-1)[0])
    least = -2 if lowering.input(0).dtype in FLOATS else 1
    whole = np.isfinite(exponent) and exponent == int(exponent)
    return int(exponent) if whole and least <= exponent <= 4 and exponent != 0 else None


def _lower_pow(lowering: Lowering) -> tuple[Stage, ...]:
    base, exponent = lowering.input(0), lowering.input(1)
    whole = _small_exponent(lowering)
    kind, shape = b.wide(base.dtype), b.extents(lowering.output())

    def value(axes: tuple[Expression, ...]) -> Expression:
        x = b.broadcast(base, axes, shape)
        if whole is not None:
            return integer_power(b.cast(x, kind), whole)
        y = b.broadcast(exponent, axes, shape)
        if kind in FLOATS or is_custom(kind):
            return b.intrinsic("pow", b.cast(x, kind), b.cast(y, kind))
        if y.type.is_integer:
            return whole_power(x, b.cast(y, "int64"))
        # An error of one place must not take 729.0 to 728: the result is cut off to an integer.
        return b.multiply(b.intrinsic("pow", b.cast(x, "float64"), b.cast(y, "float64")), 1 + 2.0**-48)

    return (b.compute(lowering.output(), value),)


define_broadcasting("Pow", lower=_lower_pow, cost=per_output(16), vjp=derivative.power)

# ---- Any number of inputs -----------------------------------------------------------------------------------------


def _mean_of(total: Expression, count: int) -> Expression:
    return b.multiply(total, 1.0 / count) if count in (1, 2, 4, 8) else b.divide(total, float(count))


_joint = partial(define_broadcasting, traits=ASSOCIATIVE, identity=shape_rules.is_alone)
_extreme = partial(_joint, traits=ASSOCIATIVE | SELECTING, vjp=derivative.extreme)
_extreme("Min", lower=variadic(b.minimum), contents=shape_rules.each(extents.minimum))
_extreme("Max", lower=variadic(b.maximum), contents=shape_rules.each(extents.maximum))
_joint("Sum", lower=variadic(b.add), contents=shape_rules.each(extents.add), vjp=derivative.total)
_joint("Mean", lower=variadic(b.add, _mean_of), cost=per_output(2), traits=COMMUTATIVE, vjp=derivative.mean)


def _lower_where(lowering: Lowering) -> tuple[Stage, ...]:
    condition, x, y = lowering.input(0), lowering.input(1), lowering.input(2)
    shape = b.extents(lowering.output())

    def value(axes: tuple[Expression, ...]) -> Expression:
        return b.select(*(b.broadcast(buffer, axes, shape) for buffer in (condition, x, y)))

    return (b.compute(lowering.output(), value),)


def _lower_clip(lowering: Lowering) -> tuple[Stage, ...]:
    source, low, high = lowering.input(0), lowering.optional(1), lowering.optional(2)

    def value(axes: tuple[Expression, ...]) -> Expression:
        x = b.load(source, *axes)
        if low is not None:
            x = b.maximum(x, bound(lowering, 1))
        return x if high is None else b.minimum(x, bound(lowering, 2))

    return (b.compute(lowering.output(), value),)


def bound(lowering: Lowering, number: int) -> Expression:
    """Return the scalar input ``number``: a constant if it is known, else a load."""
    buffer, known = lowering.input(number), lowering.constant(number)
    if known is not None and known.size == 1:
        return scalar(known, buffer.dtype)
    return b.load(buffer, *(0 for _ in buffer.shape))


def scalar(array: np.ndarray, dtype: str) -> Constant:
    """Return the only element of ``array`` as a constant."""
    value = array.reshape(-1)[0]
    return b.constant(bool(value) if dtype == "bool" else value.item(), dtype)


define_broadcasting("Where", lower=_lower_where, traits=SELECTING, contents=known.where, vjp=derivative.chosen)
define_unary(
    "Clip", traits=SELECTING, lower=_lower_clip, cost=per_output(2), contents=known.clip, vjp=derivative.clipped
)

# ---- Casts --------------------------------------------------------------------------------------------------------


def _lower_cast(lowering: Lowering) -> tuple[Stage, ...]:
    source = lowering.input(0)
    return (b.compute(lowering.output(), lambda axes: b.load(source, *axes)),)


def _lower_bit_cast(lowering: Lowering) -> tuple[Stage, ...]:
    source, target = lowering.input(0), lowering.output().dtype
    if source.dtype == "bool":  # a byte that is 0 or 1
        return (b.compute(lowering.output(), lambda axes: b.load(source, *axes)),)
    return (b.compute(lowering.output(), lambda axes: Bitcast(b.load(source, *axes), target)),)


def _accept_bit_cast(node: NodeView) -> Reject | None:
    source, target = node.dtype, node.outputs[0].dtype
    if target == "bool" and source != "bool":
        return Reject("dtype", f"BitCast of {source} to {target}: bool has no bits of its own")
    if element_bits(source) != element_bits(target):
        return Reject("dtype", f"BitCast of {source} to {target} changes the number of elements")
    return None


def _keeps_type(facts: Facts) -> bool:
    source, output = facts.view.node.inputs[0], facts.view.node.outputs[0]
    return source is not None and source.dtype is not None and source.dtype == output.dtype


define_unary(
    "Cast", lower=_lower_cast, contents=known.cast, identity=_keeps_type, vjp=derivative.converted,
    attributes=(check.one_of("round_mode", "up", "down", "nearest"),),
)  # fmt: skip
define_unary("CastLike", lower=_lower_cast, identity=_keeps_type, vjp=derivative.converted)
define("BitCast", ELEMENTWISE, _lower_bit_cast, per_output(0), _accept_bit_cast)
