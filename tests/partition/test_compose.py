from __future__ import annotations

import numpy as np
import onnx_ir as ir
from hypothesis import given, settings

from graft.partition.compose import compose
from graft.patterns import Composite, is_composite, is_op, wildcard
from graft.patterns.matching import extract
from tests.partition.graphs import inputs_for, random_models, run_reference, small

ROWS = (
    Composite("toy.add_relu", is_op("Relu")(is_op("Add")(wildcard(), wildcard()))),
    Composite("toy.mul_add", is_op("Mul")(wildcard(), wildcard()) + wildcard()),
)


def test_the_graph_calls_composites_and_keeps_the_other_nodes() -> None:
    composed = compose(small("a = Add(x, x)\nb = Relu(a)\ny = Exp(b)"), ROWS)
    assert [(node.domain, node.op_type) for node in composed.graph] == [
        ("graft.composite", "toy_add_relu_0"), ("", "Exp"),
    ]  # fmt: skip
    found = extract(is_op("Exp")(is_composite("toy.add_relu")(wildcard(), ...)), composed.graph)
    assert [str(match) for match in found] == ["toy_add_relu_0 (node 'toy_add_relu_0') -> Exp (node 'y')"]


@settings(max_examples=30, deadline=None)
@given(random_models())
def test_composing_keeps_the_meaning(model: ir.Model) -> None:
    before = run_reference(model, inputs_for(model))
    after = run_reference(compose(model, ROWS), inputs_for(model))
    for left, right in zip(before, after, strict=True):
        np.testing.assert_array_equal(left, right)
