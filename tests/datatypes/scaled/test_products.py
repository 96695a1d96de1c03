"""Products of scaled arrays: block sums exact in whole numbers, rounded once, added in their order."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from graft.datatypes.scaled.blocks import ScaledArray, decode_scaled, encode_scaled
from graft.datatypes.scaled.products import matmul_scaled
from graft.datatypes.scaled.scaled_type import SCALED_TYPES, ScaledType, scaled_type
from graft.errors import GraftError
from tests.datatypes.scaled.block_oracle import E2M1, E4M3, ELEMENTS, float32_of

MX = ["mxfp8e4m3", "mxfp8e5m2", "mxfp6e2m3", "mxfp6e3m2", "mxfp4", "mxint8"]


@cache
def whole_numbers(name: str) -> tuple[int, list[int]]:
    """The exponent of an element format's unit, and the numbers of all codes in units; 0 for what is none."""
    values = ELEMENTS[name].values
    unit = max(value.denominator for value in values if value is not None).bit_length() - 1
    return -unit, [0 if value is None else int(value * 2**unit) for value in values]


@cache
def rounded(total: int, exponent: int) -> float:
    """The float32 nearest to ``total * 2**exponent``."""
    return float32_of(Fraction(total) * Fraction(2) ** exponent)


def check_pairs(name: str, scales: list[tuple[int, int]]) -> None:
    """Every product of two elements with two, under some scales."""
    type = SCALED_TYPES[name]
    unit, numbers = whole_numbers(name)
    codes = np.arange(len(numbers), dtype=np.uint8)
    pairs = np.stack([np.repeat(codes, codes.size), np.tile(codes, codes.size)], axis=1)
    table = np.array(numbers)[pairs]
    sums = table @ table.T  # whole numbers
    for left, right in scales:
        found = matmul_scaled(
            ScaledArray(type, pairs, np.full((len(pairs), 1), left, np.uint8), 1),
            ScaledArray(type, pairs.T, np.full((1, len(pairs)), right, np.uint8), 0),
        )
        if 255 in (left, right):
            assert np.isnan(found).all()
            continue
        unique, places = np.unique(sums, return_inverse=True)
        expected = [rounded(int(one), 2 * unit + left + right - 254) for one in unique]
        np.testing.assert_array_equal(found, np.array(expected)[places].reshape(sums.shape))


FOUR_BITS = ["mxfp4", "msfp12"]


@pytest.mark.parametrize("name", FOUR_BITS)
def test_every_product_of_two_elements_of_4_bits_is_exact_and_rounded_once(name: str) -> None:
    check_pairs(name, [(127, 127), (0, 0), (254, 254), (52, 53), (53, 53), (190, 190), (200, 40), (255, 3), (1, 255)])


@pytest.mark.conformance
@pytest.mark.parametrize("name", FOUR_BITS)
def test_every_product_of_two_elements_of_4_bits_under_every_scale(name: str) -> None:
    check_pairs(name, [(one, other) for one in range(0, 255, 2) for other in (one, min(one + 1, 254), 254 - one)])


def check_random(name: str, size: int, seed: int) -> None:
    """A product of random elements, ``size`` rows and columns of one block, under random scales."""
    random = np.random.default_rng(seed)
    type = SCALED_TYPES[name]
    unit, numbers = whole_numbers(name)
    known = np.flatnonzero([value is not None for value in ELEMENTS[name].values])
    assert type.block == 32
    left, right = (random.choice(known, (size, 32)).astype(np.uint8) for _ in range(2))
    scales = [np.where(random.random(size) < 0.3, random.integers(0, 255, size), random.integers(40, 200, size))
              .astype(np.uint8) for _ in range(2)]  # fmt: skip
    found = matmul_scaled(
        ScaledArray(type, left, scales[0][:, None], 1), ScaledArray(type, right.T, scales[1][None, :], 0)
    )
    table = np.array(numbers, object)
    exponents = [one.astype(int).tolist() for one in scales]
    for row in range(size):
        totals = (table[left[row]] * table[right]).sum(axis=1)
        expected = [
            rounded.__wrapped__(total, 2 * unit + exponents[0][row] + other - 254)
            for total, other in zip(totals.tolist(), exponents[1], strict=True)
        ]
        assert found[row].tolist() == expected, (name, row)


@pytest.mark.parametrize("name", MX)
def test_random_products_of_32_elements_are_exact_and_rounded_once(name: str) -> None:
    check_random(name, 40, 7)


@pytest.mark.conformance
@pytest.mark.parametrize("name", MX)
def test_a_million_products_of_32_elements_are_exact_and_rounded_once(name: str) -> None:
    check_random(name, 409, 8)  # 409 * 409 of six types


def ordered(left: ScaledArray, right: ScaledArray) -> np.ndarray:
    """The product by its definition, one element after the other."""
    sides = [array.type.element_format.to_numbers(array.elements) for array in (left, right)]
    scales = [array.type.scale_format.to_numbers(array.scales) for array in (left, right)]
    block = left.type.block or right.type.block or left.elements.shape[1]
    found = np.zeros((left.elements.shape[0], right.elements.shape[1]), np.float32)
    for m, n in np.ndindex(*found.shape):
        for number, start in enumerate(range(0, left.elements.shape[1], block)):
            part = range(start, min(start + block, left.elements.shape[1]))
            total = sum((Fraction(sides[0][m, k]) * Fraction(sides[1][k, n]) for k in part), Fraction(0))
            own = [scales[0][m, min(number, scales[0].shape[1] - 1)], scales[1][min(number, len(scales[1]) - 1), n]]
            found[m, n] += np.float32(float32_of(total * Fraction(own[0]) * Fraction(own[1])))
    if left.type.tensor_scale:
        found *= np.float32(left.tensor_scale) * np.float32(right.tensor_scale)
    return found


