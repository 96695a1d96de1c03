"""Attributes with their defaults, and axes counted from either end."""

from __future__ import annotations

import pytest

from graft.patterns import (
    is_op,
)
from tests.patterns.graphs import hits


def test_attributes_match_by_value_default_and_predicate() -> None:
    body = "y = Softmax <axis = 1> (x)"
    assert hits(is_op("Softmax").has_attr(axis=1), body) == ["y"]
    assert hits(is_op("Softmax").has_attr({"axis": 0}), body) is None
    assert hits(is_op("Softmax").has_attr(axis=-1), "y = Softmax(x)") == ["y"]
    assert hits(is_op("Softmax").has_attr(axis=lambda axis: axis > 0), body) == ["y"]
    assert hits(is_op("Elu").has_attr(alpha=1.0), "y = Elu(x)") == ["y"]
    assert hits(is_op("Transpose").has_attr(perm=[0, 1]), "y = Transpose <perm = [0, 1]> (x)") == ["y"]
    assert hits(is_op("Gelu").has_attr(approximate="none"), "y = Gelu(x)") == ["y"]


def test_attributes_left_out_have_the_defaults_that_onnx_states_in_words() -> None:
    conv = {"inputs": "float[1,1,4,4] x, float[1,1,3,3] w", "outputs": "float[1,1,2,2] y"}
    plain, padded = "y = Conv(x, w)", 'y = Conv <auto_pad = "SAME_UPPER"> (x, w)'
    defaults = {
        "strides": [1, 1], "dilations": [1, 1], "pads": [0, 0, 0, 0], "kernel_shape": [3, 3], "group": 1,
    }  # fmt: skip
    for name, value in defaults.items():
        assert hits(is_op("Conv").has_attr({name: value}), plain, **conv) == ["y"]
    assert hits(is_op("Conv").has_attr(strides=[2, 2]), plain, **conv) is None
    assert hits(is_op("Conv").has_attr(pads=[0, 0, 0, 0]), padded, **conv) is None
    assert hits(is_op("MaxPool").has_attr(strides=[1, 1]), "y = MaxPool <kernel_shape = [2, 2]> (x)", **conv) == ["y"]
    assert hits(is_op("Transpose").has_attr(perm=[1, 0]), "y = Transpose(x)", outputs="float[3,2] y") == ["y"]


@pytest.mark.parametrize("axis", [3, -1])
def test_an_axis_is_the_same_counted_from_either_end(axis: int) -> None:
    given = {"inputs": "float[1,2,3,4] x", "outputs": "float[1,2,3,4] y"}
    body = f"y = Softmax <axis = {axis}> (x)"
    for wanted in (3, -1):
        assert hits(is_op("Softmax").has_attr(axis=wanted), body, **given) == ["y"]
    assert hits(is_op("Softmax").has_attr(axis=-2), body, **given) is None
    assert hits(is_op("Softmax").has_attr(axis=lambda given: given == axis), body, **given) == ["y"]


def test_lists_of_axes_and_axes_of_a_larger_result_are_counted_from_either_end() -> None:
    given = {"inputs": "float[1,2,3,4] x", "outputs": "float[1,2,3,4] y"}
    norm = is_op("MeanVarianceNormalization")
    assert hits(norm.has_attr(axes=[0, -2, -1]), "y = MeanVarianceNormalization <axes = [0, 2, 3]> (x)", **given) == [
        "y"
    ]
    assert hits(norm.has_attr(axes=[0, 1]), "y = MeanVarianceNormalization <axes = [0, -2]> (x)", **given) is None
    one_hot = {"inputs": "int64[2,3] x, int64 d, float[2] v", "outputs": "float[2,3,5] y"}
    assert hits(is_op("OneHot").has_attr(axis=2), "y = OneHot(x, d, v)", **one_hot) == ["y"]
