"""Arithmetic of small floats, all pairs of 8-bit ones and of any exponent and mantissa widths, against rationals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from graft.datatypes.small_float import SmallFloat
from tests.datatypes.proofs.oracle import OPERATIONS, FloatText, float_numbers, same
from tests.datatypes.proofs.running import all_codes, all_pairs, format_of, in_numpy, stratified_codes
from tests.datatypes.proofs.test_casts import TEXTS

# exponent bits, mantissa bits, infinities, subnormals, saturating
SHAPES = [
    (2, 3, True, True, False), (3, 2, True, True, False), (3, 4, False, True, False), (4, 1, True, True, False),
    (4, 3, True, False, False), (5, 2, True, True, False), (2, 1, False, True, False), (4, 3, False, False, True),
    (3, 3, True, True, True), (6, 1, True, True, False),
]  # fmt: skip


def expected_of(operation: str, text: FloatText, saturate: bool, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """IEEE arithmetic on exact values, rounded once; what float64 makes infinite is so, or as the format has it."""
    near, error = OPERATIONS[operation](x, y) if operation != "Sqrt" else OPERATIONS[operation](x)
    with np.errstate(invalid="ignore"):
        return float_numbers(text, saturate).round(near, np.where(np.isfinite(near), error, 0.0))


def check(format: SmallFloat, text: FloatText, saturate: bool, x: np.ndarray, y: np.ndarray) -> None:
    left, right = format.to_numbers(x), format.to_numbers(y)
    with np.errstate(invalid="ignore", over="ignore"):
        for operation in OPERATIONS:
            operands = (x,) if operation == "Sqrt" else (x, y)
            actual = in_numpy(format, operation, *operands)
            expected = expected_of(operation, text, saturate, left, right)
            wrong = ~same(actual, expected)
            first = np.flatnonzero(wrong)[:3]
            assert not wrong.any(), (operation, left[first], right[first], actual[first], expected[first])
    comparisons = {"EQ": np.equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal}
    for operation, function in comparisons.items():
        assert np.array_equal(in_numpy(format, operation, x, y), function(left, right)), operation


@pytest.mark.parametrize("dtype", [name for name in TEXTS if not name.endswith("]16")])
def test_every_pair_of_a_float_of_4_to_8_bits_rounds_once(dtype):
    check(format_of(dtype), *TEXTS[dtype], *all_pairs(format_of(dtype)))


@pytest.mark.parametrize("dtype", [name for name in TEXTS if name.endswith("]16")])
def test_stratified_pairs_of_16_bit_floats_round_once(dtype):
    format = format_of(dtype)
    check(format, *TEXTS[dtype], *(stratified_codes(format, 200_000, seed) for seed in (1, 2)))


@pytest.mark.parametrize(("exponent", "mantissa", "infinities", "subnormals", "saturate"), SHAPES)
def test_every_pair_of_a_float_of_any_shape_rounds_once(exponent, mantissa, infinities, subnormals, saturate):
    bits = 1 + exponent + mantissa
    format = SmallFloat(bits, mantissa, infinities=infinities, subnormals=subnormals, saturate=saturate)
    text = FloatText(exponent, mantissa, infinities=infinities, subnormals=subnormals)
    codes = np.arange(1 << bits, dtype=format.storage)
    check(format, text, saturate, np.repeat(codes, codes.size), np.tile(codes, codes.size))


@pytest.mark.parametrize("dtype", ["custom[float8e4m3fn]8", "custom[float8e5m2]8"])
def test_fused_multiply_add_rounds_once(dtype):
    format, (text, saturate) = format_of(dtype), TEXTS[dtype]
    random = np.random.default_rng(2)
    x, y, z = random.integers(0, 256, (3, 30_000)).astype(np.uint8)
    values = [text.value(code) for code in range(256)]
    numbers = float_numbers(text, saturate)
    expected = []
    for a, b, c in zip(x.tolist(), y.tolist(), z.tolist(), strict=True):
        parts = values[a], values[b], values[c]
        if all(isinstance(part, Fraction) for part in parts):
            total = parts[0] * parts[1] + parts[2]
            near = float(total)
            expected.append(numbers.round(np.array([near]), float(total - Fraction(near)))[0])
        else:
            parts = tuple(map(float, parts))
            expected.append(parts[0] * parts[1] + parts[2])
    assert same(in_numpy(format, "Fma", x, y, z), np.array(expected)).all()


def test_a_code_of_one_bit_pattern_is_nan_in_fnuz_floats():
    for name in ("float8e4m3fnuz", "float8e5m2fnuz"):
        format = format_of(f"custom[{name}]8")
        assert np.flatnonzero(np.isnan(format.to_numbers(all_codes(format)))).tolist() == [0x80]
        assert format.to_bits(np.array([-0.0, np.nan, -1e-30])).tolist() == [0, 0x80, 0]
