"""The quire: exact sums of products, rounded once.

The Posit Standard's quire is one long fixed-point number. Here it is cut into *bins*: float64 accumulators, each of
which collects the part of every product between two powers of two. A bin is as wide as leaves room for the carries of
all terms, so no addition rounds: sums are exact, whatever their order, and every schedule may split them. At the end
the bins are carried over into each other as integers and rounded to odd, then to the format.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

from graft.core.operators import build as b
from graft.core.tensor_ir.ir import Binary, Buffer, Cast, Constant, Expression, Load, Reduction, Stage, Variable
from graft.core.tensor_ir.scalar_math import Value, select
from graft.core.tensor_ir.visit import substitute
from graft.core.types import Type
from graft.datatypes.carrier import converted, format_of
from graft.datatypes.formats import Format
from graft.datatypes.registry import DatatypeRegistry
from graft.datatypes.rounding import add_to_odd
from graft.errors import DatatypeError


@dataclass(frozen=True)
class Quire:
    """The bins of a format's products: multiples of ``2**bases[i]`` below ``2**bases[i + 1]``, lowest first."""

    width: int
    bases: tuple[int, ...]

    @classmethod
    def of(cls, format: Format, terms: int) -> Quire:
        """Return the bins for sums of ``terms`` products; raise DatatypeError if products do not fit float64."""
        if format.needs_odd:
            raise DatatypeError(
                f"a quire of {format.bits}-bit numbers needs products of more than 53 bits; accumulate in "
                "custom[posit]32 or float64",
                bits=format.bits,
            )
        low = math.frexp(format.smallest)[1] - 1
        high = math.frexp(max(format.largest, -format.lowest))[1]
        # The least bit of a product is at least that of the least number squared.
        first = max(2 * low, -1020)
        width = 52 - max(terms, 2).bit_length()
        count = -(-(2 * high - first) // width)
        return cls(width, tuple(first + number * width for number in range(count)))

    def part(self, product: Value, number: int) -> Value:
        """Return the part of a product that bin ``number`` collects."""
        below = self._above(product, number)
        return below if number == len(self.bases) - 1 else below - self._above(product, number + 1)

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
        return select(invalid, math.nan, select(negative, -size, size))


def quire_stages(stage: Stage, registry: DatatypeRegistry) -> list[Stage]:
    """Return a prepared ``add`` reduction of decoded values as one reduction per bin and the rounding of their sum."""
    reduction, kind = stage.reduction, stage.value.type
    format = format_of(registry, kind.dtype)
    assert reduction is not None, "a quire sums"
    if format is None:
        raise DatatypeError(f"a quire needs a format; '{kind.dtype}' has only lowerings", datatype=kind.dtype)
    terms = math.prod(int(axis.extent.value) for axis in reduction.axes if isinstance(axis.extent, Constant))
    quire = Quire.of(format, terms)
    product = _exact_product(stage.value)
    start = Constant(0.0, Type("float64"))
    stages: list[Stage] = []
    bins: list[Buffer] = []
    for number in range(len(quire.bases)):
        buffer = Buffer(f"{stage.buffer.name}_bin{number}", "float64", stage.buffer.shape, memory="scratch")
        axes = b.variables(len(stage.axes))
        inner = tuple(replace(axis, variable=Variable(axis.variable.name)) for axis in reduction.axes)
        names: dict[Variable, Expression] = dict(zip(stage.axes, axes, strict=True))
        names |= {old.variable: new.variable for old, new in zip(reduction.axes, inner, strict=True)}
        value = substitute(quire.part(Value(product), number).expression, names)
        stages.append(Stage(buffer, axes, value, Reduction("add", inner, start), origin=stage.origin))
        bins.append(buffer)
    total = quire.total([Value(Load(buffer, stage.axes)) for buffer in bins])
    rounded = Cast(total.expression, kind.dtype)
    if not (isinstance(reduction.initial, Constant) and reduction.initial.value == 0):
        rounded = Cast(add_to_odd(total, Value(converted(reduction.initial, "float64"))).expression, kind.dtype)
    assert stage.epilogue is not None and stage.epilogue_variable is not None, "prepared without epilogue"
    value = substitute(stage.epilogue, {stage.epilogue_variable: rounded})
    stages.append(Stage(stage.buffer, stage.axes, value, origin=stage.origin))
    return stages


def _exact_product(value: Expression) -> Expression:
    """Return a term of the sum in float64, where the product of two numbers is exact."""
    if isinstance(value, Binary) and value.operator == "mul":
        return Binary("mul", converted(value.left, "float64"), converted(value.right, "float64"))
    return converted(value, "float64")
