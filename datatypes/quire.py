"""The quire: exact sums of products, rounded once.

The Posit Standard's quire is one long fixed-point number. Here it is cut into *bins*: float64 accumulators, each of
which collects the part of every product between two powers of two. A bin is as wide as leaves room for the carries of
all terms, so no addition rounds: sums are exact, whatever their order, and every schedule may split them. A product of
more than 53 bits is two terms: the float64 nearest to it and the rest. At the end the bins are carried over into each
other as integers and rounded to odd, then to the format. A bias is one more term of the sum, and constant factors of
the sum and of the bias (``alpha`` and ``beta`` of a Gemm, numbers of the format) are factors of the terms. An infinity,
where the format has one, stays in the last bin: it is the sum's, and two of both signs are NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np

from graft.core.operators.definition import build as b
from graft.core.tensor_ir.arithmetic.exact_rounding import add_to_odd, fused
from graft.core.tensor_ir.ir import Binary, Buffer, Cast, Constant, Expression, Load, Reduction, Stage, Variable
from graft.core.tensor_ir.scalar_math import Value, select
from graft.core.tensor_ir.visit import ExpressionMap, children, free_variables, substitute, walk_expressions
from graft.core.types import Type
from graft.datatypes.compute_type import converted, format_of
from graft.datatypes.formats import Format
from graft.datatypes.registry import DatatypeRegistry
from graft.errors import DatatypeError


@dataclass(frozen=True)
class Quire:
    """The bins of a format's products: multiples of ``2**bases[i]`` below ``2**bases[i + 1]``, lowest first."""

    width: int
    bases: tuple[int, ...]
    infinite: bool
    """Whether infinity is a number of the format."""

    @classmethod
    def of(cls, format: Format, terms: int, alpha: float = 1.0, beta: float = 1.0) -> Quire:
        """Return the bins for sums of ``terms`` parts: of products times ``alpha``, of numbers times ``beta``."""
        low = math.frexp(format.unit)[1] - 1
        high = math.frexp(max(format.largest, -format.lowest))[1]
        # The least bit of a product is at least the product of the least bits.
        first = max(min(2 * low + _lowest_bit(alpha), low, low + _lowest_bit(beta)), -1020)
        last = max(2 * high + math.frexp(alpha)[1], high, high + math.frexp(beta)[1])
        width = 52 - max(terms, 2).bit_length()
        count = -(-(last - first) // width)
        bases = tuple(first + number * width for number in range(count))
        return cls(width, bases, format.has_infinity_value)

    def part(self, product: Value, number: int) -> Value:
        """Return the part of a product that bin ``number`` collects."""
        below = self._above(product, number)
        if number == len(self.bases) - 1:
            return below
        part = below - self._above(product, number + 1)
        # Infinity and NaN go into the last bin alone.
        return select(part.equals(part), part, part.constant(0.0)) if self.infinite else part

    def _above(self, product: Value, number: int) -> Value:
        """Return the product rounded to a multiple of a bin's base; it is one already if it is large or the first."""
        if number == 0:
            return product
        anchor = 1.5 * 2.0 ** (52 + self.bases[number])
        rounded = (product + anchor) - anchor
        return select(abs(product) < 2.0 ** (50 + self.bases[number]), rounded, product)

    def total(self, bins: list[Value]) -> Value:
        """Return the sum of all bins, rounded to odd."""
        units = [one * 2.0**-base for one, base in zip(bins, self.bases, strict=True)]
        whole = [unit.cast("int64") for unit in units]
        mask = (1 << self.width) - 1
        for place, following in pairwise(range(len(whole))):
            carry = whole[place] >> self.width
            whole[following] = whole[following] + carry
            whole[place] = whole[place] & mask
        negative = whole[-1] < 0
        digits = [select(negative, -one, one) for one in whole]
        for place, following in pairwise(range(len(digits))):
            carry = digits[place] >> self.width
            digits[following] = digits[following] + carry
            digits[place] = digits[place] & mask
        size = digits[-1].cast("float64") * 2.0 ** self.bases[-1]
        for digit, base in reversed(list(zip(digits[:-1], self.bases[:-1], strict=True))):
            size = add_to_odd(size, digit.cast("float64") * 2.0**base)
        invalid = bins[0].differs(bins[0])
        for one in bins[1:]:
            invalid = invalid | one.differs(one)
        total = select(invalid, math.nan, select(negative, -size, size))
        return select(abs(bins[-1]).equals(math.inf), bins[-1], total) if self.infinite else total


def quire_stages(stage: Stage, registry: DatatypeRegistry) -> list[Stage]:
    """Return a prepared ``add`` reduction of decoded values as one reduction per bin and the rounding of their sum."""
    reduction, kind = stage.reduction, stage.value.type
    format = format_of(registry, kind.dtype)
    assert reduction is not None, "a quire sums"
    assert format is not None, kind
    assert stage.epilogue is not None and stage.epilogue_variable is not None, "prepared without epilogue"
    within = _within(stage.epilogue, stage.epilogue_variable, format)
    parts = _exact_product(stage.value, format, within.alpha)
    added = [] if within.addend is None else _exact_number(within.addend, format, within.beta)
    added += [] if _is_zero(reduction.initial) else _exact_number(reduction.initial, format, within.alpha)
    terms = math.prod(int(axis.extent.value) for axis in reduction.axes if isinstance(axis.extent, Constant))
    quire = Quire.of(format, len(parts) * terms + len(added), within.alpha, within.beta)
    start = Constant(0.0, Type("float64"))
    stages: list[Stage] = []
    bins: list[Buffer] = []
    for number in range(len(quire.bases)):
        buffer = Buffer(f"{stage.buffer.name}_bin{number}", "float64", stage.buffer.shape, memory="scratch")
        axes = b.variables(len(stage.axes))
        inner = tuple(replace(axis, variable=Variable(axis.variable.name)) for axis in reduction.axes)
        names: dict[Variable, Expression] = dict(zip(stage.axes, axes, strict=True))
        names |= {old.variable: new.variable for old, new in zip(reduction.axes, inner, strict=True)}
        part = reduce(add, (quire.part(one, number) for one in parts))
        value = substitute(part.expression, names)
        stages.append(Stage(buffer, axes, value, Reduction("add", inner, start), origin=stage.origin))
        bins.append(buffer)
    sums = [Value(Load(buffer, stage.axes)) for buffer in bins]
    sums = [reduce(add, (one, *(quire.part(term, number) for term in added))) for number, one in enumerate(sums)]
    rounded = Cast(quire.total(sums).expression, kind.dtype)
    value = substitute(within.rest, {stage.epilogue_variable: rounded})
    stages.append(Stage(stage.buffer, stage.axes, value, origin=stage.origin))
    return stages


@dataclass(frozen=True)
class _Within:
    """What of an epilogue a quire computes before it rounds, ``alpha * total + beta * addend``, and the ``rest``."""

    rest: Expression
    alpha: float = 1.0
    addend: Expression | None = None
    beta: float = 1.0


def _within(epilogue: Expression, total: Variable, format: Format) -> _Within:
    """Return what a quire computes of an epilogue: a constant factor of the total, then what is added to that.

    An operator whose value is the exact total itself, rounded, has nothing of this.
    """
    found, node, alpha = _Within(epilogue), total, 1.0
    match _only_parent(epilogue, node):
        case Binary("mul", left, right) as product if factor := _constant(right if left is node else left, format):
            rest = ExpressionMap(lambda one: total if one is product else one)(epilogue)
            found, alpha = _Within(rest, factor), factor
    match _only_parent(found.rest, total):
        case Binary("add", left, right) as sum if (left is total) != (right is total):
            addend, beta = right if left is total else left, 1.0
            if total in free_variables(addend):
                return found
            if isinstance(addend, Binary) and addend.operator == "mul":
                pair = addend.left, addend.right
                for number, factor in zip(reversed(pair), (_constant(one, format) for one in pair), strict=True):
                    if factor:
                        addend, beta = number, factor
                        break
            rest = ExpressionMap(lambda one: total if one is sum else one)(found.rest)
            return _Within(rest, alpha, addend, beta)
    return found


def _only_parent(root: Expression, node: Expression) -> Expression | None:
    parents = [one for one in walk_expressions(root) if any(child is node for child in children(one))]
    return parents[0] if len(parents) == 1 else None


def _constant(expression: Expression, format: Format) -> float:
    """Return the number of the format that a constant stands for; 0 for what is none, and for what is not finite."""
    if not isinstance(expression, Constant):
        return 0.0
    number = float(format.to_numbers(format.to_bits(np.array([float(expression.value)])))[0])
    return number if math.isfinite(number) else 0.0


def _is_zero(expression: Expression) -> bool:
    return isinstance(expression, Constant) and expression.value == 0


def _lowest_bit(number: float) -> int:
    """Return the exponent of the lowest bit that is set in a number other than 0."""
    numerator, denominator = number.as_integer_ratio()
    return (numerator & -numerator).bit_length() - denominator.bit_length()


def _pieces(factor: float, bits: int) -> list[float]:
    """Return numbers of at most so many significant bits whose sum a constant is."""
    pieces = []
    while factor:
        exponent = math.frexp(factor)[1] - bits
        pieces.append(math.ldexp(math.trunc(math.ldexp(factor, -exponent)), exponent))
        factor -= pieces[-1]
    return pieces


def _exact_product(value: Expression, format: Format, factor: float = 1.0) -> list[Value]:
    """Return terms (float64) whose sum is ``factor`` times a term of the sum, a number or a product, exactly.

    A number has at most as many significant bits as the format has bits, so that a number times a piece of the factor
    is exact in 53, and times another number is two floats.
    """
    if not isinstance(value, Binary) or value.operator != "mul":
        return _exact_number(value, format, factor)
    left, right = Value(converted(value.left, "float64")), Value(converted(value.right, "float64"))
    terms: list[Value] = []
    for piece in _pieces(factor, 53 - format.bits):
        scaled = left if piece == 1.0 else left * piece
        product = scaled * right
        terms.append(product)
        if format.needs_odd or 2 * format.bits + _significant(piece) > 54:
            terms.append(fused(scaled, right, -product))
    return terms


def _exact_number(value: Expression, format: Format, factor: float) -> list[Value]:
    """Return terms (float64) whose sum is ``factor`` times a number of the format, exactly."""
    number = Value(converted(value, "float64"))
    return [number if piece == 1.0 else number * piece for piece in _pieces(factor, 53 - format.bits)]


def _significant(number: float) -> int:
    """Return how many significant bits a number other than 0 has."""
    return math.frexp(number)[1] - _lowest_bit(number)


def require_quire(dtype: str, registry: DatatypeRegistry) -> None:
    """Raise DatatypeError if sums of products of a custom type have no exact accumulator."""
    format = registry.format(dtype)
    if format is None:
        raise DatatypeError(
            f"a quire needs a format, and {dtype} has only lowerings; accumulate in 'each' operation or in a type",
            datatype=dtype,
        )
    if not format.has_quire:
        raise DatatypeError(
            f"{dtype} has no quire: its numbers are no multiples of one number; accumulate in 'float64'", datatype=dtype
        )
