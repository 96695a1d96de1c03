"""Integers that nobody gave stay inside of what a model indexes by them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import graft
from graft.core.shapes.sample_inputs import sample_inputs

CASES = {
    "OneHot": (
        "int64[64] i", "float[64,9] y",
        "d = Constant <value_int = 9> () v = Constant <value = float[2] {0, 1}> () y = OneHot (i, d, v)", 9,
    ),
    "OneHot along its first axis": (
        "int64[64] i", "float[9,64] y",
        "d = Constant <value_int = 9> () v = Constant <value = float[2] {0, 1}> () y = OneHot <axis = 0> (i, d, v)", 9,
    ),
    "Gather of a cast": (
        "int32[64] i, float[7,2] t", "float[64,2] y", "j = Cast <to = 7> (i) y = Gather (t, j)", 7,
    ),
    "GatherND": ("int64[64,2] i, float[7,5,2] t", "float[64,2] y", "y = GatherND (t, i)", 5),
    "the smaller of two tables": (
        "int64[64] i, float[7,2] t, float[4,2] u", "float[64,2] y",
        "a = Gather (t, i) b = Gather (u, i) y = Add (a, b)", 4,
    ),
    "no table": ("int64[64] i", "int64[64] y", "y = Neg (i)", 2),
}  # fmt: skip
"""Inputs, the result, the nodes, and how many numbers the input ``i`` takes."""


@pytest.mark.parametrize("name", CASES)
def test_integers_run_over_the_rows_that_they_choose_from(name: str) -> None:
    inputs, output, nodes, count = CASES[name]
    text = f'<ir_version: 10, opset_import: ["" : 23]> g ({inputs}) => ({output}) {{ {nodes} }}'
    sampled = sample_inputs(graft.load(parser.parse_model(text)))["i"]
    assert set(np.unique(sampled)) == set(range(count))
