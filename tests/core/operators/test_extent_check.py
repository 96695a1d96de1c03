"""Shapes that are stated of a result: an error where computed operands make others, whatever the operator."""

from __future__ import annotations

import math
import re

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graft
from graft.core.graph.view import NodeView
from graft.core.importer.load import load
from graft.core.operators.extent_check import extent_check
from graft.core.tensor_ir.interpreting import machine_arithmetic
from graft.core.tensor_ir.verifying.verifier import verify
from graft.errors import RunError

HEADER = '<ir_version: 10, opset_import: ["" : 20]>'


def array(*numbers: float) -> np.ndarray:
    return np.array(numbers)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


CASES = {
    "Pad": ("(float[6] x, int64[2] p) => (float[8] y) { y = Pad (x, p) }", (zeros(6), array(1, 1)), array(2, 3)),
    "TopK": (
        "(float[6] x, int64[1] k) => (float[3] y, int64[3] i) { y, i = TopK (x, k) }",
        (zeros(6), array(3)), array(2),
    ),
    "Split": (
        "(float[6] x, int64[2] s) => (float[3] y, float[3] z) { y, z = Split <axis = 0> (x, s) }",
        (zeros(6), array(3, 3)), array(2, 4),
    ),
    "Resize": (
        "(float[1,1,4,4] x, int64[4] s) => (float[1,1,8,8] y) { y = Resize (x, , , s) }",
        (zeros(1, 1, 4, 4), array(1, 1, 8, 8)), array(1, 1, 6, 8),
    ),
    "Slice": (
        "(float[6] x, int64[1] s, int64[1] e) => (float[3] y) { y = Slice (x, s, e) }",
        (zeros(6), array(-4), array(-1)), array(9),
    ),
    "ReduceSum": (
        "(float[6,4] x, int64[1] a) => (float[6,1] y) { y = ReduceSum (x, a) }", (zeros(6, 4), array(-1)), array(0)
    ),
    "Reshape": (
        "(float[6] x, int64[2] s) => (float[3,2] y) { y = Reshape (x, s) }", (zeros(6), array(3, -1)), array(2, 3)
    ),
    "Expand": (
        "(float[1,3] x, int64[2] s) => (float[4,3] y) { y = Expand (x, s) }", (zeros(1, 3), array(4, 1)), array(2, 3)
    ),
    "Range in steps of 0": (
        "(int64 a, int64 s) => (int64[5] y) <int64 b = {5}> { y = Range (a, b, s) }",
        (np.int64(0), np.int64(1)), np.int64(0),
    ),
    "Tile": (
        "(float[2,3] x, int64[2] s) => (float[4,3] y) { y = Tile (x, s) }", (zeros(2, 3), array(2, 1)), array(3, 1)
    ),
    "OneHot": (
        "(int64[2] x, float[2] v, int64 d) => (float[2,4] y) { y = OneHot (x, d, v) }",
        (array(0, 1), zeros(2), np.array(4)), np.array(3),
    ),
    "Range": (
        "(int64 a, int64 c, int64 b) => (int64[4] y) { y = Range (a, b, c) }",
        (np.array(7), np.array(-2), np.array(0)), np.array(2),
    ),
    "ConstantOfShape": ("(int64[1] s) => (float[4] y) { y = ConstantOfShape (s) }", (array(4),), array(3)),
    "Unsqueeze": (
        "(float[2,3] x, int64[1] s) => (float[1,2,3] y) { y = Unsqueeze (x, s) }", (zeros(2, 3), array(-3)), array(2)
    ),
    "Squeeze": (
        "(float[1,1,4] x, int64[1] s) => (float[1,4] y) { y = Squeeze (x, s) }", (zeros(1, 1, 4), array(1)), array(2)
    ),
    "CenterCropPad": (
        "(float[8] x, int64[1] s) => (float[4] y) { y = CenterCropPad <axes = [0]> (x, s) }", (zeros(8), array(4)),
        array(3),
    ),
}  # fmt: skip
"""By operator: a model whose last operand decides a shape that is stated, right inputs, and a wrong last one."""


@pytest.mark.parametrize("operator", CASES)
def test_a_shape_that_is_stated_is_compared_with_what_the_operands_make(operator: str) -> None:
    text, inputs, wrong = CASES[operator]
    program = graft.compile(onnx.parser.parse_model(f"{HEADER} g {text}"), ["llvm"], strict=True)
    results = program(*inputs)
    assert (results[0] if isinstance(results, tuple) else results).shape == program.outputs[0].shape
    with pytest.raises(RunError, match=r"the operands make the extent -?\d+ of axis \d of the result, but the model"):
        program(*inputs[:-1], wrong)


def node_of(text: str) -> NodeView:
    model = load(onnx.parser.parse_model(f"{HEADER} g {text}"))
    return NodeView(model.graph[0])


def computed(node: NodeView, *arrays: np.ndarray) -> int:
    """Return what the check says of axis 0 of a result of which 1000 elements are stated."""
    check = extent_check("check", node)
    assert check is not None
    function, numbers = check
    verify(function)
    with pytest.raises(IndexError) as caught:
        machine_arithmetic.run_function(function, [arrays[number] for number in numbers])
    (found,) = re.findall(r"extent (-?\d+) of axis 0", str(caught.value))
    return int(found)


SLICE = node_of(
    "(float[n] x, int64[1] s, int64[1] e, int64[1] a, int64[1] t) => (float[1000] y) { y = Slice (x, s, e, a, t) }"
)
RANGES = [
    node_of(f"({kind} a, {kind} b, {kind} c) => ({kind}[1000] y) {{ y = Range (a, b, c) }}")
    for kind in ("int64", "float")
]
SCALED = node_of("(float[n] x, float[0] r, float[1] s) => (float[1000] y) { y = Resize (x, r, s) }")

BOUNDS = st.integers(-9, 9) | st.sampled_from([-(1 << 40), 1 << 40])


@settings(max_examples=60)
@given(extent=st.integers(0, 7), start=BOUNDS, end=BOUNDS, step=st.integers(-3, 3).filter(bool))
def test_a_slice_has_as_many_elements_as_in_python(extent: int, start: int, end: int, step: int) -> None:
    start = start if step > 0 else max(start, -extent)  # in front of an array, Python begins nowhere and ONNX at 0
    taken = zeros(extent)[start : None if step < 0 and end < -extent else end : step]
    given = (zeros(extent), *map(array, (start, end, -1, step)))
    assert computed(SLICE, *given) == len(taken)


@settings(max_examples=30)
@given(start=st.integers(-9, 9), limit=st.integers(-9, 9), step=st.integers(-4, 4).filter(bool), is_float=st.booleans())
def test_a_range_has_as_many_elements_as_in_python(start: int, limit: int, step: int, is_float: bool) -> None:
    kind = np.float32 if is_float else np.int64
    numbers = (np.array(one, kind) for one in (start, limit, step))
    assert computed(RANGES[is_float], *numbers) == len(range(start, limit, step))


@given(extent=st.integers(1, 40), scale=st.floats(0.25, 4, width=32))
@settings(max_examples=30)
def test_scales_are_multiplied_as_float32_and_rounded_down(extent: int, scale: float) -> None:
    product = np.float32(extent) * np.float32(scale)
    assert computed(SCALED, zeros(extent), zeros(0), np.array([scale], np.float32)) == math.floor(product)


def test_a_shape_that_only_constants_decide_is_not_checked() -> None:
    node = node_of("(float[6] x) => (float[9] y) <int64[2] p = {1, 2}> { y = Pad (x, p) }")
    assert extent_check("check", node) is None
