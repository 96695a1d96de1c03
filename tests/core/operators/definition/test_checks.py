"""Inputs whose extents contradict each other are refused: kernels would read the shorter one beyond its end."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx import parser

import graft
from graft.core.graph.view import NodeView
from graft.core.operators.definition import checks
from graft.errors import ModelError

IMAGE = "float[2,4,3,3] x"
LAYER = "float[5,2,6] x, float[1,9,6] w, float[1,9,3] r, float[1,18] b, int32[2] n, float[1,2,3] h"
HEADS = "float[2,4,3,8] x, float[2,4,5,8] k, float[2,4,5,8] v"
CASES = {
    "Conv": (
        f"{IMAGE}, float[6,4,1,1] w, float[4] c", "Conv (x, w, c)",
        "axis 0 of 'c' is 4 and axis 0 of 'w' is 6; they must be equal",
    ),
    "ConvTranspose": (
        f"{IMAGE}, float[4,3,1,1] w, float[3] c", "ConvTranspose <group = 2> (x, w, c)",
        "axis 0 of 'c' is 3 and 2 * 'w'[1] is 6; they must be equal",
    ),
    "InstanceNormalization": (
        f"{IMAGE}, float[1] s, float[4] c", "InstanceNormalization (x, s, c)",
        "axis 0 of 's' is 1 and axis 1 of 'x' is 4; they must be equal",
    ),
    "GroupNormalization": (
        f"{IMAGE}, float[4] s, float[2] c", "GroupNormalization <num_groups = 2> (x, s, c)",
        "axis 0 of 'c' is 2 and axis 1 of 'x' is 4; they must be equal",
    ),
    "Gemm": (
        "float[4,2] x, float[4,3] w, float[4,3] c", "Gemm <transA = 1> (x, w, c)",
        "axis 0 of 'c' is 4 and axis 0 of 'y' is 2; they must be equal, or the first 1",
    ),
    "GRU state": (
        LAYER.replace("[1,2,3]", "[1,1,3]"), "GRU <hidden_size = 3> (x, w, r, b, n, h)",
        "axis 1 of 'h' is 1 and axis 1 of 'x' is 2; they must be equal",
    ),
    "GRU recurrence": (
        LAYER.replace("[1,9,3]", "[1,9,4]"), "GRU <hidden_size = 3> (x, w, r, b, n, h)",
        "axis 1 of 'w' is 9 and 3 * 'r'[2] is 12; they must be equal",
    ),
    "Attention": (
        HEADS.replace("[2,4,5,8] v", "[2,4,4,8] v"), "Attention (x, k, v)",
        "axis 2 of 'v' is 4 and axis 2 of 'k' is 5; they must be equal",
    ),
    "DeformConv": (
        "float[2,4,5,5] x, float[4,4,3,3] w, float[2,18,3,3] o, float[4] c, float[1,9,3,3] m",
        "DeformConv (x, w, o, c, m)", "axis 0 of 'm' is 1 and axis 0 of 'x' is 2; they must be equal",
    ),
    "GatherElements": (
        "float[2,3] x, int64[3,3] i", "GatherElements <axis = 1> (x, i)",
        "axis 0 of 'i' is 3 and axis 0 of 'x' is 2; the first must be at most the second",
    ),
    "ScatterElements": (
        "float[2,3] x, int64[2,2] i, float[2,1] u", "ScatterElements <axis = 1> (x, i, u)",
        "axis 1 of 'i' is 2 and axis 1 of 'u' is 1; they must be equal",
    ),
    "ReverseSequence": (
        "float[3,2] x, int64[1] n", "ReverseSequence (x, n)",
        "axis 0 of 'n' is 1 and axis 1 of 'x' is 2; they must be equal",
    ),
    "DequantizeLinear": (
        "uint8[2,4] x, float[3] s", "DequantizeLinear <axis = 1> (x, s)",
        "axis 0 of 's' is 3 and axis 1 of 'x' is 4; they must be equal",
    ),
    "Conv of a wrong rank": (
        f"{IMAGE}, float[6,4,1,1] w, float[6,1] c", "Conv (x, w, c)", "'c' has rank 2, where 1 is expected",
    ),
    "Gemm of a wrong rank": (
        "float[2,4] x, float[4,3] w, float[1,2,3] c", "Gemm (x, w, c)", "'c' has rank 3, where at most 2 is expected",
    ),
    "GRU of a wrong rank": (
        LAYER.replace("[2] n", "[2,1] n"), "GRU <hidden_size = 3> (x, w, r, b, n, h)",
        "'n' has rank 2, where 1 is expected",
    ),
    "DeformConv of a wrong rank": (
        "float[2,4,5,5] x, float[4,4,3,3] w, float[2,18,3,3] o, float[4] c, float[2,9,3] m",
        "DeformConv (x, w, o, c, m)", "'m' has rank 3, where 4 is expected",
    ),
}  # fmt: skip
"""Inputs, the node and the fault."""
FITTING = (
    (f"{IMAGE}, float[6,4,1,1] w, float[c] c", "Conv (x, w, c)"),
    ("float[4,2] x, float[4,3] w, float[2,1] c", "Gemm <transA = 1> (x, w, c)"),
    ("float[4,2] x, float[4,3] w, float c", "Gemm <transA = 1> (x, w, c)"),
    (LAYER, "GRU <hidden_size = 3> (x, w, r, b, n, h)"),
    (HEADS, "Attention (x, k, v)"),
    ("float[2,3] x, int64[1,9] i", "GatherElements <axis = 1> (x, i)"),
    ("uint8[2,4] x, float[1] s", "DequantizeLinear <axis = 1> (x, s)"),
)


def load(inputs: str, node: str) -> None:
    graft.load(
        parser.parse_model(f'<ir_version: 10, opset_import: ["" : 23]> g ({inputs}) => (float y) {{ y = {node} }}')
    )


@pytest.mark.parametrize("name", CASES)
def test_inputs_that_contradict_each_other_are_refused(name: str) -> None:
    inputs, node, fault = CASES[name]
    with pytest.raises(ModelError) as caught:
        load(inputs, node)
    assert str(caught.value).endswith(f"): {fault}")


@pytest.mark.parametrize(("inputs", "node"), FITTING)
def test_inputs_that_fit_or_are_not_known_are_taken(inputs: str, node: str) -> None:
    load(inputs, node)


IN_FOUR = "is out of range: an axis of a tensor of rank 4 is in [-4, 3]"
ATTRIBUTES = (
    (checks.axis(), "axis = -4", None),
    (checks.axis(), "axis = 3", None),
    (checks.axis(), "axis = 4", f"axis 4 {IN_FOUR}"),
    (checks.axis(), "axis = -5", f"axis -5 {IN_FOUR}"),
    (checks.axis(past=1), "axis = 4", None),
    (checks.axis(past=1), "axis = 5", "axis 5 is out of range: an axis of a tensor of rank 4 is in [-4, 4]"),
    (checks.axis(more=1), "axis = -5", None),
    (checks.axis(), "other = 9", None),
    (checks.axis(default=9), "other = 9", f"axis 9 {IN_FOUR}"),
    (checks.axes("axes"), "axes = [0, -1]", None),
    (checks.axes("axes"), "axes = [0, 4]", f"axis 4 {IN_FOUR}"),
    (checks.axes("axes"), "axes = [3, -1]", "axes [3, -1] name one axis twice"),
    (checks.axes("axes", more=True), "axes = [5, -6]", None),
    (checks.axes("axes", more=True), "axes = [4, 6]",
     "axis 6 is out of range: an axis of a tensor of rank 6 is in [-6, 5]"),
    (checks.axes("axes"), "other = 1", None),
    (checks.axes(1), "other = 1", None),
    (checks.at_least(0, "e", "f"), "f = 0.0", None),
    (checks.at_least(0, "e", "f"), "e = 1.0, f = -0.5", "f is -0.5, where at least 0 is expected"),
    (checks.at_least(1, "e"), "e = [1, 0]", "e is [1, 0], where at least 1 is expected"),
    (checks.one_of("mode", "a", "b"), 'mode = "b"', None),
    (checks.one_of("mode", "a", "b"), "other = 1", None),
    (checks.one_of("mode", "a", "b"), 'mode = "c"', "mode is 'c', where one of 'a', 'b' is expected"),
    (checks.divides("groups", 1), "groups = 1", None),
    (checks.divides("groups", 1), "groups = 3", None),
    (checks.divides("groups", 1), "other = 4", None),
    (checks.divides("groups", 4), "groups = 4", None),
    (checks.divides("groups", 1), "groups = 0", "groups is 0, where at least 1 is expected"),
    (checks.divides("groups", 1), "groups = 4", "groups 4 does not fit axis 1 of extent 6, which 4 must divide"),
    (checks.divides("groups", 1, lambda n: n * n), "groups = 2",
     "groups 2 does not fit axis 1 of extent 6, which 4 must divide"),
)  # fmt: skip
"""A check, the attributes of a node whose first input is ``[2, 6, 3, n]``, and the fault."""


def node(attributes: str, inputs: str = "x", shape: str = "[2,6,3,n]") -> NodeView:
    own = f'<ir_version: 10, opset_import: ["own" : 1]> g (float{shape} x) => (float y)'
    constants = "<int64[1] past = {4}, int64[0] none = {}, int64[2] twice = {1, -3}>"
    text = f"{own} {constants} {{ y = own.Any <{attributes}> ({inputs}) }}"
    return NodeView(ir.from_proto(parser.parse_model(text)).graph[0])


@pytest.mark.parametrize(("check", "attributes", "fault"), ATTRIBUTES)
def test_attributes_are_checked_against_the_first_input(
    check: checks.Fault, attributes: str, fault: str | None
) -> None:
    assert check(node(attributes)) == fault


def test_a_scalar_has_one_axis_and_an_unknown_rank_has_any() -> None:
    assert checks.AXIS(node("axis = -1", shape="")) is None
    assert checks.AXIS(node("axis = 1", shape="")) == (
        "axis 1 is out of range: an axis of a tensor of rank 0 is in [-1, 0]"
    )
    for fault in (checks.AXIS, checks.axes("axes"), checks.divides("axis", 0)):
        assert fault(node("axis = 9, axes = [9]", shape="[]")) is None
        assert fault(node("axis = 9, axes = [9]", "")) is None


def test_axes_in_a_constant_input_are_checked_where_they_are_known() -> None:
    for fault in (checks.axes(1), checks.constant_axis(1)):
        assert fault(node("k = 1", "x, past")) == f"axis 4 {IN_FOUR}"
        for unknown in ("x, x", "x, none", "x"):
            assert fault(node("k = 1", unknown)) is None
    assert checks.axes(1)(node("k = 1", "x, twice")) == "axes [1, -3] name one axis twice"
