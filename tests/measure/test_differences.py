"""How far arrays are from what they should be."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from graft.measure.differences import difference


@pytest.mark.parametrize(
    ("actual", "expected", "ok"),
    [
        ([1.0, 2.0], [1.0, 2.0005], True),
        ([1.0, 2.0], [1.0, 2.1], False),
        ([math.nan, math.inf], [math.nan, math.inf], True),
        ([math.nan], [1.0], False),
        ([1.0], [math.nan], False),
        ([1.0], [math.inf], False),
        ([math.inf], [-math.inf], False),
        ([math.inf], [1.0], False),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_differences_are_judged(actual: list[float], expected: list[float], ok: bool, dtype: type) -> None:
    result = difference(np.array(actual, dtype), np.array(expected, dtype), 1e-3, 1e-4)
    assert result.ok is ok
    assert ok == (result.max_abs < 1e-2)


def test_other_types_and_shapes_are_judged() -> None:
    assert difference(np.array([True]), np.array([True]), 0, 0).ok
    assert not difference(np.array([True]), np.array([False]), 1, 1).ok
    assert not difference(np.zeros(2), np.zeros(3), 1, 1).ok
    assert not difference(np.zeros(2, np.float32), np.zeros(2), 1, 1).ok
    assert difference(np.zeros((0, 2)), np.zeros((0, 2)), 0, 0).ok
    assert not difference(np.array([1 + 1j]), np.array([1 - 1j]), 1e-3, 1e-3).ok
