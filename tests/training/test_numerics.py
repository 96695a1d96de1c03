"""The first node that gives a NaN or an infinity, in a model, in its gradient, and in a step of training."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import graft
from graft.errors import RunError
from graft.training import SGD, Trainer, check_numerics

TEXT = """<ir_version: 10, opset_import: ["" : 22]> net (float[3] x) => (float loss)
    <float[3] w = {1.0, 2.0, 3.0}> { [scale] a = Mul (x, w) [root] b = Sqrt (a)
    [total] loss = ReduceSum <keepdims = 0> (b) }"""


def network() -> onnx.ModelProto:
    return onnx.parser.parse_model(TEXT)


def test_numbers_that_are_finite_have_no_fault() -> None:
    assert check_numerics(graft.grad(network()), {"x": np.float32([1, 2, 3])}) is None


def test_the_first_node_is_named_and_not_those_behind_it() -> None:
    found = check_numerics(network(), {"x": np.float32([1, -1, -4])}, threads=1)
    assert str(found) == (
        "Sqrt (node 'root'): 'b' has 2 of 3 elements that are NaN, the first at [1], which no operand has"
    )


def test_a_gradient_that_is_infinite_is_behind_a_forward_pass_that_is_finite() -> None:
    found = check_numerics(graft.grad(network()), {"x": np.float32([1, 0, 4])}, of="loss")
    assert found is not None
    assert (found.kind, found.count, found.is_forward, found.operator) == ("infinity", 1, False, "Div")
    assert str(found).endswith(", behind the forward pass")


def test_an_infinite_mask_is_no_fault_and_a_row_of_nothing_else_is() -> None:
    text = """<ir_version: 10, opset_import: ["" : 22]> g (float[2,2] x, float[2,2] mask) => (float[2,2] y) {
        [masked] s = Add (x, mask) [weights] y = Softmax (s) }"""
    model, x, mask = onnx.parser.parse_model(text), np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)
    mask[0, 1] = -np.inf
    assert check_numerics(model, {"x": x, "mask": mask}) is None
    mask[0, 0] = -np.inf
    found = check_numerics(model, {"x": x, "mask": mask})
    assert found is not None
    assert (found.node, found.kind, found.count) == ("weights", "NaN", 2)


def test_an_input_that_is_no_number_is_named() -> None:
    found = check_numerics(network(), {"x": np.float32([1, 2, np.nan])})
    assert str(found) == "'x' has 1 of 3 elements that are NaN, the first at [2], and nothing computes it"


def test_a_step_that_is_not_finite_names_the_node_and_leaves_the_weights() -> None:
    trainer = Trainer(network(), "loss", SGD(0.1), threads=1, check_numerics=True)
    assert np.isfinite(trainer.step({"x": np.float32([1, 2, 3])}))
    before = {name: array.copy() for name, array in trainer.arrays.items()}
    with pytest.raises(RunError) as caught:
        trainer.step({"x": np.float32([1, -2, 3])})
    assert str(caught.value) == (
        "step 2 is not finite: Sqrt (node 'root'): 'b' has 1 of 3 elements that are NaN, the first at [1], "
        "which no operand has, in the forward pass; weights are what they were before it"
    )
    assert caught.value.node == "root"
    assert all(np.array_equal(before[name], array) for name, array in trainer.arrays.items())
    with pytest.raises(RunError, match="behind the forward pass"):
        trainer.step({"x": np.float32([1, 0, 3])})
    assert np.isfinite(trainer.step({"x": np.float32([1, 2, 3])}))
    assert trainer.steps == 2


def test_a_fault_that_one_backend_alone_makes_is_found_with_that_backend() -> None:
    class Npu(graft.JsonBackend):
        name = "npu"

        @graft.supports("Mul")
        def product(self, node: object) -> bool:
            return True

        def load(self, graph: Any, constants: Any) -> Any:
            return lambda inputs: [np.full_like(inputs[0], np.inf)]

    feeds = {"x": np.array([1, 2, 3], np.float32)}
    assert check_numerics(network(), feeds) is None
    found = check_numerics(network(), feeds, backends=[Npu(), "reference"])
    assert found is not None
    assert (found.node, found.kind, found.count) == ("scale", "infinity", 3)
