"""Products of arrays of scaled types: exact block sums in one order, the same bits on every machine.

OCP's MX specification 1.0 (sections 6.1 and 6.2) defines a dot product of blocks as the product of both scales and the
sum of the products of elements, and leaves precision and order open. Here

1. the sum of a block's products of elements is exact;
2. that sum times both scales is rounded once, to float32 or the format that is given;
3. the results of the blocks are added in that format, from the first block to the last, beginning with 0; what is not
   float32 becomes it;
4. a product of arrays with scales of their tensors is multiplied by the product of these, each rounded to float32.

Elements are whole numbers of their format's unit. They are cut into limbs so short that every sum of products of limbs
is a whole number below 2**53, which float64 adds without rounding in any order: BLAS may do it. NaN and infinities take
the way of floats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from graft.core.tensor_ir.arithmetic.exact_rounding import multiply_to_odd
from graft.datatypes.formats import Format, evaluate
from graft.datatypes.native_float import ORDERED
from graft.datatypes.prepare import EACH, QUIRE
from graft.datatypes.quire import Quire
from graft.datatypes.scaled.blocks import ScaledArray
from graft.datatypes.shipped import DATATYPES
from graft.datatypes.study import accumulator_named
from graft.errors import DatatypeError
from graft.runtime.arguments import TEXT, instance, takes

FLOAT32 = "float32"
SCALED_ARRAY = instance(ScaledArray, wanted="a ScaledArray, as encode_scaled gives it")
_EXACT = 53
"""The significant bits of a float64."""


@takes(left=SCALED_ARRAY, right=SCALED_ARRAY, accumulate=TEXT)
def matmul_scaled(left: ScaledArray, right: ScaledArray, accumulate: str = FLOAT32) -> np.ndarray:
    """Return the product (float32) of a matrix ``(m, k)`` and a matrix ``(k, n)``, either of which may be a vector.

    Blocks lie along ``k``, and those of both have one size; either may have one scale for the whole axis or tensor
    instead. The order of sums is that of this module; ``accumulate`` is the type that blocks are rounded to and added
    in (``"float16"``, ``"posit32"``, as `graft.datatypes.convert` names them). Where a block's sum does not fit 53 bits
    (E5M2, posits) and scales are no powers of two, it is rounded to odd in float64 before it is scaled. Raises
    DatatypeError for shapes and blocks that do not fit, for elements without a unit (logarithms), and for no type of
    sums.
    """
    sums_in = sums_format(accumulate)
    rows, columns = _operand(left, 0), _operand(right, 1)
    extent, other = rows.numbers.shape[1], columns.numbers.shape[1]
    if extent != other:
        raise DatatypeError(f"a product sums over one axis; the left side has {extent} numbers and the right {other}")
    sizes = sorted({array.type.block or 0 for array in (left, right)} - {0})
    if len(sizes) > 1:
        raise DatatypeError(f"blocks of both sides have one size, not {sizes[0]} and {sizes[1]}")
    block = sizes[0] if sizes else max(extent, 1)
    total = np.zeros((len(rows.numbers), len(columns.numbers)), sums_in.carrier)
    with np.errstate(all="ignore"):
        for number, start in enumerate(range(0, extent, block)):
            part = _block(rows, columns, number, slice(start, start + block), sums_in)
            total = evaluate(sums_in.add, total, part)
        sums = total.astype(np.float32)
        if left.type.tensor_scale or right.type.tensor_scale:
            sums *= np.float32(left.tensor_scale) * np.float32(right.tensor_scale)
    kept = tuple(slice(None) if array.elements.ndim == 2 else 0 for array in (left, right))
    return np.asarray(sums[kept])


def sums_type(name: str) -> str:
    """Return the custom type that blocks are added in, by its name; raise DatatypeError for what is none."""
    policy = accumulator_named(name)
    if policy in (EACH, QUIRE):
        raise DatatypeError(f"sums of blocks are of a type, such as float16 or posit32, not '{policy}'")
    return ORDERED.get(policy, policy)


def sums_format(name: str) -> Format:
    """Return the format of `sums_type`; raise DatatypeError for what is none, or has whole numbers alone."""
    policy = sums_type(name)
    found = DATATYPES.format(policy)
    if found is None:
        raise DatatypeError(f"{policy} has only lowerings; sums of blocks are of a format", datatype=policy)
    if has_only_integers(found):
        raise DatatypeError(
            f"{policy} has whole numbers alone; sums of blocks are of a type with fractions, such as float16",
            datatype=policy,
        )
    return found


def has_only_integers(format: Format) -> bool:
    """Whether every number of a format is a whole one."""
    return format.has_quire and format.unit >= 1.0


@dataclass(frozen=True, eq=False)
class _Operand:
    """A side of a product as a matrix that is summed over its second axis: elements, and scales by row and block."""

    numbers: np.ndarray
    scales: np.ndarray
    format: Format
    scale_format: Format

    def scale(self, block: int) -> np.ndarray:
        """Return the scales of a block as a column; where there is one for the whole axis, that."""
        return self.scales[:, min(block, self.scales.shape[1] - 1), None]


def _operand(array: ScaledArray, side: int) -> _Operand:
    name, rank = ("left", "right")[side], array.elements.ndim
    format = array.type.element_format
    if rank not in (1, 2):
        raise DatatypeError(f"a product is of matrices or vectors; the {name} side has rank {rank}")
    if not format.has_quire:
        raise DatatypeError(f"sums of products of {array.type.element} are not exact: it has no unit")
    summed = rank - 1 if side == 0 else 0
    if array.axis not in (None, summed):
        raise DatatypeError(f"the {name} side is summed over axis {summed}; its blocks lie along axis {array.axis}")
    numbers, scales = (
        np.atleast_2d(np.moveaxis(one, summed, -1)) for one in (array.element_numbers(), array.scale_numbers())
    )
    return _Operand(numbers, scales, format, array.type.scale_format)


def _block(left: _Operand, right: _Operand, block: int, part: slice, sums: Format) -> np.ndarray:
    """Return what a block adds to each sum, rounded to the format of sums, in its carrier."""
    formats = left.format, right.format
    rows, columns = left.numbers[:, part], right.numbers[:, part]
    if np.isfinite(rows).all() and np.isfinite(columns).all():
        total = _exact_sums(rows, columns, formats)
    else:
        plain = np.einsum("mk,nk->mn", rows, columns)
        known, others = (np.where(np.isfinite(one), one, 0.0) for one in (rows, columns))
        total = np.where(np.isfinite(plain), _exact_sums(known, others, formats), plain)
    factor = np.broadcast_to(left.scale(block) * right.scale(block).T, total.shape)
    places = [operand.scale_format.significant or _EXACT for operand in (left, right)]
    if places == [1, 1] or bits_of_sum(formats, rows.shape[1]) + sum(places) <= _EXACT:
        return evaluate(sums.convert, total * factor)
    if (sums.significant or _EXACT) > _EXACT - 2:
        raise DatatypeError("sums of blocks that exceed 53 bits are rounded to odd, of which float64 is no format")
    return evaluate(lambda one, scale: sums.convert(multiply_to_odd(one, scale)), total, factor)


def _exact_sums(left: np.ndarray, right: np.ndarray, formats: tuple[Format, Format]) -> np.ndarray:
    """Return the products of the rows of both, summed exactly, and rounded to odd if 53 bits do not hold them."""
    terms = left.shape[1]
    if bits_of_sum(formats, terms) <= _EXACT:
        return np.asarray(left @ right.T)
    # A sum has as many products of limbs for each term as the longer operand has limbs, at most as many as bits.
    width = (_EXACT - terms.bit_length() - _EXACT.bit_length()) // 2
    limbs = [_limbs(numbers, format, width) for numbers, format in zip((left, right), formats, strict=True)]
    first = sum(math.frexp(format.unit)[1] - 1 for format in formats)
    count = len(limbs[0]) + len(limbs[1]) - 1
    bins = [np.zeros((len(left), len(right))) for _ in range(count)]
    for place, one in enumerate(limbs[0]):
        for other_place, other in enumerate(limbs[1]):
            bins[place + other_place] += one @ other.T
    bases = tuple(first + place * width for place in range(count))
    quire = Quire(width, bases, infinite=False)
    scaled = [np.ldexp(one, base) for one, base in zip(bins, bases, strict=True)]
    return evaluate(lambda *parts: quire.total(list(parts)), *scaled)


def _limbs(numbers: np.ndarray, format: Format, width: int) -> list[np.ndarray]:
    """Return numbers in units as whole numbers of ``width`` bits and the number's sign, the lowest first."""
    rest = numbers / format.unit
    limbs = []
    for place in reversed(range(-(-_span(format) // width))):
        limbs.append(np.trunc(np.ldexp(rest, -place * width)))
        rest = rest - np.ldexp(limbs[-1], place * width)
    return limbs[::-1]


def bits_of_sum(formats: tuple[Format, Format], terms: int) -> int:
    """Return the bits of the largest sum of products in units."""
    return sum(map(_span, formats)) + terms.bit_length()


def _span(format: Format) -> int:
    """Return the bits of the largest number in units."""
    return math.frexp(max(format.largest, -format.lowest) / format.unit)[1]
