"""Random quantised layers, compiled, loaded and run: bit for bit what ONNX's reference evaluator gives.

What works number by number, and QLinear operators, agree for any scales. Sums of products and means do where scales are
powers of two, so that the reference's floats are exact; for any others, but next to ties: the reference's own sums of
floats are rounded there.
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


def bytes_in(layer: Quantized, data: st.DataObject, *shape: int, any_scale: bool = False) -> tuple[str, np.float32]:
    """An input of bytes, dequantised, and its scale."""
    dtype = data.draw(TYPES)
    scale = np.float32(data.draw(st.integers(1, 400)) / 997) if any_scale else power(data, -6, -3)
    return layer.dequantize(layer.input(*shape, dtype=dtype), scale, data.draw(ZEROS[dtype]), dtype), scale


def finish(layer: Quantized, data: st.DataObject, value: str, scale: float) -> None:
    """Maybe limit a result, maybe twice; quantise it and compare."""
    value, dtype = limited(layer, data, value, scale), data.draw(TYPES)
    check(layer, layer.quantize(value, scale, data.draw(ZEROS[dtype]), dtype), dtype)


def limited(layer: Quantized, data: st.DataObject, value: str, scale: float) -> str:
    for limit in data.draw(st.sampled_from([(), (), ("Relu",), ("Clip",), ("Relu", "Clip"), ("Clip", "Relu", "Relu")])):
        low, high = data.draw(st.integers(-60, 20)), data.draw(st.integers(-10, 90))
        bounds = [layer.constant(np.float32(one * scale)) for one in (low, high)] if limit == "Clip" else []
        value = layer.add(limit, value, *bounds)
    return value


def check_but_next_to_ties(layer: Quantized, data: st.DataObject, value: str, scale: np.float32) -> None:
    """Quantise a result of any scale and compare; where it lies between two bytes, either is right."""
    value, dtype = limited(layer, data, value, scale), data.draw(TYPES)
    model = layer.model(layer.quantize(value, scale, data.draw(ZEROS[dtype]), dtype), dtype)
    real = layer.expected(layer.model(value, "float32")).astype(np.float64) / np.float64(scale)
    ours, expected = compiled(model)(*layer.inputs.values()), layer.expected(model)
    is_tie = np.abs(np.abs(real - np.rint(real)) - 0.5) < 1e-3
    np.testing.assert_array_equal(np.where(is_tie, 0, ours), np.where(is_tie, 0, expected))
    assert np.abs(ours.astype(int) - expected.astype(int)).max() <= 1


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
    of_weights, scales = data.draw(TYPES), np.float32(2.0**-7)
    array = layer.constant(layer.bytes(of_weights, outputs, channels // groups, *kernel), of_weights)
    w = layer.dequantize(array, scales, data.draw(ZEROS[of_weights]), of_weights)
    bias = layer.constant(layer.random.integers(-500, 500, outputs), "int32")
    b = layer.dequantize(bias, np.float32(scale * scales), 0, "int32")
    y = layer.add("Conv", x, w, b, strides=strides, dilations=dilations, pads=pads, group=groups, kernel_shape=kernel)
    finish(layer, data, y, float(scale * scales * 64))


@FEW
@given(st.data(), SEEDS)
def test_convolutions_of_any_scales_are_those_of_the_reference_but_next_to_ties(data: st.DataObject, seed: int) -> None:
    layer = Quantized(seed)
    groups = data.draw(st.sampled_from([1, 1, 2, 8]))
    channels, outputs = groups * data.draw(st.integers(1, 5)), groups * data.draw(st.integers(1, 5))
    x, scale = bytes_in(layer, data, 1, channels, 7, 6, any_scale=True)
    w, scales = layer.weights(outputs, channels // groups, 3, 2, axis=data.draw(st.sampled_from([0, None])))
    bias = layer.constant(layer.random.integers(-500, 500, outputs), "int32")
    factors = np.broadcast_to(scale * scales, outputs).astype(np.float32)
    b = layer.dequantize(bias, factors, np.zeros(outputs, np.int32), "int32", axis=0)
    y = layer.add("Conv", x, w, b, pads=[1, 0, 2, 1], group=groups)
    check_but_next_to_ties(layer, data, y, np.float32(scale * np.mean(scales) * 90))


@FEW
@given(st.data(), SEEDS)
def test_convolutions_of_sequences_are_those_of_the_reference(data: st.DataObject, seed: int) -> None:
    layer = Quantized(seed)
    groups = data.draw(st.sampled_from([1, 1, 2, 16]))
    channels, outputs = groups * data.draw(st.integers(1, 5)), groups * data.draw(st.integers(1, 5))
    kernel, stride, dilation = (data.draw(st.integers(1, most)) for most in (5, 3, 2))
    pads = [data.draw(st.integers(0, 2)) for _ in range(2)]
    size = dilation * (kernel - 1) + 1 + data.draw(st.integers(0, 40))
    x, scale = bytes_in(layer, data, data.draw(st.integers(1, 2)), channels, size)
    w, scales = layer.weights(outputs, channels // groups, kernel, axis=None, scale=2.0**-7)
    y = layer.add("Conv", x, w, strides=[stride], dilations=[dilation], pads=pads, group=groups)
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
    (a, scale), (b, other) = (bytes_in(layer, data, *shape, any_scale=True) for _ in range(2))
    finish(layer, data, layer.add("Add", a, b), float(np.float32(scale + other)))


@FEW
@given(st.data(), SEEDS)
def test_maxima_are_those_of_the_reference(data: st.DataObject, seed: int) -> None:
    layer = Quantized(seed)
    axes = data.draw(st.sampled_from([1, 2]))
    kernel, strides, dilations = ([data.draw(st.integers(1, most)) for _ in range(axes)] for most in (3, 3, 2))
    pads = [data.draw(st.integers(0, kernel[i % axes] - 1)) for i in range(2 * axes)]
    size = [dilations[i] * (kernel[i] - 1) + 1 + data.draw(st.integers(0, 8)) for i in range(axes)]
    attributes = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    shape = (data.draw(st.integers(1, 2)), data.draw(st.integers(1, 35)), *size)
    if data.draw(st.booleans()):  # of bytes as they are
        dtype = data.draw(TYPES)
        x = layer.input(*shape, dtype=dtype)
        ours = compiled(layer.model(layer.add("MaxPool", x, **attributes), dtype))(layer.inputs[x])
        floats = Quantized()  # the reference evaluator pads bytes with what no byte holds
        floats.inputs = {x: layer.inputs[x].astype(np.float32)}
        expected = floats.expected(floats.model(floats.add("MaxPool", x, **attributes), "float32"))
        np.testing.assert_array_equal(ours, expected.astype(dtype))
        return
    x, scale = bytes_in(layer, data, *shape, any_scale=True)
    # The reference evaluator's GlobalMaxPool of one axis forgets an axis.
    operator = data.draw(st.sampled_from(["MaxPool", "MaxPool", *["GlobalMaxPool"] * (axes == 2)]))
    y = layer.add(operator, x, **({} if operator == "GlobalMaxPool" else attributes))
    finish(layer, data, y, float(scale))


@FEW
@given(st.data(), SEEDS)
def test_means_are_those_of_the_reference(data: st.DataObject, seed: int) -> None:
    layer = Quantized(seed)
    operator = data.draw(st.sampled_from(["AveragePool", "GlobalAveragePool"]))
    size = [8] * data.draw(st.sampled_from([1, 2]))
    x, scale = bytes_in(layer, data, data.draw(st.integers(1, 2)), data.draw(st.integers(1, 35)), *size)
    attributes: dict[str, object] = {}
    if operator == "AveragePool":
        stride, pad = data.draw(st.integers(1, 2)), data.draw(st.integers(0, 1))
        attributes = {"kernel_shape": [2 for _ in size], "strides": [stride for _ in size], "count_include_pad": 1}
        attributes["pads"] = [pad for _ in (*size, *size)]
    finish(layer, data, layer.add(operator, x, **attributes), float(scale))


@FEW
@given(st.data(), SEEDS)
def test_concatenations_are_those_of_the_reference(data: st.DataObject, seed: int) -> None:
    layer = Quantized(seed)
    counts = data.draw(st.lists(st.integers(1, 40), min_size=2, max_size=4))
    behind, axis = data.draw(st.sampled_from([((4, 5), 1), ((7,), 1), ((), 1)]))
    parts = [bytes_in(layer, data, 1, count, *behind, any_scale=True) for count in counts]
    finish(layer, data, layer.add("Concat", *(name for name, _ in parts), axis=axis), float(parts[0][1]))


@FEW
@given(st.data(), SEEDS)
def test_new_scales_are_those_of_the_reference(data: st.DataObject, seed: int) -> None:
    layer = Quantized(seed)
    x, scale = bytes_in(layer, data, 1, data.draw(st.integers(1, 40)), 4, 5, any_scale=True)
    dtype, factor = data.draw(TYPES), data.draw(st.sampled_from([0.7, 1.0, 2.0]))
    y = layer.quantize(layer.add("Relu", x), float(scale * factor), data.draw(ZEROS[dtype]), dtype)
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
