"""Fixed point against its definition: all codes, and all pairs of 8 bits."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from graft.datatypes.fixed_point import FixedPoint
from graft.datatypes.formats import Format, evaluate
from graft.datatypes.operations import operate

FIXED = [FixedPoint(8, 4), FixedPoint(16, 8)]


def computed(format: Format, operation: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return evaluate(
            lambda a, b: format.encode(operate(format, operation, (format.decode(a), format.decode(b)))), x, y
        )


def pairs8() -> tuple[np.ndarray, np.ndarray]:
    codes = np.arange(256, dtype=np.uint8)
    return np.repeat(codes, 256), np.tile(codes, 256)


@pytest.mark.parametrize("format", FIXED)
def test_a_fixed_point_code_is_a_signed_integer_of_units(format: FixedPoint) -> None:
    codes = np.arange(1 << format.bits).astype(format.storage)
    numbers = codes.view(f"int{format.bits}") / 2.0**format.fraction
    np.testing.assert_array_equal(format.to_numbers(codes), numbers)
    np.testing.assert_array_equal(format.to_bits(numbers), codes)


@pytest.mark.parametrize("operation", ["Add", "Sub", "Mul", "Div"])
def test_fixed_point_arithmetic_saturates_and_is_rounded_once(operation: str) -> None:
    x, y = pairs8()
    y = np.where(y == 0, 1, y).astype(np.uint8) if operation == "Div" else y
    expected = []
    for a, b in zip(x.view(np.int8).tolist(), y.view(np.int8).tolist(), strict=True):
        left, right = Fraction(a, 16), Fraction(b, 16)
        exact = {"Add": left + right, "Sub": left - right, "Mul": left * right, "Div": left / right if b else left}
        expected.append(min(max(round(exact[operation] * 16), -128), 127))  # round() of a Fraction ties to even
    np.testing.assert_array_equal(computed(FixedPoint(8, 4), operation, x, y).view(np.int8), expected)
