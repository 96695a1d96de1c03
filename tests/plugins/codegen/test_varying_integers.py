"""Products of bytes with any number of rows: dot products of packed operands, exactly what the integers say."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import graft
from graft.core.machine.target import host_target
from graft.runtime.program import Program

RANDOM = np.random.default_rng(4)
DOT = "dot4_u8s8" if host_target().machine.has("dot4_u8s8") else "dot2_s16"
ROWS = ((1, 1), (1, 5), (2, 13), (3, 40), (0, 4))


def drawn(dtype: str, *shape: int) -> np.ndarray:
    low, high = (0, 256) if dtype == "uint8" else (-128, 128)
    return RANDOM.integers(low, high, shape).astype(dtype)


def schedule_of(program: Program) -> list[dict[str, object]]:
    calls = [call for procedure in program.description.procedures for call in procedure.calls]
    return [dict(call.schedule) for call in calls if dict(call.schedule).get("strategy") == "blocked_product"]


@pytest.mark.parametrize("target", [None, "x86-64-v2"])
@pytest.mark.parametrize(
    ("left", "right", "terms", "columns", "points"),
    [
        ("uint8", "int8", 64, 48, 0),  # no zero point of the weights: no sums of rows
        ("uint8", "uint8", 20, 33, 3),  # rows are summed at run time
        ("int8", "int8", 24, 16, 17),  # bytes are transposed
        ("uint8", "int8", 13, 7, -2),  # the last word is not full
    ],
)
def test_a_product_of_bytes_with_any_rows_is_exact(
    left: str, right: str, terms: int, columns: int, points: int, target: str | None
) -> None:
    kinds = {"uint8": onnx.TensorProto.UINT8, "int8": onnx.TensorProto.INT8}
    weights = drawn(right, terms, columns)
    x = onnx.helper.make_tensor_value_info("x", kinds[left], ["batch", "rows", terms])
    point = onnx.helper.make_tensor_value_info("p", kinds[left], [])
    fixed = [
        onnx.numpy_helper.from_array(weights, "w"),
        onnx.numpy_helper.from_array(np.array(points, right), "q"),
    ]
    node = onnx.helper.make_node("MatMulInteger", ["x", "w", "p", "q"], ["y"])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT32, None)
    graph = onnx.helper.make_graph([node], "product", [x, point], [y], fixed)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    program = graft.compile(model, ["llvm"], strict=True, target=target)
    (chosen,) = schedule_of(program)
    assert chosen["dot"] == (DOT if target is None else "dot2_s16")
    for batch, rows in ROWS:
        data, zero = drawn(left, batch, rows, terms), drawn(left, 1)[0]
        wide = (data.astype(np.int32) - zero.astype(np.int32)) @ (weights.astype(np.int32) - np.int32(points))
        np.testing.assert_array_equal(program(data, np.asarray(zero)), wide)


QUANTIZED = {
    "quantized and dequantized": """
        xq = QuantizeLinear(x, s, z)  xd = DequantizeLinear(xq, s, z)
        wd = DequantizeLinear<axis = 1>(w, t, n)  m = MatMul(xd, wd)  a = Relu(m)
        yq = QuantizeLinear(a, s, z)  y = DequantizeLinear(yq, s, z)""",
    "quantized at run time": """
        xq, xs, xz = DynamicQuantizeLinear(x)  m = MatMulInteger(xq, w, xz)
        f = Cast<to = 1>(m)  p = Mul(f, xs)  y = Mul(p, t)""",
}


@pytest.mark.parametrize("name", QUANTIZED)
def test_a_quantized_product_of_any_rows_computes_in_integers(name: str) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 20]>
        g (float[batch, rows, 16] x, int8[16, 24] w, float[24] t) => (float[batch, rows, 24] y)
        <float s = {{0.05}}, uint8 z = {{120}}, int8[24] n = {{{", ".join("0" * 24)}}}> {{ {QUANTIZED[name]} }}"""
    )
    constants = {"w": drawn("int8", 16, 24), "t": RANDOM.uniform(0.01, 0.1, 24).astype(np.float32)}
    for name_of, array in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name_of))
        model.graph.input.remove(next(one for one in model.graph.input if one.name == name_of))
    program = graft.compile(model, ["llvm"], strict=True)
    (chosen,) = schedule_of(program)
    assert chosen["dot"] == DOT
    evaluator = ReferenceEvaluator(model)
    for batch, rows in ROWS[:-1]:
        x = RANDOM.standard_normal((batch, rows, 16)).astype(np.float32)
        (expected,) = evaluator.run(None, {"x": x})
        np.testing.assert_allclose(program(x), expected, rtol=1e-5, atol=0.051)