INTEGER = ScaledType("custom[integer]8", "custom[float]32", 32, "nearest")
WIDE = ScaledType("custom[posit]16", block=16)


@pytest.mark.parametrize("type", ["mxfp4", "mxfp8e5m2", "nvfp4", "msfp16", INTEGER, WIDE], ids=str)
def test_blocks_are_added_in_float32_from_the_first_to_the_last(type: str | ScaledType) -> None:
    random = np.random.default_rng(9)
    left = encode_scaled(random.standard_normal((3, 100)).astype(np.float32), type)
    right = encode_scaled(random.standard_normal((100, 4)).astype(np.float32), type, axis=0)
    np.testing.assert_array_equal(matmul_scaled(left, right), ordered(left, right))


def test_both_sides_may_be_of_different_types_and_one_of_a_single_scale() -> None:
    random = np.random.default_rng(10)
    left = encode_scaled(random.standard_normal((3, 64)).astype(np.float32), "mxfp8e4m3")
    right = encode_scaled(random.standard_normal((64, 4)).astype(np.float32), "mxfp4", axis=0)
    np.testing.assert_array_equal(matmul_scaled(left, right), ordered(left, right))
    whole = encode_scaled(random.standard_normal((64, 4)), ScaledType("custom[posit]8", block=None), axis=0)
    np.testing.assert_array_equal(matmul_scaled(left, whole), ordered(left, whole))


def test_vectors_give_what_matrices_of_one_row_give() -> None:
    random = np.random.default_rng(11)
    x, y = random.standard_normal((2, 64)).astype(np.float32)
    one, other = encode_scaled(x, "mxfp6e3m2"), encode_scaled(y, "mxfp6e3m2")
    matrices = encode_scaled(x[None], "mxfp6e3m2"), encode_scaled(y[:, None], "mxfp6e3m2", axis=0)
    assert matmul_scaled(one, other).shape == ()
    assert matmul_scaled(one, other) == matmul_scaled(*matrices)[0, 0]
    assert matmul_scaled(one, matrices[1]).tolist() == [float(matmul_scaled(one, other))]


def test_elements_that_are_not_finite_take_the_way_of_floats() -> None:
    type = scaled_type("mxfp8e5m2")
    infinite, nan, one, none = 0x7C, 0x7E, 0x3C, 0x00
    left = np.full((3, 32), one, np.uint8)
    left[0, 4], left[1, 5] = infinite, nan
    right = np.full((32, 2), one, np.uint8)
    right[4, 1] = none
    scales = np.full((3, 1), 127, np.uint8), np.full((1, 2), 127, np.uint8)
    found = matmul_scaled(ScaledArray(type, left, scales[0], 1), ScaledArray(type, right, scales[1], 0))
    np.testing.assert_array_equal(found, [[math.inf, math.nan], [math.nan, math.nan], [32, 31]])


def test_a_product_is_close_to_that_of_the_numbers() -> None:
    random = np.random.default_rng(12)
    x, y = random.standard_normal((20, 96)), random.standard_normal((96, 30))
    for name in SCALED_TYPES:
        left, right = encode_scaled(x, name), encode_scaled(y, name, axis=0)
        np.testing.assert_allclose(matmul_scaled(left, right), decode_scaled(left) @ decode_scaled(right), atol=1e-4)
    assert (
        matmul_scaled(encode_scaled(np.zeros((2, 0)), "mxfp4"), encode_scaled(np.zeros((0, 3)), "mxfp4", 0)).sum() == 0
    )
    assert (E2M1.largest, E4M3.largest) == (6, 448)


def wrong(left: ScaledArray, right: ScaledArray) -> str:
    with pytest.raises(GraftError) as caught:
        matmul_scaled(left, right)
    return caught.value.message


def test_what_does_not_fit_is_refused() -> None:
    ones = np.ones((64, 64))
    rows, columns = encode_scaled(ones, "mxfp4"), encode_scaled(ones, "mxfp4", axis=0)
    assert wrong(rows, encode_scaled(ones[:32], "mxfp4", axis=0)) == (
        "a product sums over one axis; the left side has 64 numbers and the right 32"
    )
    assert wrong(rows, rows) == "the right side is summed over axis 0; its blocks lie along axis 1"
    assert wrong(columns, columns) == "the left side is summed over axis 1; its blocks lie along axis 0"
    assert wrong(rows, encode_scaled(ones, "nvfp4", 0)) == "blocks of both sides have one size, not 16 and 32"
    cube = encode_scaled(ones[None], "mxfp4")
    assert wrong(cube, columns) == "a product is of matrices or vectors; the left side has rank 3"
    logarithms = encode_scaled(ones, ScaledType("custom[lns]8"))
    assert wrong(logarithms, columns) == "sums of products of custom[lns]8 are not exact: it has no unit"
