"""Rounding toward zero and stochastic rounding: neighbours by exact rationals, means by statistics, bits by place."""

from __future__ import annotations

import math
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

from graft.datatypes.arrays import decode, encode
from graft.datatypes.fixed_point import FixedPoint
from graft.datatypes.formats import Format, evaluate
from graft.datatypes.logarithmic import Logarithmic
from graft.datatypes.native_float import NativeFloat
from graft.datatypes.posit import Posit
from graft.datatypes.rounding import rounded, to_bits
from graft.datatypes.small_float import SmallFloat
from graft.errors import GraftError

FORMATS: list[Format] = [
    SmallFloat(4, 1, False, nan="none"), SmallFloat(6, 3, False, nan="none"), SmallFloat(6, 2, False, nan="none"),
    SmallFloat(8, 3, False, nan="top"), SmallFloat(8, 2), SmallFloat(8, 3, False, nan="zero", extra_bias=1),
    SmallFloat(6, 2, subnormals=False), FixedPoint(8, 4), FixedPoint(8, 6, symmetric=True), Posit(8), Posit(6, 1),
    Logarithmic(8, 3),
]  # fmt: skip


def numbers_of(format: Format) -> list[float]:
    """The finite numbers, ascending, of which the least integer of a symmetric fixed point is none to be rounded to."""
    every = format.to_numbers(np.arange(1 << format.bits).astype(format.storage))
    return sorted({float(one) for one in every if math.isfinite(one) and one >= format.lowest})


def points(format: Format, kind: type) -> np.ndarray:
    """Numbers, the middles between them, what lies beyond, and the neighbours of all these."""
    numbers = np.array(numbers_of(format))
    beyond = np.array([1.001, 1.03, 1.5, 1e6]) * format.largest
    every = np.concatenate([numbers, (numbers[1:] + numbers[:-1]) / 2, beyond, -beyond]).astype(kind)
    return np.concatenate([every, np.nextafter(every, kind(np.inf)), np.nextafter(every, kind(-np.inf))])


def toward_zero(numbers: list[float], value: float) -> float:
    """The number of largest size that is no further from zero."""
    if value < 0:
        return min(one for one in numbers if value <= one <= 0)
    return numbers[bisect_right(numbers, value) - 1]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_toward_zero_never_gains_size_and_never_overflows(format: Format, kind: type) -> None:
    given = points(format, kind)
    numbers = numbers_of(format)
    expected = [toward_zero(numbers, float(one)) for one in given]
    np.testing.assert_array_equal(format.to_numbers(to_bits(format, given, "zero")), expected)


@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_a_stochastic_rounding_goes_up_for_as_many_draws_as_its_share_says(format: Format) -> None:
    numbers = numbers_of(format)
    given = points(format, np.float32).astype(np.float64)
    given = given[(given >= format.lowest) & (given <= format.largest)]
    low = np.array([toward_zero(numbers, one) for one in given])
    high = [
        next((n for n in (numbers if one > 0 else numbers[::-1]) if abs(n) > abs(below) and n * one > 0), below)
        for one, below in zip(given.tolist(), low.tolist(), strict=True)
    ]
    share = [
        (Fraction(one) - Fraction(below)) / (Fraction(above) - Fraction(below)) if above != below else Fraction(0)
        for one, below, above in zip(given.tolist(), low.tolist(), high, strict=True)
    ]
    first_down = [math.ceil(part * 2**32 - Fraction(1, 2)) for part in share]  # draws below it go up
    for step, expected in ((-1, high), (0, low.tolist())):
        draws = np.array([down + step for down in first_down])
        valid = (draws >= 0) & (draws < 2**32)
        bits = evaluate(
            lambda x, r: format.encode(rounded(format, x, "stochastic", random=r)),
            given[valid],
            draws[valid].astype(np.uint64),
        )
        np.testing.assert_array_equal(format.to_numbers(bits), np.array(expected)[valid])


