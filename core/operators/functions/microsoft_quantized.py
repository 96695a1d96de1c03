"""Operators of ``com.microsoft`` on quantised tensors: widened, computed as ONNX's, and quantised again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto

from graft.core.operators.definition.function_body import Body
from graft.core.operators.functions.attention import projected
from graft.core.operators.functions.microsoft import CONVOLUTION, add

# ---- Between dequantisation and quantisation ----------------------------------------------------------------------


def _between(compute: Callable[[Body, str], str]) -> Callable[[Body], None]:
    """Return the function of an operator with one input, its scale and zero point, and those of the result."""

    def function(f: Body) -> None:
        x = f.dequantized(*f.parameters(0))
        f.give(0, f.quantized(compute(f, x), f.input(3), f.input(4), f.dtype(f.input(0))))

    return function


def _binary(op_type: str) -> Callable[[Body], None]:
    def function(f: Body) -> None:
        left, right = f.dequantized(*f.parameters(0)), f.dequantized(*f.parameters(3))
        f.give(0, f.quantized(f(op_type, left, right), f.input(6), f.input(7), f.dtype(f.input(0))))

    return function


def _channels_first(f: Body, x: str) -> str:
    rank = f.rank(x)
    return f.transposed(x, 0, rank - 1, *range(1, rank - 1)) if f.attribute("channels_last", 0) else x


def _as_given(f: Body, y: str) -> str:
    return f.transposed(y, 0, *range(2, f.rank(y)), 1) if f.attribute("channels_last", 0) else y


def _average(f: Body, x: str) -> str:
    given = f.attributes("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    return _as_given(f, f("AveragePool", _channels_first(f, x), **given))


def _softmax(f: Body, x: str) -> str:
    rank = f.rank(x)
    axis = f.attribute("axis", -1) % rank
    if f.attribute("opset", 13) >= 13 or axis == rank - 1:
        return f.softmax(x, axis=axis)
    flat = f.softmax(f.reshaped(x, *[0] * axis, -1))
    return f("Reshape", flat, f("Shape", x))


def _mean(f: Body, x: str) -> str:
    axes = f.attribute("axes")
    return f("ReduceMean", x, *([f.ints(*axes)] if axes else []), keepdims=f.attribute("keepdims", 1))


def _concat(f: Body) -> None:
    names = f.inputs
    values = [f.dequantized(*f.parameters(number)) for number in range(2, len(names), 3)]
    whole = f.concatenated(*values, axis=f.attribute("axis"))
    f.give(0, f.quantized(whole, names[0], names[1], f.dtype(names[2])))


def _where(f: Body) -> None:
    left, right = f.dequantized(*f.parameters(1)), f.dequantized(*f.parameters(4))
    f.give(0, f.quantized(f("Where", f.input(0), left, right), f.input(7), f.input(8), f.dtype(f.input(1))))


def _convolution(f: Body) -> None:
    x = _channels_first(f, f.input(0))
    y = f("QLinearConv", x, *f.inputs[1:], **f.attributes(*CONVOLUTION))
    f.give(0, _as_given(f, y))


def _quantize(f: Body) -> None:
    f.give(0, f.quantized(*f.parameters(0), TensorProto.UINT8, f.attribute("axis", 1)))


def _dequantize(f: Body) -> None:
    f.give(0, f.dequantized(*f.parameters(0), f.attribute("axis", 1)))


for _name, _op in (("QLinearAdd", "Add"), ("QLinearMul", "Mul")):
    add(_name, _binary(_op))
add("QLinearSigmoid", _between(lambda f, x: f("Sigmoid", x)))
add("QLinearLeakyRelu", _between(lambda f, x: f("LeakyRelu", x, **f.attributes("alpha"))))
add("QLinearAveragePool", _between(_average))
add("QLinearGlobalAveragePool", _between(lambda f, x: _as_given(f, f("GlobalAveragePool", _channels_first(f, x)))))
add("QLinearSoftmax", _between(_softmax))
add("QLinearReduceMean", _between(_mean))
add("QLinearConcat", _concat)
add("QLinearWhere", _where)
add("QLinearConv", _convolution)
add("QuantizeLinear", _quantize)
add("DequantizeLinear", _dequantize)

# ---- Products of integers -----------------------------------------------------------------------------------------


def _product(f: Body, left: str, right: str, points: tuple[str, str], scale: str) -> str:
    """Return a product of integers as float numbers."""
    known = [points[0] or (f.constant(0, _kind(f, left)) if points[1] else ""), points[1]]
    while known and not known[-1]:
        known.pop()
    total = f("MatMulInteger", left, right, *known)
    return f("Mul", f("Cast", total, to=f.dtype(scale)), scale)


def _kind(f: Body, name: str) -> np.dtype:
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(f.dtype(name)))


def _dynamic_matmul(f: Body) -> None:
    x, scale, point = f.several(3, "DynamicQuantizeLinear", f.input(0))
    y = _product(f, x, f.input(1), (point, f.input(3)), f("Mul", f.input(2), scale))
    f.give(0, f.added(y, f.input(4)))


def _matmul_to_float(f: Body) -> None:
    scale = f("Mul", f.input(2), f.input(3))
    f.give(0, f.added(_product(f, f.input(0), f.input(1), (f.input(4), f.input(5)), scale), f.input(6)))


def _matmul_16(f: Body) -> None:
    left, right = (f("Cast", one, to=TensorProto.INT32) for one in f.inputs)
    f.give(0, f("MatMul", left, right))


def _gemm(f: Body) -> None:
    """A bias of integers counts steps of the product of both scales."""
    a = f.swapped(f.input(0)) if f.attribute("transA", 0) else f.input(0)
    b = f.swapped(f.input(3)) if f.attribute("transB", 0) else f.input(3)
    total = f("MatMulInteger", a, b, f.input(2), f.input(5))
    scale = f.scaled(f("Mul", f.input(1), f.input(4)), f.attribute("alpha", 1.0))
    y = f("Mul", f("Cast", f.added(total, f.input(6)), to=f.dtype(scale)), scale)
    if f.input(7):
        y = f.quantized(y, f.input(7), f.input(8), f.dtype(f.input(0)))
    f.give(0, y)


def _attention(f: Body) -> None:
    """The product with the weights is of integers; what follows is that of Attention."""
    f.require(not f.attribute("do_rotary", 0), "do_rotary is not known")
    scale = f("Mul", f.input(3), f.input(4))
    qkv = _product(f, f.input(0), f.input(1), (f.input(6), f.input(7)), scale)
    projected(f, f.added(qkv, f.input(2)), mask=f.input(5), past=f.input(8), bias="")


def _recurrent_weights(f: Body, first: int, scale: int) -> str:
    """Return weights as LSTM has them: kept in bytes, transposed, with a scale for each direction or each row."""
    factor, point = f.input(scale), f.input(scale + 1)
    spread = [0, 1, -1] if f.rank(factor) == 2 else [0, 1, 1]
    dtype = f.dtype(factor)
    wide = f("Cast", f.input(first), to=dtype)
    if point:
        wide = f("Sub", wide, f.reshaped(f("Cast", point, to=dtype), *spread))
    return f.swapped(f("Mul", wide, f.reshaped(factor, *spread)))


def _dynamic_lstm(f: Body) -> None:
    """The weights are dequantised; what they are multiplied with stays float, where others round it to bytes."""
    known = f.attributes(
        "activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "input_forget"
    )
    weights = _recurrent_weights(f, 1, 8), _recurrent_weights(f, 2, 10)
    others = [f.input(number) for number in range(3, 8)]
    for number, result in enumerate(f.several(3, "LSTM", f.input(0), *weights, *others, **known)):
        f.give(number, result)


add("DynamicQuantizeMatMul", _dynamic_matmul)
add("DynamicQuantizeLSTM", _dynamic_lstm)
add("MatMulIntegerToFloat", _matmul_to_float)
add("MatMulInteger16", _matmul_16)
add("QGemm", _gemm)
add("QAttention", _attention)

# ---- Weights alone ------------------------------------------------------------------------------------------------


def unpacked(f: Body, x: str, bits: int) -> str:
    """Return the numbers of ``bits`` bits that lie in bytes along the last axis, low bits first, as bytes."""
    if bits == 8:
        return x
    count = 8 // bits
    steps = f.constant(np.arange(0, 8, bits), np.uint8)
    parts = f("BitShift", f.unsqueezed(x, -1), steps, direction="RIGHT")
    parts = f("BitwiseAnd", parts, f.constant((1 << bits) - 1, np.uint8))
    rank = f.rank(x)
    f.require(count * bits == 8, f"bits is {bits}, where 2, 4 or 8 is expected")
    return f.reshaped(parts, *[0] * (rank - 1), -1) if rank else parts


def _gather(f: Body) -> None:
    """Rows are gathered as they are stored, then widened."""
    data, indices, scales, points = (f.input(number) for number in range(4))
    rank, more = f.rank(data), f.rank(indices) - 1
    gathered = f.attribute("gather_axis", 0) % rank
    along = f.attribute("quantize_axis", 1) % rank
    bits, block = f.attribute("bits", 4), f.attribute("block_size", 128)
    f.require(gathered != along, "gather_axis and quantize_axis are one axis")
    whole = [one and f("Gather", one, indices, axis=gathered) for one in (data, scales, points)]
    x, scale, point = whole
    if f.dtype(data) == TensorProto.UINT8:
        f.require(along == rank - 1 or bits == 8, "bytes hold several elements along another axis than the last")
        x = unpacked(f, x, bits)
        if point:
            point = f.sliced(unpacked(f, point, bits), -1, f.ints(0), f.extent(scale, -1))
        else:
            shape = f("Shape", scale)
            point = f("Expand", f.constant(1 << (bits - 1), np.uint8), shape)
    axis = along + more if along > gathered else along
    f.give(0, f("DequantizeLinear", x, scale, *filter(None, [point]), axis=axis, block_size=block))


def _widened_product(f: Body) -> None:
    """MatMulNBits: weights ``[n, block, byte]`` as bytes ``[k, n]``, widened by blocks where the product reads them."""
    x, packed, scales, points, group, bias = (f.input(number) for number in range(6))
    n, k = f.attribute("N"), f.attribute("K")
    bits, block = f.attribute("bits", 4), f.attribute("block_size", 128)
    blocks, kind = -(-k // block), f.dtype(x)
    numbers = f.sliced(f.reshaped(unpacked(f, f.reshaped(packed, n, -1), bits), n, -1), 1, 0, k)
    scale = f.cast(f.reshaped(scales, n, blocks), kind)
    whole = not points or f.dtype(points) == TensorProto.UINT8
    if not points:
        point = f("Expand", f.constant(1 << (bits - 1), np.uint8), f.ints(n, blocks))
    elif whole:
        point = f.sliced(unpacked(f, f.reshaped(points, n, -1), bits), 1, 0, blocks)
    else:
        point = f.cast(f.reshaped(points, n, blocks), kind)
    if whole and not group:
        weights, factors, zeros = (f.transposed(one, 1, 0) for one in (numbers, scale, point))
        weights = f("DequantizeLinear", weights, factors, zeros, axis=0, block_size=block)
    else:  # g_idx says the block of each row of weights
        rows = f.cast(group, TensorProto.INT64) if group else f.constant(np.arange(k) // block)
        rows = f.sliced(rows, 0, 0, k)
        point, scale = (f("Gather", one, rows, axis=1) for one in (f.cast(point, kind), scale))
        weights = f.transposed(f("Mul", f("Sub", f.cast(numbers, kind), point), scale), 1, 0)
    f.give(0, f.added(f("MatMul", x, weights), bias))


add("GatherBlockQuantized", _gather)
add("MatMulNBits", _widened_product)
