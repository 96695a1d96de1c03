"""Nodes that passes put into a graph: where they stand, what they are called and what they stand for."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

import graft
from graft.core.rewriting.node_pass import Names
from graft.core.rewriting.node_rewrite import ORIGIN
from graft.core.rewriting.writer import Writer

MODEL = """<ir_version: 10, opset_import: ["" : 23]> g (float[2,3] x) => (float[2,3] y) {
    a = Relu (x) b = Softmax <axis = 0> (a) y = Neg (b) }"""


@pytest.fixture
def model() -> ir.Model:
    return graft.load(parser.parse_model(MODEL))


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def test_a_node_stands_before_the_one_that_it_stands_for(model: ir.Model) -> None:
    softmax = model.graph[1]
    found = Writer(softmax, Names(model)).emit("Exp", [softmax.inputs[0]], ir.DataType.FLOAT, (2, 3))
    maker = found.producer()
    assert operators(model) == ["Relu", "Exp", "Softmax", "Neg"]
    assert maker is not None
    assert maker.metadata_props[ORIGIN] == softmax.name
    assert found.dtype is ir.DataType.FLOAT
    assert found.shape == ir.Shape((2, 3))


def test_nodes_may_stand_behind_what_they_read_and_for_several(model: ir.Model) -> None:
    relu, softmax, negated = model.graph
    found = Writer(negated, Names(model), [softmax], after=True).transposed(relu.outputs[0], 1, 0)
    maker = found.producer()
    assert operators(model) == ["Relu", "Transpose", "Softmax", "Neg"]
    assert maker is not None
    assert maker.metadata_props[ORIGIN] == f"{softmax.name},{negated.name}"


def test_names_are_fresh(model: ir.Model) -> None:
    writer = Writer(model.graph[1], Names(model))
    values = [writer("Exp", model.graph.inputs[0]) for _ in range(2)]
    makers = [value.producer() for value in values]
    assert len({value.name for value in values} | {maker.name for maker in makers if maker is not None}) == 4


def test_an_operator_is_written_again_with_attributes_that_change(model: ir.Model) -> None:
    softmax = model.graph[1]
    found = Writer(softmax, Names(model)).again(softmax.inputs, ir.DataType.FLOAT, (2, 3), axis=1)
    maker = found.producer()
    assert maker is not None
    assert (maker.op_type, maker.attributes["axis"].as_int(), softmax.attributes["axis"].as_int()) == ("Softmax", 1, 0)


def test_constants_are_named_after_the_node(model: ir.Model) -> None:
    softmax = model.graph[1]
    writer = Writer(softmax, Names(model))
    whole, numbers = writer.constant("scale", np.array(2.0, np.float32)), writer.ints(3, 4)
    assert whole.name == f"{softmax.name}_scale"
    assert numbers.const_value is not None
    assert numbers.const_value.numpy().tolist() == [3, 4]


@pytest.mark.parametrize("source", ["an input", "a result"])
def test_an_output_of_the_graph_keeps_its_name(model: ir.Model, source: str) -> None:
    relu, _, negated = model.graph
    value = model.graph.inputs[0] if source == "an input" else relu.outputs[0]
    Writer(negated, Names(model)).replace(value)
    (output,) = model.graph.outputs
    assert output.name == "y"
    assert operators(model) == ["Relu", "Softmax", *(["Identity"] if source == "an input" else [])]
    assert output.shape == ir.Shape((2, 3))
