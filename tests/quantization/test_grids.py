"""Grids: the nearest number, the one toward zero, and drawn ones, against all numbers of a type and exact distances."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest

from graft.quantization.grids import GRIDS

FLOATS = {
    "float8e4m3fn": ml_dtypes.float8_e4m3fn, "float8e5m2": ml_dtypes.float8_e5m2,
    "float4e2m1": ml_dtypes.float4_e2m1fn, "float6e2m3": ml_dtypes.float6_e2m3fn,
    "float6e3m2": ml_dtypes.float6_e3m2fn,
}  # fmt: skip


@cache
def numbers(name: str) -> list[Fraction]:
    """All finite numbers of a type, in order."""
    if name in FLOATS:
        codes = np.arange(2 ** GRIDS[name].bits).astype(np.uint8).view(FLOATS[name]).astype(np.float64)
        return sorted({Fraction(float(one)) for one in codes if np.isfinite(one)})
    bits = int(name.removeprefix("u").removeprefix("int"))
    low = 0 if name.startswith("u") else -(2 ** (bits - 1))
    return [Fraction(one) for one in range(low, low + 2**bits)]


def samples(name: str) -> np.ndarray:
    """Numbers, midpoints and what is next to them, and some beyond both ends, as float32."""
    all_numbers = numbers(name)
    chosen = all_numbers if len(all_numbers) < 300 else all_numbers[:: len(all_numbers) // 100]
    middles = [(a + b) / 2 for a, b in pairwise(chosen)]
    exact = np.array([float(one) for one in (*chosen, *middles)], np.float32)
    ends = np.array([2 * float(all_numbers[0]) - 1, 2 * float(all_numbers[-1]) + 1, -0.3, 0.3], np.float32)
    up, down = np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(-np.inf))
    return np.concatenate([exact, up, down, ends])


@pytest.mark.parametrize("name", GRIDS)
def test_the_ends_of_a_grid_are_those_of_its_type(name):
    exact = numbers(name)
    assert (GRIDS[name].low, GRIDS[name].high) == (float(exact[0]), float(exact[-1]))
    assert GRIDS[name].smallest == float(min(one for one in exact if one > 0))


@pytest.mark.parametrize("name", GRIDS)
def test_the_nearest_number_is_nearest_by_exact_distance(name):
    exact = np.array(numbers(name), dtype=object)
    wide = exact.astype(np.float64)
    for x, found in zip(samples(name), GRIDS[name].nearest(samples(name)), strict=True):
        place = int(np.searchsorted(wide, float(x)))
        around = exact[max(place - 1, 0) : place + 2]
        least = min(abs(one - Fraction(float(x))) for one in around)
        assert abs(Fraction(float(found)) - Fraction(float(x))) == least
        assert Fraction(float(found)) in set(around)


@pytest.mark.parametrize("name", GRIDS)
def test_toward_zero_is_the_largest_number_that_is_no_larger(name):
    exact = numbers(name)
    wide = np.array([float(one) for one in exact])
    for x, found in zip(samples(name), GRIDS[name].toward_zero(samples(name)), strict=True):
        inside = min(max(Fraction(float(x)), exact[0]), exact[-1])
        place = int(np.searchsorted(wide, float(inside)))
        around = exact[max(place - 1, 0) : place + 2]
        wanted = max((one for one in around if abs(one) <= abs(inside) and one * inside >= 0), key=abs)
        assert Fraction(float(found)) == wanted


@pytest.mark.parametrize("name", ["int8", "float8e4m3fn", "float8e5m2"])
def test_drawn_numbers_are_one_of_two_and_have_the_mean(name):
    x = np.full(100_000, 2.3125, np.float32)
    found = GRIDS[name].stochastic(x, 1, "w").astype(np.float64)
    below = float(GRIDS[name].toward_zero(x)[0])
    above = found[found != below][0]
    assert set(np.unique(found)) == {below, above}
    spread = (above - below) / 2 / np.sqrt(len(x))
    assert abs(found.mean() - 2.3125) < 4 * spread


def test_draws_depend_on_the_seed_and_the_name_alone():
    x = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    grid = GRIDS["int8"]
    assert np.array_equal(grid.stochastic(x, 1, "w"), grid.stochastic(x, 1, "w"))
    assert not np.array_equal(grid.stochastic(x, 1, "w"), grid.stochastic(x, 2, "w"))
    assert not np.array_equal(grid.stochastic(x, 1, "w"), grid.stochastic(x, 1, "v"))


def test_a_number_of_the_grid_is_never_drawn_away():
    for name in FLOATS:
        own = np.array([float(one) for one in numbers(name)], np.float32)
        assert np.array_equal(GRIDS[name].stochastic(own, 3, "w"), own)


@pytest.mark.parametrize(("name", "kind", "largest"), [("float6e2m3", np.int8, 60), ("float6e3m2", np.int16, 448)])
def test_floats_that_onnx_has_not_are_stored_as_multiples_of_the_smallest(name, kind, largest):
    grid, every = GRIDS[name], np.array([float(one) for one in numbers(name)], np.float32)
    stored = grid.stored(every)
    assert (stored.dtype, int(stored.max())) == (kind, largest)
    assert np.array_equal(stored * np.float32(grid.unit), every)
