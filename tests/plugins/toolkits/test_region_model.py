"""A region as a model that needs nothing else computes what the region does."""

from __future__ import annotations

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import graft
from graft.patterns import is_op, wildcard
from graft.plugins.toolkits.region_model import whole_model_of, without_weights

MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 25]> g (float[2, 3] x) => (float[2, 2] y) '
    "<float[3, 2] w = {1, 2, 3, 4, 5, 6}, float[2] b = {1, -1}> { h = MatMul(x, w) s = Add(h, b) y = Relu(s) }"
)


def test_constants_are_inside_and_composites_are_opened() -> None:
    found: list[onnx.ModelProto] = []

    class Npu(graft.Backend):
        name = "npu"

        @graft.supports(is_op("Add")(is_op("MatMul")(wildcard(), wildcard()), wildcard()))
        def biased(self, match):  # type: ignore[no-untyped-def]
            return True

        @graft.supports("Relu")
        def relu(self, node):  # type: ignore[no-untyped-def]
            return True

        def compile(self, region, options):  # type: ignore[no-untyped-def]
            found.append(whole_model_of(region))
            raise graft.GraftError("seen")

    graft.compile(MODEL, [Npu(), "llvm"])
    model = max(found, key=lambda one: len(one.graph.node))
    onnx.checker.check_model(model, full_check=True)
    assert sorted(node.op_type for node in model.graph.node) == ["Add", "MatMul", "Relu"]
    assert [one.name for one in model.graph.input] == ["x"]
    assert not model.functions
    x = np.float32([[1, 2, 3], [-4, -5, -6]])
    (want,) = ReferenceEvaluator(MODEL).run(None, {"x": x})
    (got,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_array_equal(got, want)


def test_weights_are_what_products_alone_read_behind_their_first_input() -> None:
    text = """<ir_version: 10, opset_import: ["": 25]> g (float[2, 2] x) => (float[2, 2] y)
    <float[2, 2] both = {1, 2, 3, 4}, float[2, 2] v = {1, 2, 3, 4}, float[2] b = {5, 6},
     float[2, 2] first = {1, 2, 3, 4}>
    { a = Gemm(x, v, b) c = MatMul(first, a) d = MatMul(c, both) y = Add(d, both) }"""
    model = onnx.parser.parse_model(text)
    left = onnx.ModelProto.FromString(without_weights(model.SerializeToString()))
    contents = {one.name: len(one.float_data) + len(one.raw_data) for one in left.graph.initializer}
    assert {name for name, count in contents.items() if count == 0} == {"v", "b"}
    assert [(one.name, one.dims) for one in left.graph.initializer] == [
        (one.name, one.dims) for one in model.graph.initializer
    ]
    assert left.graph.node == model.graph.node
