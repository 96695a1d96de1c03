"""Conversion of arrays to blocks and back, in exact rationals, and beside ml_dtypes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from graft.datatypes.scaled.blocks import ScaledArray, decode_scaled, encode_scaled
from graft.datatypes.scaled.scaled_type import SCALED_TYPES, ScaledType
from graft.errors import GraftError
from tests.datatypes.scaled.block_oracle import E2M1, E4M3, ELEMENTS, converted, float32_of


def blocks_of_every_kind(count: int, size: int, seed: int) -> np.ndarray:
    """Float32 blocks: normal draws, many exponents, ties of short significands, subnormal numbers, zeros, extremes."""
    random = np.random.default_rng(seed)
    normal = random.standard_normal((count, size))
    spread = normal * np.exp2(random.integers(-20, 20, (count, size)))
    ties = random.integers(-64, 65, (count, size)) * np.exp2(random.integers(-4, 4, (count, 1)))
    tiny = random.integers(-40, 41, (count, size)) * 2.0**-149
    huge = normal * 2.0**125
    every = np.concatenate([normal, spread, ties, tiny, huge, np.zeros((1, size))]).astype(np.float32)
    return np.where(np.isfinite(every), every, np.float32(np.finfo(np.float32).max))


@pytest.mark.parametrize("rule", ["floor", "even", "ceil", "rceil"])
@pytest.mark.parametrize("name", ELEMENTS)
def test_a_block_is_converted_as_the_specification_says(name: str, rule: str) -> None:
    type = replace(SCALED_TYPES[name], rule=rule)  # type: ignore[arg-type]
    assert type.block is not None
    given = blocks_of_every_kind(3, type.block, 1)
    found = encode_scaled(given, type)
    values = ELEMENTS[name].values
    for row, scale, elements in zip(given.tolist(), found.scales[:, 0].tolist(), found.elements.tolist(), strict=True):
        exponent, expected = converted(ELEMENTS[name], rule, [Fraction(one) for one in row])
        assert scale == exponent + 127
        assert [values[code] for code in elements] == expected
    exact = [
        float(Fraction(values[code]) * Fraction(2) ** (int(scale) - 127))  # type: ignore[arg-type]
        for scale, row in zip(found.scales[:, 0], found.elements, strict=True)
        for code in row
    ]
    np.testing.assert_array_equal(decode_scaled(found).reshape(-1), exact)


THEIRS = {
    "mxfp8e4m3": ml_dtypes.float8_e4m3fn, "mxfp8e5m2": ml_dtypes.float8_e5m2, "mxfp6e2m3": ml_dtypes.float6_e2m3fn,
    "mxfp6e3m2": ml_dtypes.float6_e3m2fn, "mxfp4": ml_dtypes.float4_e2m1fn,
}  # fmt: skip


@pytest.mark.parametrize("name", THEIRS)
def test_elements_have_the_bits_of_ml_dtypes(name: str) -> None:
    given = blocks_of_every_kind(60, 32, 2)
    found = encode_scaled(given, name)
    scales = found.scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    format = found.type.element_format
    quotients = np.clip(given / scales, format.lowest, format.largest)
    np.testing.assert_array_equal(found.elements, quotients.astype(THEIRS[name]).view(np.uint8))


def test_nvfp4_rounds_scales_and_elements_once_each() -> None:
    given = blocks_of_every_kind(4, 16, 3)[:12]
    found = encode_scaled(given, "nvfp4")
    whole = Fraction(float32_of(max(Fraction(one) for one in np.abs(given).reshape(-1).tolist()) / 2688))
    assert Fraction(found.tensor_scale) == whole
    for row, scale, elements in zip(given.tolist(), found.scales[:, 0].tolist(), found.elements.tolist(), strict=True):
        wanted = E4M3.nearest(max(abs(Fraction(one)) for one in row) / (6 * whole))
        assert E4M3.values[scale] == wanted
        expected = [E2M1.nearest(Fraction(one) / (wanted * whole)) if wanted else Fraction(0) for one in row]
        assert [E2M1.values[code] for code in elements] == expected


def test_a_block_with_nan_or_infinity_is_nan_and_the_others_are_not() -> None:
    given = np.ones((4, 32), np.float32)
    given[1, 3], given[2, 5] = np.nan, -np.inf
    for name in ("mxfp4", "mxfp8e5m2", "mxint8", "nvfp4"):
        numbers = decode_scaled(encode_scaled(given.reshape(-1), name)).reshape(4, 32)
        block = 16 if name == "nvfp4" else 32
        assert np.isnan(numbers[1, :block]).all() and np.isnan(numbers[2, :block]).all()
        np.testing.assert_allclose(numbers[[0, 3]], 1.0, rtol=1e-6)


def test_blocks_lie_along_any_axis_and_the_last_one_may_be_short() -> None:
    given = np.random.default_rng(4).standard_normal((5, 70, 3)).astype(np.float32)
    found = encode_scaled(given, "mxfp8e4m3", axis=1)
    assert (found.scales.shape, found.elements.shape, found.axis) == ((5, 3, 3), (5, 70, 3), 1)
    last = encode_scaled(np.moveaxis(given, 1, -1), "mxfp8e4m3")
    np.testing.assert_array_equal(np.moveaxis(last.elements, -1, 1), found.elements)
    np.testing.assert_array_equal(decode_scaled(found), np.moveaxis(decode_scaled(last), -1, 1))
    padded = np.concatenate([given, np.zeros((5, 26, 3), np.float32)], axis=1)
    np.testing.assert_array_equal(encode_scaled(padded, "mxfp8e4m3", axis=1).elements[:, :70], found.elements)


def test_one_scale_serves_an_axis_or_a_tensor() -> None:
    given = np.array([[1.0, 2.0], [100.0, -300.0]])
    integer = ScaledType("custom[integer]8", "custom[float]32", None, "nearest")
    rows, tensor = encode_scaled(given, integer), encode_scaled(given, integer, axis=None)
    np.testing.assert_array_equal(rows.scale_numbers(), np.float32([[2], [300]]) / np.float32(127))
    assert tensor.scale_numbers().tolist() == [[float(np.float32(300 / 127))]]
    assert rows.element_numbers().tolist() == [[64.0, 127.0], [42.0, -127.0]]
    assert tensor.element_numbers().tolist() == [[0.0, 1.0], [42.0, -127.0]]


def test_scales_that_are_given_are_rounded_to_their_format_and_used() -> None:
    found = encode_scaled(np.array([1.0, -3.0, 100.0]), "mxfp4", scales=np.array([2.9]))
    assert (found.scale_numbers().tolist(), decode_scaled(found).tolist()) == ([2.0], [1.0, -3.0, 12.0])
    held = encode_scaled(np.array([1.0, 5.0]), "nvfp4", scales=np.array([0.0]), tensor_scale=0.5)
    assert decode_scaled(held).tolist() == [0.0, 0.0]


def test_stochastic_elements_follow_from_their_places_in_the_array() -> None:
    given = np.random.default_rng(5).standard_normal((64, 48)).astype(np.float32)
    rows = encode_scaled(given, "mxfp4", axis=1, rounding="stochastic", seed=1)
    again = encode_scaled(given, "mxfp4", axis=1, rounding="stochastic", seed=1)
    np.testing.assert_array_equal(rows.elements, again.elements)
    many = [decode_scaled(encode_scaled(given, "mxfp4", axis=1, rounding="stochastic", seed=one)) for one in range(60)]
    inside = np.abs(given) <= 6 * rows.spread(rows.scale_numbers())
    error = (np.mean(many, axis=0) - given)[inside]
    assert abs(error.mean()) < 3 * error.std() / np.sqrt(error.size)
    toward = np.abs(decode_scaled(encode_scaled(given, "mxfp4", axis=1, rounding="zero")))
    assert (toward <= np.abs(given)).all()


def test_arrays_without_numbers_have_scales_of_blocks_without_numbers() -> None:
    assert encode_scaled(np.zeros((0, 64)), "mxfp4").scales.shape == (0, 2)
    assert decode_scaled(encode_scaled(np.zeros((3, 0)), "mxfp4")).shape == (3, 0)


def wrong(*arguments: object, **options: object) -> str:
    with pytest.raises(GraftError) as caught:
        encode_scaled(*arguments, **options)  # type: ignore[arg-type]
    return caught.value.message


def test_what_does_not_fit_is_refused() -> None:
    ones = np.ones((2, 64))
    assert wrong(ones, "mxfp4", axis=2) == "axis 2 is out of range for rank 2"
    assert wrong(ones, "mxfp4", axis=None) == "blocks of 32 numbers lie along an axis; give one"
    assert wrong(ones, "mxfp4", scales=np.ones((2, 3))) == "blocks have scales of shape (2, 2); these have (2, 3)"
    assert wrong(ones, "nvfp4", tensor_scale=0) == "the scale of a tensor is a positive float32, not 0"
    assert wrong(ones, 4) == 'encode_scaled: type is int 4; give a scaled type or its name, as in "mxfp4"'
    with pytest.raises(GraftError, match="give a ScaledArray, as encode_scaled gives it"):
        decode_scaled(np.ones(3))  # type: ignore[arg-type]
    assert isinstance(encode_scaled(ones, "mxfp4"), ScaledArray)
