"""Arithmetic, comparison, logic and mathematical functions, element by element with broadcasting."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce as fold

import numpy as np

from graft.core.affine import expressions as extents
from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.operators.definition import checks as check
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition import shape_rules
from graft.core.operators.definition.cost import per_output
from graft.core.operators.definition.facts import BoundsRule, ContentsRule, Facts, IdentityRule
from graft.core.operators.definition.table import LowerFunction, Lowering, Trait, define
from graft.core.operators.elementwise import contents as known
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


def _add_unary(
    name: str,
    function: Function1,
    flops: int = 1,
    traits: frozenset[Trait] = ELEMENTWISE,
    contents: ContentsRule | None = None,
) -> None:
    define(name, traits, unary(function), per_output(flops), shapes=shape_rules.LIKE_FIRST, contents=contents)


def _add_broadcasting(
    name: str,
    lower: LowerFunction,
    flops: int = 1,
    traits: frozenset[Trait] = ELEMENTWISE,
    contents: ContentsRule | None = None,
    bounds: BoundsRule = shape_rules.broadcasted_bounds,
    identity: IdentityRule | None = None,
) -> None:
    define(
        name, traits, lower, per_output(flops), demands=demand.broadcasting(),
        shapes=shape_rules.broadcasted, contents=contents, bounds=bounds, identity=identity,
    )  # fmt: skip


def _add_binary(
    name: str,
    function: Function2,
    traits: frozenset[Trait] = ELEMENTWISE,
    contents: ContentsRule | None = None,
    bounds: BoundsRule = shape_rules.broadcasted_bounds,
    identity: IdentityRule | None = None,
) -> None:
    _add_broadcasting(name, binary(function), 1, traits, contents, bounds, identity)


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


_add_unary("Abs", absolute, traits=SELECTING, contents=known.absolute)
_add_unary("Neg", lambda x: b.unary("neg", x), traits=SELECTING, contents=known.negated)
_add_unary("Ceil", lambda x: b.unary("ceil", x), traits=SELECTING, contents=shape_rules.same)
_add_unary("Floor", lambda x: b.unary("floor", x), traits=SELECTING, contents=shape_rules.same)
_add_unary("Round", lambda x: b.unary("round_even", x), traits=SELECTING, contents=shape_rules.same)
_add_unary("Sqrt", lambda x: b.unary("sqrt", x))
_add_unary("Reciprocal", lambda x: b.divide(1, x))
_add_unary("Sign", sign, traits=SELECTING)
_add_unary("Not", lambda x: b.unary("not", x), contents=known.opposite_truth)
_add_unary("BitwiseNot", lambda x: b.unary("bitnot", x))
_add_unary("IsNaN", b.is_nan)
_add_unary("Exp", called("exp"), 8)
_add_unary("Log", called("log"), 8)
_add_unary("Erf", called("erf"), 12)
_add_unary("Sin", called("sin"), 12)
_add_unary("Cos", called("cos"), 12)
_add_unary("Tan", called("tan"), 16)
_add_unary("Asin", called("asin"), 12)
_add_unary("Acos", called("acos"), 12)
_add_unary("Atan", called("atan"), 12)
_add_unary("Sinh", called("sinh"), 12)
_add_unary("Cosh", called("cosh"), 12)
_add_unary("Asinh", called("asinh"), 16)
_add_unary("Acosh", called("acosh"), 16)
_add_unary("Atanh", called("atanh"), 12)


def _lower_is_inf(lowering: Lowering) -> tuple[Stage, ...]:
    positive = lowering.node.attribute("detect_positive", 1)
    negative = lowering.node.attribute("detect_negative", 1)

    def function(x: Expression) -> Expression:
        no = b.constant(False, "bool")
        above = b.equal(x, float("inf")) if positive else no
        below = b.equal(x, float("-inf")) if negative else no
        return b.either(above, below)

    return _stages(unary(function)(lowering))


def _stages(result: object) -> tuple[Stage, ...]:
    assert isinstance(result, tuple)
    return result


define("IsInf", ELEMENTWISE, _lower_is_inf, per_output(1), shapes=shape_rules.LIKE_FIRST)

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

    return _stages(binary(function)(lowering))


def _lower_bit_shift(lowering: Lowering) -> tuple[Stage, ...]:
    left = lowering.node.attribute("direction") == "LEFT"
    bits = element_bits(lowering.input(0).dtype)

    def function(x: Expression, y: Expression) -> Expression:
        shifted = b.binary("shl" if left else "shr", x, b.minimum(y, bits - 1))
        return b.select(b.less(y, bits), shifted, 0) if left or x.type.dtype not in SIGNED else shifted

    return _stages(binary(function)(lowering))


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


_add_binary("Add", b.add, ASSOCIATIVE, contents=shape_rules.each(extents.add), identity=_neutral(0, _is_integer))
_add_binary("Sub", b.subtract, contents=shape_rules.each(extents.subtract), identity=_neutral(0, _is_positive))
_add_binary("Mul", b.multiply, ASSOCIATIVE, contents=shape_rules.each(extents.multiply), identity=_neutral(1))
_add_binary("Div", b.divide, contents=known.divide, bounds=known.divisor, identity=_neutral(1))
_add_binary("And", b.both, ASSOCIATIVE, contents=shape_rules.each(operator.and_))
_add_binary("Or", b.either, ASSOCIATIVE, contents=shape_rules.each(operator.or_))
_add_binary("Xor", lambda x, y: b.binary("xor", x, y), ASSOCIATIVE)
_add_binary("BitwiseAnd", b.both, ASSOCIATIVE)
_add_binary("BitwiseOr", b.either, ASSOCIATIVE)
_add_binary("BitwiseXor", lambda x, y: b.binary("xor", x, y), ASSOCIATIVE)
_add_binary("Equal", b.equal, COMMUTATIVE, contents=known.is_equal)
_add_binary("Less", b.less, contents=known.compared(known.less))
_add_binary("Greater", b.greater, contents=known.compared(known.greater))
_add_binary("LessOrEqual", b.less_equal, contents=known.compared(known.opposite(known.greater)))
_add_binary("GreaterOrEqual", b.greater_equal, contents=known.compared(known.opposite(known.less)))
define(
    "PRelu", ELEMENTWISE, binary(prelu), per_output(1), demands=demand.expanding(1, 0),
    shapes=shape_rules.LIKE_FIRST,
)  # fmt: skip
_add_broadcasting("Mod", _lower_mod, 4, contents=known.modulo, bounds=known.divisor)
define(
    "BitShift", ELEMENTWISE, _lower_bit_shift, per_output(1), demands=demand.broadcasting(),
    shapes=shape_rules.broadcasted, bounds=shape_rules.broadcasted_bounds,
    attributes=(check.one_of("direction", "LEFT", "RIGHT"),),
)  # fmt: skip

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


_add_broadcasting("Pow", _lower_pow, 16)

# ---- Any number of inputs -----------------------------------------------------------------------------------------


def _mean_of(total: Expression, count: int) -> Expression:
    return b.multiply(total, 1.0 / count) if count in (1, 2, 4, 8) else b.divide(total, float(count))


_add_broadcasting(
    "Min",
    variadic(b.minimum),
    traits=ASSOCIATIVE | SELECTING,
    contents=shape_rules.each(extents.minimum),
    identity=shape_rules.is_alone,
)
_add_broadcasting(
    "Max",
    variadic(b.maximum),
    traits=ASSOCIATIVE | SELECTING,
    contents=shape_rules.each(extents.maximum),
    identity=shape_rules.is_alone,
)
_add_broadcasting(
    "Sum", variadic(b.add), traits=ASSOCIATIVE, contents=shape_rules.each(extents.add), identity=shape_rules.is_alone
)
_add_broadcasting("Mean", variadic(b.add, _mean_of), 2, COMMUTATIVE, identity=shape_rules.is_alone)


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


_add_broadcasting("Where", _lower_where, traits=SELECTING, contents=known.where)
define("Clip", SELECTING, _lower_clip, per_output(2), shapes=shape_rules.LIKE_FIRST, contents=known.clip)

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


define(
    "Cast", ELEMENTWISE, _lower_cast, per_output(1),
    shapes=shape_rules.LIKE_FIRST, contents=known.cast, identity=_keeps_type,
    attributes=(check.one_of("round_mode", "up", "down", "nearest"),),
)  # fmt: skip
define("CastLike", ELEMENTWISE, _lower_cast, per_output(1), shapes=shape_rules.LIKE_FIRST, identity=_keeps_type)
define("BitCast", ELEMENTWISE, _lower_bit_cast, per_output(0), _accept_bit_cast)
