from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graft.core.reject import Reject
from graft.partition.placement.partitioner import partition
from graft.partition.region import REGION_DOMAIN, regions
from tests.partition.graphs import everything, model_of, run_reference, toy

IF = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2] x, bool c) => (float[2] y) {
  a = Relu(x)
  b = If(c) <
    then_branch = then_graph () => (float[2] t) { u = Exp(a)  t = Relu(u) },
    else_branch = else_graph () => (float[2] e) { k = Constant <value = float[2] {1, 2}> ()  e = Add(x, k) }
  >
  y = Tanh(b)
}"""

LOOP = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2] x, int64 n, bool c) => (float[2] y) {
  y = Loop(n, c, x) <
    body = step (int64 i, bool go, float[2] s) => (bool more, float[2] t) {
      more = Identity(go)
      u = Exp(s)
      t = Sub(s, u)
    }
  >
}"""

SEQUENCE = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2] x, int64 i) => (float[2] y) {
  a = Relu(x)
  s = SequenceConstruct(a, x)
  b = Exp(a)
  t = SequenceInsert(s, b)
  l = SequenceAt(t, i)
  y = Relu(l)
}"""


def run_both(model: ir.Model, partitioned: ir.Model, **inputs: np.ndarray) -> None:
    np.testing.assert_array_equal(run_reference(partitioned, inputs)[0], run_reference(model, inputs)[0])


@pytest.mark.parametrize("text", [IF, LOOP, SEQUENCE])
def test_onnx_runtime_runs_partitioned_bodies(text: str) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    given = {"x": np.array([1, -2], np.float32), "n": np.array(2), "c": np.array(True), "i": np.array(1)}
    model = model_of(text)
    inputs = {value.name: given[value.name or ""] for value in model.graph.inputs}
    outputs = [
        runtime.InferenceSession(ir.to_proto(each).SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, inputs
        )[0]
        for each in (model, partition(model, [toy("npu", "Relu", "Add", "Exp"), everything()]).model)
    ]
    np.testing.assert_array_equal(*outputs)


@pytest.mark.parametrize("condition", [True, False])
def test_the_branches_of_an_if_are_partitioned_and_the_if_is_the_runtimes(condition: bool) -> None:
    model = model_of(IF)
    result = partition(model, [toy("npu", "Relu", "Add"), everything()])
    placed = {row.node: row.backend for row in result.plan.placements}
    assert placed == {"a": "npu", "b": "runtime", "u": "rest", "t": "npu", "e": "npu", "y": "rest"}
    assert result.plan["b"].reasons == {
        "npu": Reject("no-pattern", "If is run by the runtime; its bodies are placed node by node"),
        "rest": Reject("no-pattern", "If is run by the runtime; its bodies are placed node by node"),
    }
    assert [region.origin for region in regions(result.model)] == [("a",), ("u",), ("t",), ("e",), ("y",)]
    run_both(model, result.model, x=np.array([-1, 2], np.float32), c=np.array(condition))


def test_a_constant_of_a_body_is_a_constant_of_its_region() -> None:
    result = partition(model_of(IF), [everything()])
    (region,) = [region for region in regions(result.model) if "e" in region.origin]
    assert {name: tensor.numpy().tolist() for name, tensor in region.constants.items()} == {"k": [1, 2]}


def test_the_body_of_a_loop_is_partitioned() -> None:
    model = model_of(LOOP)
    result = partition(model, [toy("npu", "Exp"), everything()])
    assert {row.node: row.backend for row in result.plan.placements} == {
        "y": "runtime", "more": "rest", "u": "npu", "t": "rest",
    }  # fmt: skip
    run_both(model, result.model, x=np.array([1, 2], np.float32), n=np.array(2), c=np.array(True))


def test_an_if_inside_a_loop_is_partitioned_too() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[2] x, int64 n, bool c) => (float[2] y) {
      w = Relu(x)
      y = Loop(n, c, x) <
        body = step (int64 k, bool go, float[2] s) => (bool more, float[2] t) {
          more = Identity(go)
          t = If(go) <
            then_branch = then_graph () => (float[2] p) { p = Add(s, w) },
            else_branch = else_graph () => (float[2] q) { q = Sub(s, w) }
          >
        }
      >
    }"""
    model = model_of(text)
    result = partition(model, [toy("npu", "Add"), everything()])
    assert {row.node: row.backend for row in result.plan.placements} == {
        "w": "rest", "y": "runtime", "more": "rest", "t": "runtime", "p": "npu", "q": "rest",
    }  # fmt: skip
    calls = [node for graph in result.model.graphs() for node in graph if node.domain == REGION_DOMAIN]
    assert len({call.op_type for call in calls}) == len(calls) == 4
    run_both(model, result.model, x=np.array([1, 2], np.float32), n=np.array(3), c=np.array(True))


def test_bodies_partitioned_one_backend_after_the_other_end_the_same() -> None:
    backends = [toy("npu", "Relu", "Add"), toy("gpu", "Exp"), everything()]
    at_once = partition(model_of(IF), backends).model
    step = model_of(IF)
    for backend in backends:
        step = partition(step, [backend]).model
    assert {region.origin for region in regions(step)} == {region.origin for region in regions(at_once)}
