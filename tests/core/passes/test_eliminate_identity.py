"""Nodes that hand on their input disappear, but for those whose types and elements are codes of another format."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from graft.core.importer.load import load
from graft.core.passes.eliminate_identity import EliminateIdentity
from graft.core.types import CUSTOM_DOMAIN


def model_of(text: str) -> ir.Model:
    return load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {text}'))


def left(model: ir.Model) -> list[str]:
    EliminateIdentity().run(model)
    return [node.op_type for node in model.graph]


CASES = [
    ("g (uint32[4] x) => (uint32[4] y) { c = Cast <to = 12> (x) y = BitwiseNot (c) }", "Cast"),
    ("g (int32[4] x) => (int32[4] y) <int32 w = {0}> { c = Add (x, w) y = Neg (c) }", "Add"),
    ("g (float[4] x) => (float[4] y) <float w = {1}> { c = Mul (x, w) y = Neg (c) }", "Mul"),
    ("g (float[4,1] x) => (float[4,1] y) <int64[1] w = {1}> { c = ReduceSum (x, w) y = Neg (c) }", "ReduceSum"),
    ("g (float[4,1] x) => (float[4,1] y) <int64[1] w = {1}> { c = ReduceMax (x, w) y = Neg (c) }", "ReduceMax"),
    ("g (float[4] x) => (float[4] y) <int64[2] w = {0, 0}> { c = Pad (x, w) y = Neg (c) }", "Pad"),
]


@pytest.mark.parametrize(("text", "operator"), CASES)
def test_an_operator_of_onnx_that_changes_nothing_goes(text: str, operator: str) -> None:
    assert operator not in left(model_of(text))


@pytest.mark.parametrize(("text", "operator"), CASES)
def test_the_same_of_a_custom_datatype_stays(text: str, operator: str) -> None:
    """Its element type is that of the storage, and a constant 0 or 1 is a code."""
    model = model_of(text)
    for node in model.graph:
        node.domain = CUSTOM_DOMAIN
    assert operator in left(model)


def test_a_reduction_over_no_axis_goes_but_that_of_magnitudes_stays() -> None:
    text = (
        "g (float[4] x) => (float[4] y) <int64[0] w = {{}}> {{ c = {} <noop_with_empty_axes = 1> (x, w) y = Neg (c) }}"
    )
    assert left(model_of(text.format("ReduceSum"))) == ["Neg"]
    assert left(model_of(text.format("ReduceL1"))) == ["ReduceL1", "Neg"]


def test_a_view_that_keeps_its_shape_goes_whatever_its_elements_are() -> None:
    model = model_of("g (float[4] x) => (float[4] y) <int64[1] s = {4}> { c = Reshape (x, s) y = Neg (c) }")
    for node in model.graph:
        node.domain = CUSTOM_DOMAIN
    assert left(model) == ["Neg"]
