"""Models in older opsets: they compute the same, or there is a reason."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from graft.core.graph.view import NodeView
from graft.core.shapes.inference import infer_proto
from graft.errors import CompileError
from graft.plugins.toolkits.older_opsets import IR_VERSIONS, OLDEST, older, refusal

CASES = {
    "Relu": "(float[2, 6] x) => (float[2, 6] y) { y = Relu(x) }",
    "Equal": "(float[2, 6] x) => (bool[2, 6] y) { y = Equal(x, x) }",
    "Cast": "(float[2, 6] x) => (int32[2, 6] y) { y = Cast<to = 6>(x) }",
    "ReduceMean": "(float[2, 6] x) => (float[2, 1] y) <int64[1] a = {1}> { y = ReduceMean(x, a) }",
    "ReduceMax": "(float[2, 6] x) => (float[6] y) <int64[1] a = {0}> { y = ReduceMax<keepdims = 0>(x, a) }",
    "Split": "(float[2, 6] x) => (float[2, 2] y, float[2, 2] z, float[2, 2] w) "
    "{ y, z, w = Split<axis = 1, num_outputs = 3>(x) }",
    "Pad": "(float[2, 6] x) => (float[2, 9] y) <int64[2] p = {1, 2}, int64[1] a = {-1}> { y = Pad(x, p, , a) }",
    "Gelu": "(float[2, 6] x) => (float[2, 6] y) { y = Gelu(x) }",
    "Mish": "(float[2, 6] x) => (float[2, 6] y) { y = Mish(x) }",
    "Resize": "(float[1, 1, 2, 6] x) => (float[1, 1, 4, 12] y) <float[4] s = {1, 1, 2, 2}> "
    "{ y = Resize<mode = \"linear\">(x, , s) }",
    "GridSample": "(float[1, 1, 2, 6] x, float[1, 3, 3, 2] g) => (float[1, 1, 3, 3] y) "
    "{ y = GridSample<mode = \"linear\">(x, g) }",
    "QuantizeLinear": "(float[2, 6] x) => (int8[2, 6] y) <float s = {0.1}, int8 z = {3}> "
    "{ y = QuantizeLinear(x, s, z) }",
    "GroupNormalization": "(float[1, 4, 2, 6] x) => (float[1, 4, 2, 6] y) "
    "<float[4] s = {1, 2, 3, 4}, float[4] b = {0, 1, 0, 1}> "
    "{ y = GroupNormalization<num_groups = 2>(x, s, b) }",
}  # fmt: skip
REFUSED = {
    "BitwiseNot": ("(int32[8] x) => (int32[8] y) { y = BitwiseNot(x) }", "opset 17 has no BitwiseNot"),
    "Resize": (
        "(float[1, 1, 2, 6] x) => (float[1, 1, 4, 12] y) <float[4] s = {1, 1, 2, 2}> "
        "{ y = Resize<antialias = 1>(x, , s) }", "antialias",
    ),
    "Split": (
        "(float[2, 5] x) => (float[2, 3] y, float[2, 2] z) { y, z = Split<axis = 1, num_outputs = 2>(x) }",
        "Split of opset 17 parts an axis of 5 by given lengths alone",
    ),
    "Pad": (
        "(float[2, 6] x) => (float[2, 9] y) <int64[4] p = {0, 1, 0, 2}> { y = Pad<mode = \"wrap\">(x, p) }",
        "Pad of opset 17 has no mode 'wrap'",
    ),
    "Equal": (
        "(bfloat16[8] x) => (bfloat16[8] y) { y = Round(x) }", "Round of opset 17 takes no tensor(bfloat16) as X",
    ),
    "ScatterElements": (
        "(float[4] x, int64[2] i, float[2] u) => (float[4] y) { y = ScatterElements<reduction = \"max\">(x, i, u) }",
        "ScatterElements of opset 17 has no reduction 'max'",
    ),
}  # fmt: skip


def model_of(text: str) -> onnx.ModelProto:
    return infer_proto(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 25]> g {text}'))


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("name", CASES)
def test_the_older_model_is_valid_and_computes_the_same(name: str, opset: int) -> None:
    model = model_of(CASES[name])
    made = older(model, opset)
    assert [(row.domain, row.version) for row in made.opset_import] == [("", opset)]
    onnx.checker.check_model(made, full_check=True)
    if name == "GridSample" and opset == 17:  # of which the reference implementation knows the newer words alone
        assert [one.s for one in made.graph.node[0].attribute] == [b"bilinear"]
        return
    rng = np.random.default_rng(0)
    held = {one.name for one in model.graph.initializer}
    feeds = {
        one.name: rng.uniform(-1, 1, [dim.dim_value for dim in one.type.tensor_type.shape.dim]).astype(np.float32)
        for one in model.graph.input if one.name not in held
    }  # fmt: skip
    got, want = (ReferenceEvaluator(one).run(None, feeds) for one in (made, model))
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_older_form_is_refused_with_the_reason(name: str) -> None:
    text, reason = REFUSED[name]
    model = model_of(text)
    with pytest.raises(CompileError) as caught:
        older(model, 17)
    assert reason in caught.value.message
    (node,) = ir.from_proto(model).graph
    answer = refusal(NodeView(node), 17)
    assert answer is not None
    assert reason in answer.text
    assert refusal(NodeView(node), None) is None


def test_every_opset_of_the_promise_has_its_version_of_the_file_form() -> None:
    for opset in range(OLDEST, 26):
        helper = onnx.helper.OP_SET_ID_VERSION_MAP
        assert IR_VERSIONS[opset] == helper["ai.onnx", opset]


def test_a_model_of_the_same_opset_is_left_alone() -> None:
    model = model_of(CASES["Gelu"])
    assert older(model, 25) is model
