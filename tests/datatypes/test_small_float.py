"""Small floats against ml_dtypes and NumPy: every code, every rounding boundary, operations of all pairs of 8 bits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from graft.datatypes.formats import evaluate
from graft.datatypes.operations import operate
from graft.datatypes.shipped import DATATYPES
from graft.datatypes.small_float import SmallFloat

FORMATS = {
    "bfloat16": SmallFloat(16, 7),
    "float16": SmallFloat(16, 10),
    "float8_e5m2": SmallFloat(8, 2),
    "float8_e4m3fn": SmallFloat(8, 3, infinities=False, nan="top"),
    "float8_e4m3fnuz": SmallFloat(8, 3, infinities=False, nan="zero", extra_bias=1),
    "float8_e5m2fnuz": SmallFloat(8, 2, infinities=False, nan="zero", extra_bias=1),
}
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")


def dtype_of(name: str) -> np.dtype:
    return np.dtype(name) if name == "float16" else np.dtype(getattr(ml_dtypes, name))


def codes_of(name: str) -> np.ndarray:
    return np.arange(1 << FORMATS[name].bits).astype(FORMATS[name].storage)


def assert_same(format: SmallFloat, bits: np.ndarray, expected: np.ndarray) -> None:
    """Compare codes; NaNs may differ in their bits."""
    numbers = expected.astype(np.float64)
    np.testing.assert_array_equal(format.to_numbers(bits), numbers)
    np.testing.assert_array_equal(np.signbit(format.to_numbers(bits))[numbers == 0], np.signbit(numbers)[numbers == 0])


@pytest.mark.parametrize("name", FORMATS)
def test_every_code_decodes_and_encodes(name: str) -> None:
    format, codes = FORMATS[name], codes_of(name)
    numbers = codes.view(dtype_of(name)).astype(np.float64)
    np.testing.assert_array_equal(format.to_numbers(codes), numbers)
    known = ~np.isnan(numbers)
    np.testing.assert_array_equal(format.to_bits(numbers)[known], codes[known])


@pytest.mark.parametrize("name", FORMATS)
def test_numbers_at_and_beside_every_boundary_round_as_ml_dtypes_rounds(name: str) -> None:
    format = FORMATS[name]
    finite = np.unique(format.to_numbers(codes_of(name)))
    finite = finite[np.isfinite(finite)]
    middles = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
    numbers = np.concatenate([middles, np.nextafter(middles, np.float32(np.inf)), np.nextafter(middles, np.float32(0))])
    beyond = np.array([1.01, 1.06, 1.2, 4], np.float32) * np.float32(format.largest)
    numbers = np.concatenate([numbers, beyond, -beyond, np.array([np.inf, -np.inf, np.nan, -0.0], np.float32)])
    assert_same(format, format.to_bits(numbers), numbers.astype(dtype_of(name)))


@pytest.mark.parametrize("operation", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("name", [name for name, format in FORMATS.items() if format.bits == 8])
def test_arithmetic_of_8_bits_is_rounded_once_for_all_pairs(name: str, operation: str) -> None:
    format, codes = FORMATS[name], codes_of(name)
    x, y = np.repeat(codes, 256), np.tile(codes, 256)
    left, right = (bits.view(dtype_of(name)).astype(np.float64) for bits in (x, y))
    function = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}[operation]
    with np.errstate(all="ignore"):
        expected = function(left, right).astype(dtype_of(name))
        bits = evaluate(
            lambda a, b: format.encode(operate(format, operation, (format.decode(a), format.decode(b)))), x, y
        )
    np.testing.assert_array_equal(format.to_numbers(bits), expected.astype(np.float64))


def test_a_saturating_float_stops_at_its_largest_number() -> None:
    format = DATATYPES.format("custom[float8e4m3fn]8")
    assert format is not None
    bits = format.to_bits(np.array([1e9, -1e9, np.nan]))
    np.testing.assert_array_equal(format.to_numbers(bits), [448.0, -448.0, np.nan])


def test_a_float_without_subnormals_goes_to_zero_or_its_least_normal_number() -> None:
    format = SmallFloat(6, 2, subnormals=False)
    least = format.least_normal
    np.testing.assert_array_equal(format.to_numbers(format.to_bits(np.array([least * 0.6, least * 0.4]))), [least, 0.0])
