"""Powers of two: E8M0's codes, its rounding beside every middle, what is no power of two."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from graft.datatypes.power_of_two import PowerOfTwo
from graft.datatypes.rounding import to_bits

SCALE = PowerOfTwo(8)
CODES = np.arange(256, dtype=np.uint8)


def test_a_code_is_an_exponent_and_the_last_one_nan() -> None:
    numbers = SCALE.to_numbers(CODES)
    assert [Fraction(one) for one in numbers[:-1].tolist()] == [Fraction(2) ** (code - 127) for code in range(255)]
    assert np.isnan(numbers[255])
    np.testing.assert_array_equal(SCALE.to_bits(numbers), CODES)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_middle_of_two_goes_to_the_larger(kind: type) -> None:
    middles = (1.5 * SCALE.to_numbers(CODES[:254])).astype(kind)
    np.testing.assert_array_equal(SCALE.to_bits(middles), CODES[1:255])
    np.testing.assert_array_equal(SCALE.to_bits(np.nextafter(middles, kind(0))), CODES[:254])


def test_what_is_not_positive_or_not_finite_is_nan() -> None:
    assert SCALE.to_bits(np.array([0.0, -0.0, -1.0, -np.inf, np.inf, np.nan])).tolist() == [255] * 6


@pytest.mark.parametrize(("saturate", "code"), [(False, 255), (True, 254)])
def test_what_is_too_large_is_nan_or_saturates(saturate: bool, code: int) -> None:
    numbers = np.array([2.0**128, 1.5 * 2.0**127, np.nextafter(1.5 * 2.0**127, 0)])
    assert PowerOfTwo(8, saturate=saturate).to_bits(numbers).tolist() == [code, code, 254]


def test_what_is_too_small_is_the_least_number() -> None:
    assert SCALE.to_bits(np.array([1e-300, 2.0**-149, 2.0**-128, 1.49 * 2.0**-127])).tolist() == [0, 0, 0, 0]


def test_toward_zero_is_the_power_below() -> None:
    numbers = np.array([1.0, 1.99, 2.0, 0.75, 3e38, 0.0, -5.0, np.inf])
    assert to_bits(SCALE, numbers, "zero").tolist() == [127, 127, 128, 126, 254, 255, 255, 255]


def test_the_extremes_are_those_of_the_codes() -> None:
    assert (SCALE.smallest, SCALE.lowest, SCALE.largest) == (2.0**-127, 2.0**-127, 2.0**127)
    assert not SCALE.is_symmetric and SCALE.overflowing == SCALE
