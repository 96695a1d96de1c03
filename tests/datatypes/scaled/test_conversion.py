"""Whole models in scaled types: each product is that of the encoded operands, everything else stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import graft
from graft.datatypes.scaled.blocks import encode_scaled
from graft.datatypes.scaled.conversion import convert_scaled
from graft.datatypes.scaled.operators import DOMAIN
from graft.datatypes.scaled.products import matmul_scaled
from graft.datatypes.scaled.scaled_type import SCALED_TYPES, ScaledType
from graft.errors import GraftError


def network(rows: int | str = 5) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """Two products with constant matrices, of extents that blocks do not divide, and one of two activations."""
    random = np.random.default_rng(0)
    weights = [random.standard_normal(shape).astype(np.float32) for shape in ((70, 48), (48, 9))]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("MatMul", ["b", "w1"], ["c"], name="second"),
        helper.make_node("Transpose", ["c"], ["d"], name="turn"),
        helper.make_node("MatMul", ["c", "d"], ["y"], name="third"),
    ]
    x, y = (helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [rows, 70]), ("y", [rows, rows])))
    given = [onnx.numpy_helper.from_array(one, f"w{number}") for number, one in enumerate(weights)]
    graph = helper.make_graph(nodes, "net", [x], [y], given)
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model, weights


def numbers(rows: int = 5) -> np.ndarray:
    return np.random.default_rng(rows).standard_normal((rows, 70)).astype(np.float32)


def expected_of(
    x: np.ndarray, weights: list[np.ndarray], type: ScaledType, other: ScaledType, kept: int = -1
) -> np.ndarray:
    """What the network computes, by the forms in NumPy; activations have 1 as the scale of their tensor."""
    for number, matrix in enumerate(weights):
        x = np.maximum(x, 0) if number else x
        whole = 1.0 if type.tensor_scale else None
        left, right = encode_scaled(x, type, tensor_scale=whole), encode_scaled(matrix, other, axis=0)
        x = x @ matrix if number == kept else matmul_scaled(left, right)
    return x @ x.T


@pytest.mark.parametrize(("name", "other"), [("mxfp4", ""), ("mxfp8e4m3", "mxfp4"), ("nvfp4", ""), ("mxint8", "")])
def test_products_with_constant_matrices_are_those_of_encoded_operands(name: str, other: str) -> None:
    model, weights = network()
    converted = convert_scaled(model, name, weights=other or None)
    found = graft.compile(converted, ["llvm"])(numbers())
    expected = expected_of(numbers(), weights, SCALED_TYPES[name], SCALED_TYPES[other or name])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    counts = [node.op_type for node in converted.graph if node.domain == DOMAIN]
    assert counts == ["Encode", "MatMul"] * 2


def test_a_converted_model_is_valid_and_may_have_open_extents() -> None:
    model, weights = network("rows")
    converted = convert_scaled(model, "mxfp4")
    onnx.checker.check_model(ir.to_proto(converted))
    program = graft.compile(ir.to_proto(converted), ["llvm"])
    for rows in (2, 7):
        expected = expected_of(numbers(rows), weights, *[SCALED_TYPES["mxfp4"]] * 2)
        np.testing.assert_allclose(program(numbers(rows)), expected, rtol=1e-5, atol=1e-4)


def test_nodes_are_kept_by_pattern() -> None:
    model, weights = network()
    converted = convert_scaled(model, "mxfp4", keep=["sec*"])
    assert [node.op_type for node in converted.graph if node.domain == DOMAIN] == ["Encode", "MatMul"]
    expected = expected_of(numbers(), weights, *[SCALED_TYPES["mxfp4"]] * 2, kept=1)
    np.testing.assert_allclose(graft.compile(converted, ["llvm"])(numbers()), expected, rtol=1e-4, atol=1e-3)


def test_a_stochastic_rounding_of_activations_is_repeated_by_its_seed() -> None:
    model, _ = network()
    seeds = [convert_scaled(model, "mxfp4", rounding="stochastic", seed=seed) for seed in (1, 1, 2)]
    first, again, other = (graft.compile(one, ["llvm"])(numbers()) for one in seeds)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def refused(model: onnx.ModelProto, *types: str | ScaledType, **options: object) -> str:
    with pytest.raises(GraftError) as caught:
        convert_scaled(model, types[0], weights=types[-1], **options)  # type: ignore[arg-type]
    return caught.value.message


def test_what_cannot_be_converted_is_refused() -> None:
    model, _ = network()
    assert refused(model, "mxfp4", "nvfp4") == "activations and weights have blocks of one size, not 32 and 16"
    whole = replace(SCALED_TYPES["mxfp4"], block=None)
    assert refused(model, whole) == "activations and weights have blocks of one size, not none and none"
    assert refused(model, "mxfp4", keep=["fourth"]) == (
        "no node's name or operator matches 'fourth'; graft plan lists the nodes"
    )
    assert refused(model, "mxfp4", keep=["MatMul"]) == (
        "model 'net' has no MatMul of float32 with a constant matrix to convert"
    )
