"""Scales and shifts of channels fold into convolutions, whatever the extents of their images."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from graft.core.passes.fold_batch_normalization import FoldBatchNormalization

MODEL = """<ir_version: 10, opset_import: ["" : 20]>
g (float[n,2,h,w] x) => (float[n,3,h,w] o)
<float[3,2,1,1] k, float[3] scale, float[3] bias, float[3] mean, float[3] variance, float[3,1,1] shift,
 float[n,3,h,w] a, float[n,3,h,w] b> {
  a = Conv(x, k)
  b = BatchNormalization(a, scale, bias, mean, variance)
  o = Add(b, shift)
}"""


def folded(channels: str = "3") -> ir.Model:
    proto = onnx.parser.parse_model(MODEL.replace("float[n,3,h,w] a", f"float[n,{channels},h,w] a"))
    shapes = {"k": (3, 2, 1, 1), "shift": (3, 1, 1)}
    for name in ("k", "scale", "bias", "mean", "variance", "shift"):
        array = np.random.default_rng(0).uniform(0.5, 1, shapes.get(name, (3,))).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    model = ir.from_proto(proto)
    FoldBatchNormalization().run(model)
    return model


def test_a_convolution_of_varying_images_takes_them() -> None:
    assert [node.op_type for node in folded().graph] == ["Conv"]


def test_channels_that_are_no_number_keep_their_normalization() -> None:
    assert [node.op_type for node in folded("c").graph] == ["Conv", "BatchNormalization", "Add"]
