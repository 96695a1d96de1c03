"""One backend for every unit, and reasons for all the others."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.reject import Reject
from graft.partition.placement.partitioner import partition
from graft.patterns import Composite, is_op, wildcard
from tests.partition.graphs import Toy, everything, model_of, run_reference, toy

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


def test_a_backend_that_runs_control_flow_gets_the_whole_node() -> None:
    class Whole(Toy):
        control_flow = True

    model = model_of(IF)
    result = partition(model, [Whole("npu", answer=lambda node: True)])
    assert {row.backend for row in result.plan.placements} == {"npu"}
    assert len(result.model.functions) == 1
    for condition in (True, False):
        run_both(model, result.model, x=np.array([-1, 2], np.float32), c=np.array(condition))


def test_values_that_are_not_tensors_go_to_backends_that_take_packed_ones() -> None:
    model = model_of(SEQUENCE)
    result = partition(model, [toy("npu", "Relu", "Exp", "SequenceAt"), everything("reference", fallback=True)])
    placed = {row.node: row.backend for row in result.plan.placements}
    assert placed == {"a": "npu", "s": "reference", "b": "npu", "t": "reference", "l": "reference", "y": "npu"}
    assert result.plan["l"].reasons["npu"] == Reject("dtype", "'t' is seq(float32); npu takes tensors of numbers")
    run_both(model, result.model, x=np.array([-1, 2], np.float32), i=np.array(2))


def test_a_loop_that_carries_a_sequence_is_the_runtimes() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[2] x, int64 n, bool c, int64 i) => (float[2] y) {
      s = SequenceConstruct(x)
      r = Loop(n, c, s) <
        body = step (int64 k, bool go, seq(float[2]) q) => (bool more, seq(float[2]) p) {
          more = Identity(go)
          u = Exp(x)
          p = SequenceInsert(q, u)
        }
      >
      y = SequenceAt(r, i)
    }"""
    model = model_of(text)
    result = partition(model, [toy("npu", "Exp"), everything("reference", fallback=True)])
    assert {row.node: row.backend for row in result.plan.placements} == {
        "s": "reference", "r": "runtime", "more": "reference", "u": "npu", "p": "reference", "y": "reference",
    }  # fmt: skip
    inputs = {"x": np.array([1, 2], np.float32), "n": np.array(2), "c": np.array(True), "i": np.array(1)}
    run_both(model, result.model, **inputs)


def test_a_backend_is_not_asked_for_control_flow_it_does_not_run() -> None:
    asked: list[str] = []

    def answer(node: NodeView) -> bool:
        asked.append(node.op_type)
        return True

    partition(model_of(LOOP), [Toy("npu", answer=answer)])
    assert asked == ["Identity", "Exp", "Sub"]


def test_a_refusal_of_floats_names_the_command_that_has_them_quantised() -> None:
    class OnIntegers(Toy):
        recipes = ({"name": "own", "decompose": ("LayerNormalization",)},)

    model = model_of("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[2,3] x, float[3,3] w, float[3] s) => (int8[2,3] q) <float t = {0.1}, int8 z = {0}> {
        a = MatMul(x, w) b = Exp(a) c = LayerNormalization(b, s) d = Relu(c) q = QuantizeLinear(d, t, z)
        [back] e = DequantizeLinear(q, t, z) [between] f = Relu(e) [again] g = QuantizeLinear(f, t, z) }""")
    product = is_op("MatMul")(is_op("DequantizeLinear")(wildcard(), ...), wildcard())
    rows = (Composite("npu.product", is_op("QuantizeLinear")(product, ...)),)

    def answer(node: NodeView) -> Reject:
        return Reject("dtype", "int8 only") if node.op_type == "Relu" else Reject("no-pattern", "no rule")

    result = partition(model, [OnIntegers("npu", patterns=rows, answer=answer), everything()])
    found = {
        row.op_type: str(row.reasons["npu"])
        for row in result.plan.placements
        if row.node not in ("back", "between", "again")
    }
    assert str(result.plan["between"].reasons["npu"]) == "dtype: int8 only"
    hint = "; it is taken quantised: graft quantize --for npu"
    assert found == {
        "MatMul": f"no-pattern: no rule{hint}",
        "Exp": "no-pattern: no rule",
        "LayerNormalization": f"no-pattern: no rule{hint}",
        "Relu": f"dtype: int8 only{hint}",
        "QuantizeLinear": "no-pattern: no rule",
    }
