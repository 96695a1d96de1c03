"""Backends that fail to compile: which nodes they do not get, and why."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx
import pytest

import graft
from graft.compiler.faults import refused_nodes
from graft.errors import CompileError, GraftError

MODEL = onnx.parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 21]> g (float[4] x) => (float[4] y)
    { a = Relu(x) b = Neg(a) c = Relu(b) d = Exp(c) y = Relu(d) }"""
)


class Small(graft.JsonBackend):
    """A backend whose compiler finds that the second Relu is too large for it."""

    name = "small"
    compiled: ClassVar[list[tuple[str, ...]]] = []

    @graft.supports("Relu", "Neg", "Exp")
    def any(self, node: Any) -> bool:
        return True

    def compile(self, region: Any, options: Any) -> Any:
        self.compiled.append(region.origin)
        if "c" in region.origin:
            reject = graft.Reject("size", "it is larger than the memory")
            raise CompileError("small: 'c' does not fit", nodes=["c", "elsewhere"], reject=reject)
        return super().compile(region, options)

    def load(self, graph: Any, constants: Any) -> Any:
        kernels = {"Relu": lambda x: np.maximum(x, np.float32(0)), "Neg": np.negative, "Exp": np.exp}
        return lambda inputs: graph.run(inputs, constants, lambda node, arrays: [kernels[node.name](*arrays)])


def test_a_node_that_does_not_fit_goes_elsewhere_and_the_rest_stays() -> None:
    Small.compiled = []
    for node in MODEL.graph.node:
        node.name = node.output[0]
    program = graft.compile(MODEL, [Small(), "llvm"])
    plan = graft.Plan.of(program)
    assert {row.node: row.backend for row in plan.placements} == {
        "a": "small", "b": "small", "c": "llvm", "d": "small", "y": "small"
    }  # fmt: skip
    (reason,) = [row.reasons["small"] for row in plan.placements if row.node == "c"]
    assert reason == graft.Reject("size", "it is larger than the memory")
    assert Small.compiled == [("a", "b", "c", "d", "y"), ("a", "b"), ("d", "y")]
    np.testing.assert_array_equal(program(np.float32([1, -2, 0, 3])), np.exp(np.zeros(4, np.float32)))


@pytest.mark.parametrize("named", [None, [], ["elsewhere"], "a", 3])
def test_where_no_node_is_named_the_whole_region_goes(named: object) -> None:
    names, reason = refused_nodes(GraftError("full", nodes=named, reject="no"), ("a", "b"))
    assert names == ("a", "b")
    assert reason == graft.Reject("compile-failed", "full")
