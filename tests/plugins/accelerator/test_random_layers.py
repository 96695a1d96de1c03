"""Random quantised layers, compiled, loaded and run: bit for bit what ONNX's reference evaluator gives.

Scales are powers of two, so that the reference's floats are exact; those of QLinear operators are any.
"""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st

import graft
from graft.runtime.program import Program
from tests.end_to_end.quantized import Quantized

FEW = settings(max_examples=8, deadline=None, derandomize=True)
TYPES = st.sampled_from(["int8", "uint8"])
SEEDS = st.integers(0, 2**16)
ZEROS = {"int8": st.integers(-128, 127), "uint8": st.integers(0, 255)}


def compiled(model: onnx.ModelProto) -> Program:
    """Compile for the accelerator alone."""
    return graft.compile(model, backends=["accelerator"], strict=True)


def check(layer: Quantized, result: str, dtype: str) -> None:
    model = layer.model(result, dtype)
    np.testing.assert_array_equal(compiled(model)(*layer.inputs.values()), layer.expected(model))


def power(data: st.DataObject, low: int, high: int) -> np.float32:
    return np.float32(2.0 ** data.draw(st.integers(low, high)))


def bytes_in(layer: Quantized, data: st.DataObject, *shape: int) -> tuple[str, np.float32]:
    """An input of bytes, dequantised, and its scale."""
    dtype = data.draw(TYPES)
    scale = power(data, -6, -3)
    return layer.dequantize(layer.input(*shape, dtype=dtype), scale, data.draw(ZEROS[dtype]), dtype), scale


def finish(layer: Quantized, data: st.DataObject, value: str, scale: float) -> None:
    """Maybe limit a result; quantise it and compare."""
    limit = data.draw(st.sampled_from(["", "Relu", "Clip"]))
    if limit:
        bounds = [layer.constant(np.float32(one * scale)) for one in (-20, 33)] if limit == "Clip" else []
        value = layer.add(limit, value, *bounds)
    dtype = data.draw(TYPES)
    check(layer, layer.quantize(value, scale, data.draw(ZEROS[dtype]), dtype), dtype)


