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


def test_regions_behind_one_that_is_parted_are_not_compiled_again() -> None:
    Small.compiled = []
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]> g (float[4] x) => (float[4] y)
        { [a] a = Relu(x) [c] c = Relu(a) [d] d = Neg(c) [s] s = Sin(d) [e] e = Relu(s) [t] t = Sin(e) [f] y = Exp(t)
        }"""
    )
    program = graft.compile(model, [Small(), "llvm"])
    assert Small.compiled == [("a", "c", "d"), ("e",), ("f",), ("a",), ("d",)]
    np.testing.assert_allclose(program(np.zeros(4, np.float32)), np.ones(4))


@pytest.mark.parametrize(("seconds", "attempts"), [(60.0, 5), (0.0, 1)])
def test_a_compiler_that_refuses_operators_one_by_one_is_asked_for_a_while(
    seconds: float, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Grudging(Small):
        name = "grudging"

        def compile(self, region: Any, options: Any) -> Any:
            self.compiled.append(region.origin)
            reject = graft.Reject("size", "it is larger than the memory")
            raise CompileError("the first does not fit", nodes=[region.origin[0]], reject=reject)

    Small.compiled = []
    monkeypatch.setattr("graft.compiler.driver.PARTING_SECONDS", seconds)
    for node in MODEL.graph.node:
        node.name = node.output[0]
    plan = graft.Plan.of(graft.compile(MODEL, [Grudging(), "llvm"]))
    assert len(Small.compiled) == attempts
    assert plan["a"].reasons["grudging"] == graft.Reject("size", "it is larger than the memory")
    if attempts == 1:
        assert plan["b"].reasons["grudging"] == graft.Reject(
            "compile-failed",
            "its compiler took 0 s to refuse parts of regions, the last for 'a': size: it is larger than the memory",
        )


@pytest.mark.parametrize("named", [None, [], ["elsewhere"], "a", 3])
def test_where_no_node_is_named_the_whole_region_goes(named: object) -> None:
    names, reason = refused_nodes(GraftError("full", nodes=named, reject="no"), ("a", "b"))
    assert names == ("a", "b")
    assert reason == graft.Reject("compile-failed", "full")
