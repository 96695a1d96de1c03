"""Weights of float4e2m1 and scales of float8e8m0 as other types: the same numbers as onnx.reference gives."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import graft

CODES = np.arange(256, dtype=np.uint8)[:64].reshape(16, 4) % 16


def model(scale: np.ndarray, *, output: int = TensorProto.FLOAT, elements: np.ndarray | None = None, block: int = 8):
    """A product by dequantised constants, blocks along the first axis."""
    whole = CODES.view(ml_dtypes.float4_e2m1fn) if elements is None else elements
    dequantize = helper.make_node(
        "DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=block, output_dtype=output, name="dq"
    )
    nodes = [dequantize, helper.make_node("MatMul", ["x", "d"], ["y"])]
    values = [helper.make_tensor_value_info(name, output, shape) for name, shape in (("x", [2, 16]), ("y", [2, 4]))]
    constants = [numpy_helper.from_array(array, name) for name, array in (("w", whole), ("s", scale))]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)


SCALES = {
    "float32": np.float32([[0.3, 7, 1e-3, 1e30], [3e-39, 1, 2, 4]]),
    "float8e8m0": np.array([[1, 2, 0.5, 2.0**100], [2.0**-127, 8, 2.0**-20, 1]]).astype(ml_dtypes.float8_e8m0fnu),
}


@pytest.mark.parametrize("name", SCALES)
def test_the_numbers_are_those_of_the_reference(name):
    proto = model(SCALES[name])
    onnx.checker.check_model(proto, full_check=True)
    found = graft.load(proto)
    node = next(node for node in found.graph if node.op_type == "DequantizeLinear")
    assert [value.dtype.name for value in node.inputs] == ["INT8", "FLOAT"]
    assert [len(found.graph.initializers), any("widened" not in one for one in found.graph.initializers)] == [2, False]
    x = np.random.default_rng(0).normal(size=(2, 16)).astype(np.float32)
    wanted = CODES.view(ml_dtypes.float4_e2m1fn).astype(np.float64) * np.repeat(SCALES[name].astype(np.float64), 8, 0)
    codes, scale = (value.const_value.numpy() for value in node.inputs)
    assert np.array_equal(codes.astype(np.float64) * np.repeat(scale.astype(np.float64), 8, 0), wanted)
    exact = x.astype(np.float64) @ wanted
    y = np.asarray(graft.compile(proto, backends=["llvm"], strict=True)(x))
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-5 * np.abs(exact).max())
    np.testing.assert_allclose(ReferenceEvaluator(proto).run(None, {"x": x})[0], exact, rtol=1e-3)


def test_a_scale_of_a_power_of_two_widens_beside_integers():
    proto = model(SCALES["float8e8m0"], elements=CODES.astype(np.int8))
    node = next(node for node in graft.load(proto).graph if node.op_type == "DequantizeLinear")
    assert [value.dtype.name for value in node.inputs] == ["INT8", "FLOAT"]
    assert node.inputs[1].const_value.numpy()[0, 0] == 1


def test_a_scale_that_its_type_cannot_halve_stays():
    smallest = np.full((2, 4), np.float16(2.0**-24))
    node = next(iter(graft.load(model(smallest, output=TensorProto.FLOAT16)).graph))
    assert node.inputs[0].dtype.name == "FLOAT4E2M1"
