"""Calibration: each rule against what it is defined as, on elements rather than bins."""

from __future__ import annotations

import numpy as np
import pytest

from graft.quantization.calibration import calibrated, entropy, least_error, min_max, percentile
from graft.quantization.grids import GRIDS
from graft.quantization.recipe import CHOICES, Scaling
from graft.quantization.statistics.histogram import Histogram

INT8 = GRIDS["int8"]
ASYMMETRIC = Scaling(symmetric=False)


def of(x: np.ndarray) -> Histogram:
    found = Histogram()
    for piece in np.array_split(x.astype(np.float32), 7):
        found.add(piece)
    return found


def error(x: np.ndarray, scale: float, zero: float) -> float:
    codes = np.clip(np.rint(x / scale) + zero, -128, 127)
    return float(np.mean(((codes - zero) * scale - x) ** 2))


def test_the_whole_range_is_that_of_the_elements():
    x = np.random.default_rng(0).normal(size=1000)
    assert min_max(of(x), ASYMMETRIC, INT8) == (np.float32(x.min()), np.float32(x.max()))


def test_a_percentile_leaves_out_that_share():
    x = np.random.default_rng(1).standard_t(3, 50_000)
    low, high = percentile(of(x), Scaling(percentile=99.0), INT8)
    assert abs(np.mean((x < low) | (x > high)) - 0.01) < 0.002
    assert abs(np.mean(x < low) - np.mean(x > high)) < 0.002


@pytest.mark.parametrize("draw", ["normal", "standard_cauchy", "exponential"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_least_error_is_near_the_least_of_a_fine_search(draw, symmetric):
    x = getattr(np.random.default_rng(2), draw)(size=20_000)
    x = np.clip(x, -60, 60)
    scale, zero = calibrated(of(x), Scaling(symmetric=symmetric, calibration="mse"), INT8)
    whole = calibrated(of(x), Scaling(symmetric=symmetric), INT8)
    found = error(x, scale, zero)
    best = min(error(x, float(whole[0]) * share, zero) for share in np.linspace(0.4, 1, 121))
    assert found <= error(x, *whole) * 1.001
    assert found <= best * 1.05


def test_an_outlier_is_clipped_by_all_rules_but_the_range():
    x = np.concatenate([np.random.default_rng(3).normal(size=60_000), [200.0]])
    rules = {rule: Scaling(calibration=rule, percentile=99.99) for rule in CHOICES["calibration"]}
    scales = {rule: float(calibrated(of(x), one, INT8)[0]) for rule, one in rules.items()}
    assert scales["minmax"] == pytest.approx(200 / 127)
    assert all(scale < 0.8 * scales["minmax"] for rule, scale in scales.items() if rule != "minmax")


def test_entropy_keeps_a_range_that_is_filled_evenly():
    x = np.random.default_rng(4).uniform(-1, 1, 60_000)
    low, high = entropy(of(x), Scaling(), INT8)
    assert low < -0.95
    assert high > 0.95


def test_many_zeros_do_not_narrow_the_range_by_entropy():
    x = np.maximum(np.random.default_rng(5).normal(size=60_000), 0)
    assert entropy(of(x), Scaling(), INT8)[1] > 2


@pytest.mark.parametrize("rule", CHOICES["calibration"])
@pytest.mark.parametrize("name", ["int8", "uint8", "uint4", "float8e4m3fn"])
def test_zeros_alone_have_a_scale(rule, name):
    scale, zero = calibrated(of(np.zeros(100)), Scaling(calibration=rule, symmetric=False), GRIDS[name])
    assert scale == 1
    assert GRIDS[name].low <= zero <= GRIDS[name].high


def test_the_error_of_an_asymmetric_range_is_sought_at_both_ends():
    x = np.concatenate([np.random.default_rng(6).normal(size=60_000), [-90.0, 30.0]])
    low, high = least_error(of(x), ASYMMETRIC, INT8)
    assert -90 < low < -3
    assert 3 < high < 30