def check_mean(dtype: str, count: int) -> None:
    """The mean error lies within three standard deviations of zero."""
    given = np.random.default_rng(5).standard_normal(count).astype(np.float32)
    error = decode(encode(given, dtype, rounding="stochastic", seed=11), dtype) - given
    inside = np.abs(given) <= np.abs(decode(encode(np.float32([3e38]), dtype, saturate=True), dtype))
    error = error[inside]
    assert abs(error.mean()) < 3 * error.std() / math.sqrt(error.size)


TYPES = ["custom[float4e2m1]4", "custom[float6e3m2]6", "custom[float8e4m3fn]8", "custom[posit]8", "custom[fixed]8"]


@pytest.mark.parametrize("dtype", TYPES)
def test_the_mean_of_a_stochastic_rounding_is_what_was_rounded(dtype: str) -> None:
    check_mean(dtype, 200_000)


@pytest.mark.conformance
@pytest.mark.parametrize("dtype", TYPES)
def test_the_mean_of_ten_million_is_what_was_rounded(dtype: str) -> None:
    check_mean(dtype, 10_000_000)


def test_the_bits_of_a_stochastic_rounding_are_the_same_by_two_threads() -> None:
    given = np.random.default_rng(6).standard_normal(100_001).astype(np.float32)
    whole = encode(given, "custom[float4e2m1]4", rounding="stochastic", seed=3)
    starts = range(0, given.size, 7919)
    with ThreadPoolExecutor(2) as pool:
        parts = pool.map(
            lambda at: encode(
                given[at : at + 7919], "custom[float4e2m1]4", rounding="stochastic", seed=3, first=at
            ),
            starts,
        )  # fmt: skip
        np.testing.assert_array_equal(np.concatenate(list(parts)), whole)
    assert (encode(given, "custom[float4e2m1]4", rounding="stochastic", seed=4) != whole).mean() > 0.1


def test_integers_and_float64_are_rounded_toward_zero_once() -> None:
    single = NativeFloat(32)
    given = np.array([2**53 + 2**29 + 1, -(2**53) - 2**30 + 1], np.int64)
    assert to_bits(single, given, "zero").view(np.float32).tolist() == [2.0**53, -(2.0**53)]
    near = np.array([1 + 2.0**-23 - 2.0**-52, 1e300, -np.inf])
    found = to_bits(single, near, "zero").view(np.float32)
    assert found.tolist() == [1.0, np.finfo(np.float32).max, -np.inf]


@pytest.mark.parametrize(
    ("dtype", "saturate", "expected"),
    [
        ("custom[float8e5m2]8", None, [57344, np.inf, -np.inf, np.nan]),
        ("custom[float8e5m2]8", True, [57344, 57344, -57344, np.nan]),
        ("custom[float8e5m2]8", False, [np.inf, np.inf, -np.inf, np.nan]),
        ("custom[float8e4m3fn]8", True, [448, 448, -448, np.nan]),
        ("custom[float8e4m3fn]8", False, [np.nan, np.nan, np.nan, np.nan]),
        ("custom[float8e8m0]8", True, [2.0**17, 2.0**127, np.nan, np.nan]),
        ("custom[posit]16", True, [2.0**17, 2.0**56, -(2.0**56), np.nan]),
        ("custom[float4e2m1]4", True, [6, 6, -6, 0]),
    ],
)
def test_what_is_too_large_saturates_or_overflows(dtype: str, saturate: bool | None, expected: list[float]) -> None:
    given = np.array([2.0**17, np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(decode(encode(given, dtype, saturate=saturate), dtype), expected)


def test_a_format_without_infinity_and_nan_cannot_overflow() -> None:
    with pytest.raises(GraftError) as caught:
        encode(np.ones(1), "custom[float4e2m1]4", saturate=False)
    assert caught.value.message == "custom[float4e2m1]4 has neither infinity nor NaN for what is too large"
    with pytest.raises(GraftError) as caught:
        encode(np.ones(1), "custom[float4e2m1]4", rounding="up")  # type: ignore[arg-type]
    assert caught.value.message == "encode: rounding is str 'up'; give one of nearest, zero, stochastic"
