"""Products of few rows by weights of 4 and 8 bits with scales for blocks."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graft
from graft.core.schedule.strategies.narrow_weights import packed_weights

TERMS, COLUMNS, BLOCK = 96, 48, 32
KINDS = {
    "uint4": (TensorProto.UINT4, 0, 16),
    "int4": (TensorProto.INT4, -8, 8),
    "uint8": (TensorProto.UINT8, 0, 256),
    "int8": (TensorProto.INT8, -128, 128),
}


def product(kind: str, rows: int, *, points: bool) -> tuple[onnx.ModelProto, np.ndarray]:
    random = np.random.default_rng(rows)
    code, low, high = KINDS[kind]
    dtype = helper.tensor_dtype_to_np_dtype(code)
    weights = random.integers(low, high, (TERMS, COLUMNS))
    weights[0], weights[1] = low, high - 1
    scales = random.random((TERMS // BLOCK, COLUMNS), dtype=np.float32) + 0.1
    zeros = random.integers(low, high, scales.shape) if points else np.zeros(scales.shape, int)
    constants = {"w": weights.astype(dtype), "s": scales} | ({"z": zeros.astype(dtype)} if points else {})
    nodes = [
        helper.make_node("DequantizeLinear", list(constants), ["whole"], axis=0, block_size=BLOCK),
        helper.make_node("MatMul", ["x", "whole"], ["product"]),
        helper.make_node("Relu", ["product"], ["y"]),
    ]
    shapes = {"x": [rows, TERMS], "y": [rows, COLUMNS]}
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items())
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "product", [x], [y], initializers)
    whole = (weights - zeros.repeat(BLOCK, 0)) * scales.repeat(BLOCK, 0).astype(np.float64)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), whole


@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_widened_in_the_product(kind: str, rows: int, points: bool) -> None:
    model, whole = product(kind, rows, points=points)
    program = graft.compile(model, ["llvm"], strict=True, threads=1)
    x = np.random.default_rng(0).standard_normal((rows, TERMS), dtype=np.float32)
    expected = np.maximum(x.astype(np.float64) @ whole, 0)
    np.testing.assert_allclose(program.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-5 * np.abs(whole).max())


@pytest.mark.parametrize(("kind", "bits"), [("int4", 4), ("uint4", 4), ("int8", 8)])
def test_weights_take_no_more_memory_than_their_bits(kind: str, bits: int) -> None:
    model, _ = product(kind, 1, points=False)
    program = graft.compile(model, ["llvm"], strict=True, threads=1)
    sizes = [array.nbytes for array in program.description.constants.values()]
    assert TERMS * COLUMNS * bits // 8 in sizes
    assert max(sizes) <= TERMS * COLUMNS * bits // 8


def test_two_terms_of_a_column_share_a_byte_the_first_in_its_low_half() -> None:
    weights = np.array([[1, 2], [3, 4], [5, 6], [7, -8]], np.int8)
    assert packed_weights(weights, 1, 2).tolist() == [0x31, 0x75, 0x42, 0x86]
