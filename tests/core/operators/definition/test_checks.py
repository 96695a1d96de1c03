"""Inputs whose extents contradict each other are refused: kernels would read the shorter one beyond its end."""

from __future__ import annotations

import pytest
from onnx import parser

import graft
from graft.errors import ModelError

IMAGE = "float[2,4,3,3] x"
LAYER = "float[5,2,6] x, float[1,9,6] w, float[1,9,3] r, float[1,18] b, int32[2] n, float[1,2,3] h"
HEADS = "float[2,4,3,8] x, float[2,4,5,8] k, float[2,4,5,8] v"
CASES = {
    "Conv": (
        f"{IMAGE}, float[6,4,1,1] w, float[4] c", "Conv (x, w, c)",
        "'c' has shape [4] where its other inputs want [6]",
    ),
    "ConvTranspose": (
        f"{IMAGE}, float[4,3,1,1] w, float[3] c", "ConvTranspose <group = 2> (x, w, c)",
        "'c' has shape [3] where its other inputs want [6]",
    ),
    "InstanceNormalization": (
        f"{IMAGE}, float[1] s, float[4] c", "InstanceNormalization (x, s, c)",
        "'s' has shape [1] where its other inputs want [4]",
    ),
    "GroupNormalization": (
        f"{IMAGE}, float[4] s, float[2] c", "GroupNormalization <num_groups = 2> (x, s, c)",
        "'c' has shape [2] where its other inputs want [4]",
    ),
    "Gemm": (
        "float[4,2] x, float[4,3] w, float[4,3] c", "Gemm <transA = 1> (x, w, c)",
        "its third input has shape [4,3], which does not broadcast to [2,3]",
    ),
    "GRU state": (
        LAYER.replace("[1,2,3]", "[1,1,3]"), "GRU <hidden_size = 3> (x, w, r, b, n, h)",
        "'h' has shape [1,1,3] where its other inputs want [1,2,3]",
    ),
    "GRU recurrence": (
        LAYER.replace("[1,9,3]", "[1,9,4]"), "GRU <hidden_size = 3> (x, w, r, b, n, h)",
        "'r' has shape [1,9,4] where its other inputs want [1,9,3]",
    ),
    "Attention": (
        HEADS.replace("[2,4,5,8] v", "[2,4,4,8] v"), "Attention (x, k, v)",
        "'v' has shape [2,4,4,8] where its other inputs want [2,4,5,?]",
    ),
    "DeformConv": (
        "float[2,4,5,5] x, float[4,4,3,3] w, float[2,18,3,3] o, float[4] c, float[1,9,3,3] m",
        "DeformConv (x, w, o, c, m)", "'m' has shape [1,9,3,3] where its other inputs want [2,9,?,?]",
    ),
    "GatherElements": (
        "float[2,3] x, int64[3,3] i", "GatherElements <axis = 1> (x, i)",
        "its indices have shape [3,3], more along axis 0 than the data, [2,3]",
    ),
    "ScatterElements": (
        "float[2,3] x, int64[2,2] i, float[2,1] u", "ScatterElements <axis = 1> (x, i, u)",
        "'u' has shape [2,1] where its other inputs want [2,2]",
    ),
    "ReverseSequence": (
        "float[3,2] x, int64[1] n", "ReverseSequence (x, n)", "'n' has shape [1] where its other inputs want [2]",
    ),
    "DequantizeLinear": (
        "uint8[2,4] x, float[3] s", "DequantizeLinear <axis = 1> (x, s)", "it has 3 scales for axis 1 of extent 4",
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
