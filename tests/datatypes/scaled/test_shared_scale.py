"""Scales of blocks: each rule beside every power of two and every limit of clipping, in exact rationals."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from graft.datatypes.formats import evaluate
from graft.datatypes.posit import Posit
from graft.datatypes.scaled.scaled_type import SCALED_TYPES, ScaledType
from graft.datatypes.scaled.shared_scale import full_largest, scaled_element, shared_scale, tensor_scale_of
from tests.datatypes.scaled.block_oracle import E2M1, E4M3, ELEMENTS, float32_of, scale_exponent


def scale_codes(type: ScaledType, sizes: np.ndarray, tensor_scale: float) -> np.ndarray:
    return evaluate(lambda largest: shared_scale(type, largest, largest.constant(tensor_scale)), sizes)


def magnitudes() -> np.ndarray:
    """Float32 magnitudes at and beside every power of two and those fractions where a rule may change its mind."""
    powers = np.ldexp(1.0, np.arange(-149, 128))
    shares = np.array([1, 1.25, 1.5, 1.75, 1.8125, 1.875, 1.9375, 1.96875, 1.984375, 1.9921875])
    points = np.unique((powers[:, None] * shares).astype(np.float32))
    every = np.concatenate([points, np.nextafter(points, np.float32(0)), np.nextafter(points, np.float32(np.inf))])
    return np.unique(every[np.isfinite(every)]).astype(np.float64)


@pytest.mark.parametrize("rule", ["floor", "even", "ceil", "rceil"])
@pytest.mark.parametrize("name", ELEMENTS)
def test_a_rule_gives_the_power_of_two_that_it_states(name: str, rule: str) -> None:
    sizes = magnitudes()
    codes = scale_codes(replace(SCALED_TYPES[name], rule=rule), sizes, 1.0)  # type: ignore[arg-type]
    assert codes.tolist() == [scale_exponent(ELEMENTS[name], rule, Fraction(one)) + 127 for one in sizes.tolist()]


def test_a_block_that_is_not_finite_has_no_scale() -> None:
    assert scale_codes(SCALED_TYPES["mxfp4"], np.array([np.nan, np.inf, 1.0]), 1.0).tolist() == [255, 255, 125]
    assert scale_codes(SCALED_TYPES["nvfp4"], np.array([np.nan, np.inf]), 1.0).tolist() == [0x7F, 0x7F]


def test_the_nearest_scale_is_that_of_the_exact_quotient() -> None:
    random = np.random.default_rng(0)
    sizes = np.abs(random.standard_normal(500).astype(np.float32)).astype(np.float64)
    whole = tensor_scale_of(SCALED_TYPES["nvfp4"], sizes)
    assert whole == float32_of(Fraction(sizes.max()) / (6 * 448))
    codes = scale_codes(SCALED_TYPES["nvfp4"], sizes, whole)
    assert [E4M3.values[code] for code in codes] == [
        E4M3.nearest(Fraction(one) / (E2M1.largest * Fraction(whole))) for one in sizes.tolist()
    ]


def test_the_scale_of_a_tensor_is_a_positive_float32_whatever_the_numbers() -> None:
    nvfp4 = SCALED_TYPES["nvfp4"]
    assert tensor_scale_of(nvfp4, np.zeros(3)) == 1.0
    assert tensor_scale_of(nvfp4, np.array([1e-45, np.inf, np.nan])) == 2.0**-149
    assert tensor_scale_of(nvfp4, np.array([1e300])) == np.finfo(np.float32).max
    assert tensor_scale_of(SCALED_TYPES["mxfp4"], np.array([5.0])) == 1.0


@pytest.mark.parametrize(("es", "largest"), [(0, 1.96875), (2, 15.0)])
def test_a_posit_is_scaled_to_where_its_fraction_is_longest(es: int, largest: float) -> None:
    format = Posit(8, es)
    assert full_largest(format) == largest
    numbers = format.to_numbers(np.arange(1, 128, dtype=np.uint8))
    gaps = np.diff(numbers)[(numbers[:-1] < largest) & (numbers[:-1] >= 2.0**format.top_exponent)]
    assert len(set(gaps.tolist())) == 1 and len(gaps) == 2 ** (format.significant - 1) - 1
    name = "custom[posit]8" if es else "custom[posit_es0]8"
    code = scale_codes(ScaledType(name, block=None), np.array([100.0]), 1.0)[0]
    assert 2.0**format.top_exponent <= 100 / 2.0 ** (int(code) - 127) < 2.0 ** (format.top_exponent + 1)


def test_an_element_is_the_exact_quotient_rounded_and_0_under_a_scale_of_0_or_nan() -> None:
    number = np.array([1.0, 1.0, 1.0, 5.0])
    nvfp4 = SCALED_TYPES["nvfp4"]
    scales = np.array([0x00, 0x7F, 0x38, 0x38], np.uint8)  # 0, NaN, 1, 1
    codes = evaluate(lambda x, s: scaled_element(nvfp4, x, s, x.constant(2.0), "nearest"), number, scales)
    assert [E2M1.values[code] for code in codes] == [0, 0, Fraction(1, 2), 2]
