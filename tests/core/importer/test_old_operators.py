"""Operators of old files that mean something else than those of today: slopes by channel, masks of the data's type."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft
from graft.errors import ModelError


def old(opset: int, text: str) -> onnx.ModelProto:
    """Return a model of an opset from its text."""
    return onnx.parser.parse_model(f'<ir_version: 3, opset_import: ["" : {opset}]> {text}')


@pytest.mark.parametrize("channels", [3, 5], ids=["as many as rows", "as many as columns"])
@pytest.mark.parametrize("backends", [None, ["reference"]], ids=["default", "reference"])
def test_slopes_of_files_before_opset_7_are_by_channel(channels: int, backends: list[str] | None) -> None:
    model = old(
        6, f"g (float[2,{channels},3,5] x, float[{channels}] s) => (float[2,{channels},3,5] y) {{ y = PRelu(x, s) }}"
    )
    x = np.random.default_rng(0).standard_normal((2, channels, 3, 5)).astype(np.float32)
    slope = np.arange(1, channels + 1, dtype=np.float32)
    y = graft.compile(model, backends)(x, slope)
    np.testing.assert_array_equal(y, np.where(x < 0, x * slope[:, None, None], x))


def test_one_slope_of_an_old_file_is_for_all_channels() -> None:
    model = old(6, "g (float[2,3,4] x, float[1] s) => (float[2,3,4] y) { y = PRelu(x, s) }")
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    y = graft.compile(model, ["reference"])(x, np.array([2], np.float32))
    np.testing.assert_array_equal(y, np.where(x < 0, 2 * x, x))


def test_slopes_by_channel_of_a_new_file_are_refused() -> None:
    model = old(7, "g (float[2,3,5] x, float[3] s) => (float[2,3,5] y) { y = PRelu(x, s) }")
    with pytest.raises(ModelError) as caught:
        graft.compile(model, ["reference"])
    assert caught.value.message == (
        "PRelu (node 'y'): axis 0 of 's' is 3 and axis 2 of 'x' is 5; they must be equal, or the first 1"
    )


@pytest.mark.parametrize("backends", [None, ["reference"]], ids=["default", "reference"])
@pytest.mark.parametrize("opset", [1, 6, 7, 9])
def test_masks_of_dropout_before_opset_10_are_of_the_type_of_the_data(opset: int, backends: list[str] | None) -> None:
    attributes = "<is_test = 1>" if opset < 7 else ""
    model = old(opset, f"g (float[2,3] x) => (float[2,3] y, float[2,3] m) {{ y, m = Dropout {attributes}(x) }}")
    x = np.ones((2, 3), np.float32)
    y, mask = graft.compile(model, backends)(x)
    np.testing.assert_array_equal(y, x)
    assert mask.dtype == np.float32


@pytest.mark.parametrize("backends", [None, ["reference"]], ids=["default", "reference"])
def test_a_mask_of_dropout_that_is_computed_with_is_converted(backends: list[str] | None) -> None:
    model = old(7, "g (float[n,3] x) => (float[n,3] y) { a, m = Dropout(x) y = Mul(a, m) }")
    x = np.full((2, 3), 4, np.float32)
    np.testing.assert_array_equal(graft.compile(model, backends)(x), x)


def test_dropout_that_trains_in_an_old_file_is_refused() -> None:
    model = old(6, "g (float[2,3] x) => (float[2,3] y) { y = Dropout<is_test = 0>(x) }")
    with pytest.raises(ModelError) as caught:
        graft.compile(model, ["reference"])
    assert caught.value.message == (
        "Dropout (node 'y'): is_test is 0, which asks for training, which Graft takes from opset 12 on; leave it out, "
        "or set it to 1"
    )
