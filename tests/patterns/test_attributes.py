"""Attributes with their defaults, and axes counted from either end."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graft.patterns import (
    is_op,
)
from graft.patterns.attributes import attribute_of, from_front
from tests.patterns.graphs import graph_of, hits, root


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


CONV = {"inputs": "float[1,1,4,4] x, float[1,1,3,3] w", "outputs": "float[1,1,2,2] y"}


@pytest.mark.parametrize(
    ("body", "name", "value"),
    [
        ("y = Conv <group = 1> (x, w)", "group", 1),
        ("y = Conv(x, w)", "strides", [1, 1]),
        ("y = Conv(x, w)", "dilations", [1, 1]),
        ("y = Conv(x, w)", "pads", [0, 0, 0, 0]),
        ("y = Conv(x, w)", "kernel_shape", [3, 3]),
        ("y = Conv(x, w)", "no_such", None),
        ('y = Conv <auto_pad = "SAME_LOWER"> (x, w)', "pads", None),
        ('y = Conv <auto_pad = "SAME_LOWER"> (x, w)', "strides", [1, 1]),
        ('y = ConvTranspose <auto_pad = "SAME_UPPER"> (x, w)', "output_padding", [0, 0]),
        ("y = ConvTranspose(x, w)", "output_shape", None),
        ("y = MaxPool <kernel_shape = [2, 2]> (x)", "pads", [0, 0, 0, 0]),
        ("y = AveragePool <kernel_shape = [2, 2]> (x)", "strides", [1, 1]),
        ("y = Transpose(x)", "perm", [3, 2, 1, 0]),
        ("y = Resize(x, , w)", "axes", None),
        ("y = com.acme.Glue(x)", "axis", None),
    ],
)
def test_an_attribute_left_out_has_its_default(body: str, name: str, value: object) -> None:
    assert attribute_of(root(graph_of(body, **CONV)), name) == value


def test_defaults_that_follow_from_shapes_are_unknown_without_them() -> None:
    x, w = ir.Value(name="x"), ir.Value(name="w")
    conv, transpose = ir.Node("", "Conv", [x, w]), ir.Node("", "Transpose", [x])
    pool = ir.Node("", "MaxPool", [x])
    assert [attribute_of(conv, name) for name in ("strides", "pads", "kernel_shape")] == [None] * 3
    assert attribute_of(transpose, "perm") is None
    assert attribute_of(pool, "kernel_shape") is None
    w.shape = ir.Shape([8, 4, 3])
    assert [attribute_of(conv, name) for name in ("strides", "pads", "kernel_shape")] == [[1], [0, 0], [3]]
    x.shape = ir.Shape([1, 4])
    assert attribute_of(pool, "strides") is None
    quantized = ir.Node("", "QLinearConv", [None, None, None, w])
    assert attribute_of(quantized, "kernel_shape") == [3]


@pytest.mark.parametrize(
    ("operator", "domain", "name", "value", "counted"),
    [
        ("Softmax", "", "axis", -1, 3),
        ("Softmax", "", "axis", -4, 0),
        ("Softmax", "", "axis", 0, 0),
        ("Softmax", "ai.onnx", "axis", -1, 3),
        ("Softmax", "com.acme", "axis", -1, -1),
        ("Softmax", "", "group", -1, -1),
        ("OneHot", "", "axis", -1, 4),
        ("ReduceSum", "", "axes", (-1, 0), [3, 0]),
        ("ReduceSum", "", "axes", "all", "all"),
        ("ReduceSum", "", "axes", None, None),
    ],
)
def test_axes_are_counted_from_the_front(operator: str, domain: str, name: str, value: object, counted: object) -> None:
    node = ir.Node(domain, operator, [ir.Value(name="x", shape=ir.Shape([1, 2, 3, 4]))])
    assert from_front(node, name, value) == counted


def test_axes_stay_as_they_are_where_the_rank_is_not_known() -> None:
    for inputs in ([], [None], [ir.Value(name="x")]):
        assert from_front(ir.Node("", "Softmax", inputs), "axis", -1) == -1
