"""The quire: exact sums of products, rounded once.

The Posit Standard's quire is one long fixed-point number. Here it is cut into *bins*: float64 accumulators, each of
which collects the part of every product between two powers of two. A bin is as wide as leaves room for the carries of
all terms, so no addition rounds: sums are exact, whatever their order, and every schedule may split them. A product of
more than 53 bits is two terms: the float64 nearest to it and the rest. At the end the bins are carried over into each
other as integers and rounded to odd, then to the format. A bias is one more term of the sum. An infinity, where the
format has one, stays in the last bin: it is the sum's, and two of both signs are NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from operator import add

from graft.core.operators import build as b
from graft.core.tensor_ir.exact_rounding import add_to_odd, fused
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
    def of(cls, format: Format, terms: int) -> Quire:
        """Return the bins for sums of ``terms`` parts of products."""
        low = math.frexp(format.unit)[1] - 1
        high = math.frexp(max(format.largest, -format.lowest))[1]
        # The least bit of a product is at least that of the unit squared.
        first = max(2 * low, -1020)
        width = 52 - max(terms, 2).bit_length()
        count = -(-(2 * high - first) // width)
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
    parts = [Value(part) for part in _exact_product(stage.value, format)]
    terms = math.prod(int(axis.extent.value) for axis in reduction.axes if isinstance(axis.extent, Constant))
    quire = Quire.of(format, len(parts) * terms + 2)
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
    assert stage.epilogue is not None and stage.epilogue_variable is not None, "prepared without epilogue"
    addend, epilogue = _without_addend(stage.epilogue, stage.epilogue_variable)
    if addend is not None:
        bias = Value(converted(addend, "float64"))
        sums = [one + quire.part(bias, number) for number, one in enumerate(sums)]
    if not (isinstance(reduction.initial, Constant) and reduction.initial.value == 0):
        first = Value(converted(reduction.initial, "float64"))
        sums = [one + quire.part(first, number) for number, one in enumerate(sums)]
    rounded = Cast(quire.total(sums).expression, kind.dtype)
    value = substitute(epilogue, {stage.epilogue_variable: rounded})
    stages.append(Stage(stage.buffer, stage.axes, value, origin=stage.origin))
    return stages


def _without_addend(epilogue: Expression, total: Variable) -> tuple[Expression | None, Expression]:
    """Return what an epilogue first adds to the total, which the quire adds instead (a bias), and the rest of it."""
    parents = [node for node in walk_expressions(epilogue) if any(one is total for one in children(node))]
    match parents:
        case [Binary("add", left, right) as sum] if (left is total) != (right is total):
            addend = right if left is total else left
            if total not in free_variables(addend):
                return addend, ExpressionMap(lambda node: total if node is sum else node)(epilogue)
    return None, epilogue


def _exact_product(value: Expression, format: Format) -> list[Expression]:
    """Return a term of the sum as float64 whose sum it is exactly."""
    if not isinstance(value, Binary) or value.operator != "mul":
        return [converted(value, "float64")]
    left, right = converted(value.left, "float64"), converted(value.right, "float64")
    product = Binary("mul", left, right)
    if not format.needs_odd:
        return [product]
    return [product, fused(Value(left), Value(right), -Value(product)).expression]


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