@FEW
@given(st.data(), SEEDS)
def test_convolutions_of_any_form_are_those_of_the_reference(data: st.DataObject, seed: int) -> None:
    layer = Quantized(seed)
    groups = data.draw(st.sampled_from([1, 1, 2, 5]))
    channels, outputs = groups * data.draw(st.integers(1, 9)), groups * data.draw(st.integers(1, 9))
    kernel, strides, dilations = ([data.draw(st.integers(1, most)) for _ in range(2)] for most in (4, 3, 2))
    pads = [data.draw(st.integers(0, 3)) for _ in range(4)]
    size = [dilations[i] * (kernel[i] - 1) + 1 + data.draw(st.integers(0, 8)) for i in range(2)]
    x, scale = bytes_in(layer, data, data.draw(st.integers(1, 2)), channels, *size)
    w, scales = layer.weights(outputs, channels // groups, *kernel, axis=None, scale=2.0**-7)
    bias = layer.constant(layer.random.integers(-500, 500, outputs), "int32")
    b = layer.dequantize(bias, np.float32(scale * scales), 0, "int32")
    y = layer.add("Conv", x, w, b, strides=strides, dilations=dilations, pads=pads, group=groups, kernel_shape=kernel)
    finish(layer, data, y, float(scale * scales * 64))


@FEW
@given(st.data(), SEEDS)
def test_depthwise_convolutions_are_those_of_the_reference(data: st.DataObject, seed: int) -> None:
    layer = Quantized(seed)
    channels, kernel = data.draw(st.integers(2, 40)), data.draw(st.sampled_from([1, 3, 5]))
    x, scale = bytes_in(layer, data, 1, channels, 9, 7)
    w, scales = layer.weights(channels, 1, kernel, kernel, axis=None, scale=2.0**-7)
    stride = data.draw(st.integers(1, 2))
    y = layer.add("Conv", x, w, strides=[stride] * 2, pads=[kernel // 2] * 4, group=channels)
    finish(layer, data, y, float(scale * scales * 64))


@FEW
@given(st.data(), SEEDS)
def test_products_are_those_of_the_reference(data: st.DataObject, seed: int) -> None:
    layer = Quantized(seed)
    batch, m, k, n = (data.draw(st.integers(1, most)) for most in (3, 20, 40, 40))
    x, scale = bytes_in(layer, data, batch, m, k)
    if data.draw(st.booleans()):
        w, other = layer.weights(k, n, axis=None, scale=2.0**-7)
        y = layer.add("MatMul", x, w)
    else:
        right, other = bytes_in(layer, data, batch, k, n)
        y = layer.add("MatMul", x, right)
    finish(layer, data, y, float(scale * other * 64))


@FEW
@given(st.data(), SEEDS)
def test_gemms_are_those_of_the_reference(data: st.DataObject, seed: int) -> None:
    layer = Quantized(seed)
    m, k, n = (data.draw(st.integers(1, most)) for most in (5, 40, 40))
    x, scale = bytes_in(layer, data, m, k)
    transposed = data.draw(st.booleans())
    w, other = layer.weights(*((n, k) if transposed else (k, n)), axis=None, scale=2.0**-7)
    b = layer.dequantize(layer.constant(layer.random.integers(-500, 500, n), "int32"), scale * other, 0, "int32")
    finish(layer, data, layer.add("Gemm", x, w, b, transB=int(transposed)), float(scale * other * 64))


@FEW
@given(st.data(), SEEDS)
def test_additions_are_those_of_the_reference(data: st.DataObject, seed: int) -> None:
    layer = Quantized(seed)
    shape = data.draw(st.sampled_from([(1, 20, 5, 6), (2, 7, 3, 3), (1, 9, 33), (3, 18)]))
    (a, scale), (b, _) = bytes_in(layer, data, *shape), bytes_in(layer, data, *shape)
    finish(layer, data, layer.add("Add", a, b), float(2 * scale))


@FEW
@given(st.data(), SEEDS)
def test_pools_are_those_of_the_reference(data: st.DataObject, seed: int) -> None:
    layer = Quantized(seed)
    operator = data.draw(st.sampled_from(["MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"]))
    x, scale = bytes_in(layer, data, data.draw(st.integers(1, 2)), data.draw(st.integers(1, 35)), 8, 8)
    attributes = {}
    if not operator.startswith("Global"):
        stride = data.draw(st.integers(1, 2))
        attributes = {"kernel_shape": [2, 2], "strides": [stride, stride]}
    finish(layer, data, layer.add(operator, x, **attributes), float(scale))


@FEW
@given(st.data(), SEEDS)
def test_concatenations_are_those_of_the_reference(data: st.DataObject, seed: int) -> None:
    layer = Quantized(seed)
    counts = data.draw(st.lists(st.integers(1, 40), min_size=2, max_size=4))
    parts = [bytes_in(layer, data, 1, count, 4, 5) for count in counts]
    finish(layer, data, layer.add("Concat", *(name for name, _ in parts), axis=1), float(parts[0][1]))


@FEW
@given(st.data(), SEEDS)
def test_new_scales_are_those_of_the_reference(data: st.DataObject, seed: int) -> None:
    layer = Quantized(seed)
    x, scale = bytes_in(layer, data, 1, data.draw(st.integers(1, 40)), 4, 5)
    dtype = data.draw(TYPES)
    y = layer.quantize(layer.add("Relu", x), float(scale * 2), data.draw(ZEROS[dtype]), dtype)
    check(layer, y, dtype)


@FEW
@given(st.data(), SEEDS)
def test_qlinear_convolutions_of_any_scales_are_those_of_the_reference(data: st.DataObject, seed: int) -> None:
    layer = Quantized(seed)
    dtype, channels, outputs = data.draw(TYPES), data.draw(st.integers(1, 20)), data.draw(st.integers(1, 20))
    x = layer.input(1, channels, 6, 7, dtype=dtype)
    w = layer.constant(layer.bytes("int8", outputs, channels, 3, 3), "int8")
    zero = layer.constant(data.draw(ZEROS[dtype]), dtype)
    scales = layer.constant(layer.scales(outputs, 0.01))
    points = layer.constant(np.zeros(outputs, np.int8), "int8")
    bias = layer.constant(layer.random.integers(-500, 500, outputs), "int32")
    y = layer.add(
        "QLinearConv", x, layer.constant(0.037), zero, w, scales, points, layer.constant(0.3), zero, bias,
        pads=[1, 1, 1, 1],
    )  # fmt: skip
    check(layer, y, dtype)


@FEW
@given(st.data(), SEEDS)
def test_qlinear_products_of_any_scales_are_those_of_the_reference(data: st.DataObject, seed: int) -> None:
    layer = Quantized(seed)
    dtype, m, k, n = data.draw(TYPES), *(data.draw(st.integers(1, 30)) for _ in range(3))
    zero = layer.constant(data.draw(ZEROS[dtype]), dtype)
    x, w = layer.input(m, k, dtype=dtype), layer.constant(layer.bytes("int8", k, n), "int8")
    ours = [layer.constant(0.01), layer.constant(data.draw(st.integers(-3, 3)), "int8")]
    check(layer, layer.add("QLinearMatMul", x, layer.constant(0.037), zero, w, *ours, layer.constant(0.3), zero), dtype)
