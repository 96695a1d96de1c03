"""What becomes a layer, whatever form exporters write it in, and the reasons of what does not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graft
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from tests.end_to_end.quantized import Quantized


def agrees(layer: Quantized, model: onnx.ModelProto) -> int:
    """Compare a model that the accelerator takes whole with the reference; return of how many programs it consists."""
    compiled = compile_model(model, Request(["accelerator"], strict=True))
    ours = graft.compile(model, ["accelerator"], strict=True)(*layer.inputs.values())
    np.testing.assert_array_equal(ours, layer.expected(model))
    return sum(module.kind == "accelerator" for module in compiled.description.modules)


def kept(layer: Quantized, value: str, scale: float, zero: int = 3) -> str:
    """Quantise and dequantise a value."""
    return layer.dequantize(layer.quantize(value, scale, zero, "int8"), scale, zero, "int8")


def convolved(layer: Quantized, x: str, outputs: int, inputs: int, *kernel: int, scale: float = 2.0**-9) -> str:
    w, _ = layer.weights(outputs, inputs, *kernel, axis=None, scale=scale)
    return layer.add("Conv", x, w, pads=[size // 2 for size in kernel] * 2)


def test_a_chain_of_sequences_is_one_program() -> None:
    layer = Quantized(1)
    x = layer.dequantize(layer.input(1, 20, 20, dtype="int8"), 2.0**-4, 7, "int8")
    y = kept(layer, layer.add("Relu", convolved(layer, x, 20, 20, 3)), 2.0**-4)
    total = kept(layer, layer.add("Add", x, y), 2.0**-3)
    joined = kept(layer, layer.add("Concat", total, x, axis=1), 2.0**-3)
    halved = kept(layer, layer.add("MaxPool", joined, kernel_shape=[2], strides=[2]), 2.0**-3)
    result = layer.quantize(convolved(layer, halved, 8, 40, 1), 2.0**-3, -5, "int8")
    assert agrees(layer, layer.model(result, "int8")) == 1


def test_a_sequence_that_is_also_a_matrix_is_each_to_its_reader() -> None:
    layer = Quantized(2)
    x = layer.dequantize(layer.input(1, 16, 16, dtype="int8"), 2.0**-4, 7, "int8")
    y = kept(layer, convolved(layer, x, 16, 16, 3), 2.0**-4)
    w, _ = layer.weights(16, 16, axis=None, scale=2.0**-9)
    matrix = kept(layer, layer.add("MatMul", y, w), 2.0**-4)
    model = layer.model(layer.quantize(layer.add("Add", matrix, x), 2.0**-3, 0, "int8"), "int8")
    assert agrees(layer, model) > 1


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_maximum_of_bytes_between_layers_breaks_no_program(dtype: str) -> None:
    layer = Quantized(3)
    x = layer.dequantize(layer.input(1, 12, 8, 8, dtype=dtype), 2.0**-4, 7, dtype)
    first = layer.quantize(convolved(layer, x, 20, 12, 3, 3), 2.0**-4, 9, dtype)
    largest = layer.add("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2])
    y = layer.dequantize(largest, 2.0**-4, 9, dtype)
    model = layer.model(layer.quantize(convolved(layer, y, 8, 20, 1, 1), 2.0**-3, 1, dtype), dtype)
    assert agrees(layer, model) == 1


def test_bytes_alone_are_moved_as_they_are() -> None:
    layer = Quantized(4)
    parts = [layer.input(1, channels, 5, 5, dtype="uint8") for channels in (16, 20)]
    joined = layer.add("Concat", *parts, axis=1)
    model = layer.model(layer.add("MaxPool", joined, kernel_shape=[2, 2]), "uint8")
    with np.errstate(invalid="ignore"):  # of the reference, which fills bytes with floats
        assert agrees(layer, model) == 1


# ---- com.microsoft ------------------------------------------------------------------------------------------------

CONSTANTS = {
    "s": np.float32(0.0625), "p": np.uint8(7), "t": np.float32(0.03125), "q": np.uint8(200),
    "u": np.float32(0.125), "r": np.uint8(3),
}  # fmt: skip
CONTRIBUTED = {
    "QLinearAdd": ("x s p z t q u r", {}),
    "QLinearGlobalAveragePool": ("x s p t q", {}),
    "QLinearAveragePool": ("x s p t q", {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0], "count_include_pad": 1}),
    "QLinearConcat": ("u r x s p z t q", {"axis": 1}),
}


@pytest.mark.parametrize("operator", CONTRIBUTED)
def test_a_contributed_operator_of_bytes_is_taken_whole(operator: str) -> None:
    names, attributes = CONTRIBUTED[operator]
    node = helper.make_node(operator, names.split(), ["y"], domain="com.microsoft", **attributes)
    inputs = [name for name in ("x", "z") if name in names.split()]
    types = [helper.make_tensor_value_info(name, TensorProto.UINT8, [1, 20, 6, 8]) for name in inputs]
    constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in CONSTANTS.items()]
    output = helper.make_tensor_value_info("y", TensorProto.UINT8, None)
    graph = helper.make_graph([node], "g", types, [output], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    arrays = [np.random.default_rng(n).integers(0, 256, (1, 20, 6, 8)).astype(np.uint8) for n in range(len(inputs))]
    expected = graft.compile(model, ["reference"])(*arrays)
    np.testing.assert_array_equal(graft.compile(model, ["accelerator"], strict=True)(*arrays), expected)


# ---- Reasons ------------------------------------------------------------------------------------------------------


def refused(layer: Quantized, value: str, operator: str, scale: float = 0.5) -> str:
    """The reason why the accelerator does not take an operator of a model, as `graft plan --why` prints it."""
    plan = graft.plan(layer.model(layer.quantize(value, scale), "uint8"), ["accelerator", "reference"])
    (row,) = (row for row in plan.placements if row.op_type == operator)
    assert row.backend == "reference"
    reject = row.reasons["accelerator"]
    return f"{reject.code}: {reject.text.splitlines()[-1].strip()}"


def image(layer: Quantized, *shape: int) -> str:
    return layer.dequantize(layer.input(*(shape or (1, 8, 6, 6)), dtype="uint8"), 0.5, 3)


def test_what_is_not_taken_has_a_reason_of_its_own() -> None:
    found = {}
    for name, operator, build in (
        ("three axes", "Conv", lambda it: convolved(it, image(it, 1, 4, 3, 3, 3), 4, 4, 1, 1, 1)),
        ("other axis", "Concat", lambda it: it.add("Concat", image(it), image(it), axis=2)),
        ("broadcast", "Add", lambda it: it.add("Add", image(it), image(it, 1, 8, 1, 1))),
        ("edges", "AveragePool", lambda it: it.add("AveragePool", image(it), kernel_shape=[3, 3], pads=[1] * 4)),
        ("product", "Mul", lambda it: it.add("Mul", image(it), image(it))),
        ("transposed", "Gemm", lambda it: it.add("Gemm", image(it, 4, 4), it.weights(4, 4, axis=None)[0], transA=1)),
        ("channels", "ReduceMean", lambda it: it.add("ReduceMean", image(it), it.constant([1], "int64"))),
    ):
        layer = Quantized()
        found[name] = refused(layer, build(layer), operator)
    assert found == {
        "three axes": "rank: a tensor has 5 axes, and 3 or 4 are supported",
        "other axis": "attribute: tensors are concatenated along axis 2; channels are needed",
        "broadcast": "shape: tensors of (1, 8, 6, 6) and (1, 8, 1, 1) are added; equal shapes are needed",
        "edges": "attribute: a mean whose windows have different numbers of places inside the input",
        "product": "no-pattern: no instruction computes Mul",
        "transposed": "attribute: Gemm with alpha, beta or transA",
        "channels": "attribute: a mean is taken over the axes behind the channels, and over no others",
    }
