"""What two kernels share: contents of constants do not count, but for the bits that narrow weights are stored in."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import graft


def model(weights: np.ndarray):
    """Two products by weights of int8 with scales for blocks of 32."""
    scale = np.ones((len(weights) // 32, weights.shape[1]), np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=32),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, width])
        for name, width in (("x", len(weights)), ("y", weights.shape[1]))
    ]
    constants = [numpy_helper.from_array(array, name) for name, array in (("w", weights), ("s", scale))]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


RANGES = {
    2: np.arange(-2, 2), 3: np.arange(-4, 4), 4: np.arange(-8, 8), 6: np.arange(-32, 32), 8: np.arange(-128, 128),
    "e2m1": np.array([-12, -8, -6, -4, -3, 0, 1, 2, 12]), "e2m3": np.array([-60, -56, -30, 0, 1, 15, 16, 18, 44]),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["llvm", "c_source"])
def test_models_that_differ_in_the_contents_of_weights_alone_do_not_share_kernels(backend):
    random = np.random.default_rng(0)
    x = random.normal(size=(3, 64)).astype(np.float32)
    for name, known in RANGES.items():  # one after the other, so that a later one could find an earlier one's kernel
        weights = random.choice(known, (64, 32)).astype(np.int8)
        program = graft.compile(model(weights), [backend], strict=True, threads=1)
        np.testing.assert_allclose(np.asarray(program(x)), x @ weights, rtol=1e-5, atol=1e-3, err_msg=str(name))
        stored = [array for array in program.description.constants.values() if array.dtype != np.float32]
        bits = {"e2m1": 4, "e2m3": 6}.get(str(name), name)
        assert sum(array.nbytes for array in stored) * 8 == weights.size * int(bits)
