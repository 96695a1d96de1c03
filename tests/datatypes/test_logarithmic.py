"""Logarithmic numbers against their definition: all codes, and pairs of 8 bits."""

from __future__ import annotations

import numpy as np
import pytest

from graft.datatypes.formats import Format, evaluate
from graft.datatypes.logarithmic import Logarithmic
from graft.datatypes.operations import operate

LOGARITHMIC = [Logarithmic(8, 3), Logarithmic(16, 10)]


def computed(format: Format, operation: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return evaluate(
            lambda a, b: format.encode(operate(format, operation, (format.decode(a), format.decode(b)))), x, y
        )


def pairs8() -> tuple[np.ndarray, np.ndarray]:
    codes = np.arange(256, dtype=np.uint8)
    return np.repeat(codes, 256), np.tile(codes, 256)


@pytest.mark.parametrize("format", LOGARITHMIC)
def test_every_logarithm_survives_decoding_and_encoding(format: Logarithmic) -> None:
    codes = np.arange(1 << format.bits).astype(format.storage)
    half = 1 << (format.bits - 1)
    logarithm = codes.astype(np.int64) % half
    logarithm = np.where(logarithm >= half // 2, logarithm - half, logarithm)
    numbers = np.where(codes >= half, -1, 1) * 2.0 ** (logarithm / 2.0**format.fraction)
    numbers = np.where(logarithm == -(half // 2), np.where(codes >= half, np.nan, 0), numbers)
    np.testing.assert_allclose(format.to_numbers(codes), numbers, rtol=1e-15)
    np.testing.assert_array_equal(format.to_bits(numbers), codes)


def test_logarithmic_products_add_logarithms() -> None:
    format = Logarithmic(8, 3)
    x, y = pairs8()
    keep = (x % 128 != 64) & (y % 128 != 64)
    x, y = x[keep], y[keep]
    whole = [np.where(code % 128 >= 64, code % 128 - 128.0, code % 128) for code in (x, y)]
    total = np.clip(whole[0] + whole[1], -63, 63).astype(np.int64) % 128
    expected = total | ((x ^ y) & 128)
    np.testing.assert_array_equal(computed(format, "Mul", x, y), expected)


def test_logarithmic_sums_are_rounded_to_the_nearest_logarithm() -> None:
    format = Logarithmic(8, 3)
    x, y = pairs8()
    numbers = format.to_numbers(x) + format.to_numbers(y)
    with np.errstate(all="ignore"):
        exact = np.log2(np.abs(numbers)) * 8
        decided = np.isfinite(exact) & (np.abs(exact % 1 - 0.5) > 1e-9)
    expected = (np.clip(np.rint(exact[decided]), -63, 63).astype(np.int64) % 128) | np.where(
        numbers[decided] < 0, 128, 0
    )
    np.testing.assert_array_equal(computed(format, "Add", x, y)[decided], expected)
