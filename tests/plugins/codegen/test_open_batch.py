"""Networks whose batch alone is open: the schedules of one image, and its numbers at every batch."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft
from graft.core.machine.target import Precision
from graft.runtime.program import Program

WEIGHTS = {
    "w0": (16, 3, 3, 3), "w1": (16, 1, 3, 3), "w2": (24, 16, 1, 1), "w3": (24, 24, 3, 3), "w4": (6, 24, 1, 1),
    "w5": (24, 6, 1, 1), "w6": (24, 12, 2, 2), "b0": (16,),
}  # fmt: skip
NETWORK = """<ir_version: 10, opset_import: ["" : 20]>
g (float[batch,3,32,30] x) => (float[batch,outs] y, float[batch,36,rows,columns] z)
  <float[4] scales = {1, 1, 2, 2}> {
    a = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w0, b0)
    b = Relu (a)
    c = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (b)
    d = Conv <group = 16, pads = [1, 1, 1, 1]> (c, w1)
    e = HardSwish (d)
    f = Conv (e, w2)
    h = Conv <pads = [1, 1, 1, 1]> (f, w3)
    i = Relu (h)
    j = Add (i, f)
    k = GlobalAveragePool (j)
    l = Conv (k, w4)
    m = Relu (l)
    n = Conv (m, w5)
    o = Sigmoid (n)
    p = Mul (j, o)
    q = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (p)
    r = ConvTranspose <strides = [2, 2]> (f, w6)
    s = Resize <mode = "nearest", nearest_mode = "floor", coordinate_transformation_mode = "asymmetric"> (p, , scales)
    z = Concat <axis = 1> (r, s)
    t = Flatten (q)
    y = Softmax (t)
  }"""
BATCHES = (1, 2, 3, 7)


def network() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(NETWORK)
    for name, shape in WEIGHTS.items():
        array = (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def strategies(program: Program) -> list[str]:
    """The strategies of a program's kernels; of those by image that of the image."""
    reports = [call.schedule for one in program.description.procedures for call in one.calls]
    return [str(one.get("image", one["strategy"])) for one in reports if one]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_every_batch_has_the_numbers_of_a_static_program(precision: Precision, threads: int) -> None:
    model = network()
    program = graft.compile(model, ["llvm", "reference"], threads=threads, precision=precision)
    wanted = graft.compile(model, ["reference"])
    tolerance = 1e-4 if precision == "float32" else 3e-2
    for batch in BATCHES:
        x = np.random.default_rng(batch).standard_normal((batch, 3, 32, 30)).astype(np.float32)
        for found, expected in zip(program(x), wanted(x), strict=True):
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=f"batch {batch}")
    assert [one.shape for one in program(np.zeros((0, 3, 32, 30), np.float32))] == [(0, 384), (0, 36, 16, 16)]


def test_kernels_are_those_of_one_image() -> None:
    model = network()
    varies = graft.compile(model, ["llvm"], threads=1)
    static = graft.compile(model, ["llvm"], threads=1, dims={"batch": 1}, without=["in-place"])
    found, alone = strategies(varies), strategies(static)
    few_pixels = [place for place, one in enumerate(found) if one == "direct_nhwc"]
    assert len(few_pixels) == 2  # what the gate computes of one pixel: its weights are read once for all images
    assert [one for place, one in enumerate(found) if place not in few_pixels] == [
        one for place, one in enumerate(alone) if place not in few_pixels
    ]
