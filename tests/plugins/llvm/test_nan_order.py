"""Where NaN stands in the operators that give positions: every index is one of the input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graft
from tests.plugins.llvm.models import model_of

NAN = np.nan
ROWS = {
    "all": [NAN] * 5,
    "first": [NAN, 3, 1, 3, 2],
    "last": [3, 1, 3, 2, NAN],
    "some": [2, NAN, -np.inf, NAN, 3],
    "none": [-np.inf] * 5,
}
DTYPES = [np.float16, np.float32, np.float64]


def run(operator: str, x: np.ndarray, outputs: tuple[str, ...] = ("y",), **settings: Any) -> Any:
    return graft.compile(model_of(operator, {"x": x}, outputs, **settings), ["llvm"], threads=1)(x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", ROWS)
def test_arg_max_and_arg_min_give_the_first_nan_as_numpy_does(row: str, dtype: type) -> None:
    x = np.array([ROWS[row], [5, 4, 3, 2, 1]], dtype)
    np.testing.assert_array_equal(run("ArgMax", x, axis=1, keepdims=0), np.argmax(x, 1))
    np.testing.assert_array_equal(run("ArgMin", x, axis=1, keepdims=0), np.argmin(x, 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_takes_nan_for_the_greatest_number(row: str, largest: int, dtype: type) -> None:
    x = np.array(ROWS[row], dtype)
    values, indices = run("TopK", x, ("v", "i"), constants={"k": np.array([4])}, largest=largest)
    sign = -1 if largest else 1
    keys = [
        (sign * np.isnan(number), 0 if np.isnan(number) else sign * number, place) for place, number in enumerate(x)
    ]
    expected = [place for _, _, place in sorted(keys)][:4]
    assert indices.tolist() == expected
    np.testing.assert_array_equal(values, x[expected])


@pytest.mark.parametrize("storage_order", [0, 1])
def test_max_pool_gives_the_position_of_a_nan(storage_order: int) -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    x[0, 0, 1, 2] = NAN
    values, positions = run("MaxPool", x, ("y", "i"), kernel_shape=[2, 2], strides=[2, 2], storage_order=storage_order)
    flat = x.transpose(0, 1, 3, 2) if storage_order else x
    np.testing.assert_array_equal(flat.reshape(-1)[positions], values)
    assert np.isnan(values).sum() == 1


def test_hardmax_marks_the_first_nan() -> None:
    x = np.array([[1, NAN, 3, NAN], [1, 3, 3, 2]], np.float32)
    assert run("Hardmax", x).tolist() == [[0, 1, 0, 0], [0, 1, 0, 0]]
