"""What a format does besides its formulas: exact products, storage, arrays in NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from graft.datatypes.fixed_point import FixedPoint
from graft.datatypes.formats import Format, either, evaluate, is_nan, power
from graft.datatypes.logarithmic import Logarithmic
from graft.datatypes.native_float import NativeFloat
from graft.datatypes.posit import Posit
from graft.datatypes.small_float import SmallFloat

HALF = SmallFloat(16, 10)
SMALL = [SmallFloat(8, 3), FixedPoint(8, 4), Posit(8), Logarithmic(8, 3)]


def every_number(format: Format) -> np.ndarray:
    numbers = format.to_numbers(np.arange(1 << format.bits).astype(format.storage))
    return numbers[np.isfinite(numbers)]


@pytest.mark.parametrize("format", SMALL, ids=repr)
def test_extremes_and_units_are_those_of_all_numbers(format: Format) -> None:
    numbers = every_number(format)
    assert (numbers.max(), numbers.min()) == (format.largest, format.lowest)
    assert numbers[numbers > 0].min() == format.smallest
    if format.has_quire:
        np.testing.assert_array_equal(np.fmod(numbers, format.unit), 0)
    negated = np.isin(-numbers, numbers).all()
    assert negated == format.is_symmetric


@pytest.mark.parametrize("format", SMALL, ids=repr)
def test_what_lies_between_numbers_goes_to_the_nearer_one(format: Format) -> None:
    numbers = np.unique(every_number(format))
    low, high = numbers[:-1], numbers[1:]
    near = low + (high - low) * 0.02
    found = format.to_numbers(format.to_bits(near))
    wanted = low if not isinstance(format, Posit) else np.where(low == 0, high, low)  # nothing but 0 rounds to 0
    if isinstance(format, Logarithmic):
        wanted = np.where(low == 0, high, np.where(high == 0, low, low))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("format", "accumulator", "exact"),
    [
        (SmallFloat(8, 3), "float32", True),
        (SmallFloat(16, 7), "float32", False),
        (HALF, "float32", True),
        (HALF, "float64", True),
        (SmallFloat(16, 7), "float64", True),
        (Posit(16), "float32", True),
        (Posit(32), "float64", False),
        (FixedPoint(8, 4), "float32", True),
        (FixedPoint(16, 8), "float32", False),
        (FixedPoint(16, 8), "float64", True),
        (NativeFloat(32), "float64", True),
        (NativeFloat(64), "float64", False),
        (Logarithmic(8, 3), "float64", False),
    ],
    ids=repr,
)
def test_products_are_exact_where_the_accumulator_has_bits_and_range(
    format: Format, accumulator: str, exact: bool
) -> None:
    assert format.has_exact_products(accumulator) == exact


@pytest.mark.parametrize("format", SMALL[:3], ids=repr)
def test_products_that_are_said_to_be_exact_are(format: Format) -> None:
    numbers = every_number(format)
    wide = np.multiply.outer(numbers, numbers)
    np.testing.assert_array_equal(wide.astype(np.float32).astype(np.float64), wide)


def test_the_bits_lie_in_the_smallest_unsigned_integer() -> None:
    storage = [FixedPoint(bits, 2).storage for bits in (5, 8, 9, 16, 17, 32)]
    assert storage == ["uint8", "uint8", "uint16", "uint16", "uint32", "uint32"]


def test_infinity_is_the_extreme_where_it_is_no_number() -> None:
    fixed = FixedPoint(8, 4)
    assert (fixed.nearest(math.inf), fixed.nearest(-math.inf)) == (7.9375, -8.0)
    assert SmallFloat(8, 3).nearest(math.inf) == math.inf
    assert NativeFloat(32).nearest(-math.inf) == -math.inf
    assert (fixed.nearest(1.03), fixed.nearest(1.04)) == (1.0, 1.0625)


def test_arrays_of_any_kind_and_shape_are_rounded_once() -> None:
    fixed = FixedPoint(16, 8)
    for dtype in ("int8", "uint16", "int64", "uint64", "float16", "float32", "float64"):
        bits = fixed.to_bits(np.array([[0, 1], [2, 100]], dtype))
        assert (bits.dtype, bits.tolist()) == (np.uint16, [[0, 256], [512, 25600]])
    assert fixed.to_bits(np.zeros((0, 3))).shape == (0, 3)
    just_above_a_tie = np.array([2**53 + 2**29 + 1], np.int64)  # a float64 would drop the last bit, and the tie go down
    assert NativeFloat(32).to_bits(just_above_a_tie).view(np.float32) == np.float32(2**53 + 2**30)


def test_expressions_are_evaluated_over_arrays_that_are_broadcast() -> None:
    x, y = np.array([[1.0], [2.0]]), np.array([10.0, 20.0])
    np.testing.assert_array_equal(evaluate(lambda a, b: a + b, x, y), x + y)
    assert evaluate(lambda a: a + 1.0, np.zeros((0, 2))).shape == (0, 2)
    flags = evaluate(lambda a: either(is_nan(a), a > 1.0), np.array([np.nan, 0.0, 2.0]))
    assert flags.tolist() == [True, False, True]


def test_a_power_that_has_few_bits_is_exact() -> None:
    base, exponent = np.array([2.0, 3.0, 1.5, 9.0]), np.array([10.0, 4.0, 2.0, 0.5])
    np.testing.assert_array_equal(evaluate(power, base, exponent), [1024.0, 81.0, 2.25, 3.0])
