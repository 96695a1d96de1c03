"""Where nodes of the backward pass stand: none of it before the loss, even if it needs the forward pass alone."""

from __future__ import annotations

import onnx
import onnx_ir as ir

import graft
from graft.training.recomputation import sunk

NET = """<ir_version: 10, opset_import: ["" : 22]>
    g (float[4,8] x, float[8,8] w) => (float loss, float[8,8] w_grad) {
        t = Transpose <perm = [1, 0]> (x) h = MatMul (x, w) loss = ReduceSum <keepdims = 0> (h)
        one = Expand (loss, shape) shaped = Mul (h, one) w_grad = MatMul (t, shaped) }"""


def test_what_the_backward_pass_alone_reads_is_computed_behind_the_loss() -> None:
    proto = onnx.parser.parse_model(NET.replace("t = ", "shape = Constant <value_ints = [4, 8]> () t = ", 1))
    model = sunk(ir.from_proto(proto), "loss")
    order = [node.op_type for node in model.graph]
    assert order == ["MatMul", "ReduceSum", "Constant", "Expand", "Mul", "Transpose", "MatMul"]
    onnx.checker.check_model(ir.to_proto(model))


def test_a_strided_convolution_of_points_gathers_its_image_behind_the_loss() -> None:
    net = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 22]> g (float[2,8,6,6] x, float[4,8,1,1] w) => (float loss) {
            r = Relu (x) c = Conv <strides = [2, 2]> (r, w) loss = ReduceSum <keepdims = 0> (c) }"""
    )
    names = [node.op_type for node in graft.grad(net, wrt=["w"]).graph]
    assert "Gather" not in names[: names.index("ReduceSum")]
