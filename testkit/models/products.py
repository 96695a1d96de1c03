"""Rows of products, windows, recurrences and attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from graft.testkit.models.draw import Draw, Unfit, Value
from graft.testkit.models.rows import Row, a_float, broadcasts, narrowed


def matmul(draw: Draw) -> None:
    """A product, with what often follows it."""
    x = a_float(draw, -20, 20, rank=(1, 5))
    k, n = x.array.shape[-1], draw.one_of((1, 2, 5, 16))
    other = draw.pick(
        lambda one: one.dtype == draw.real and one.ndim >= 2 and one.size > 0 and one.shape[-2] == k
        and broadcasts(one.shape[:-2], x.array.shape[:-2]) and np.abs(one).max() < 20
    )  # fmt: skip
    if other is None or draw.chance(0.6):
        batch = narrowed(draw, x.array.shape[:-2]) if draw.chance(0.3) else ()
        other = draw.operand(draw.floats((*batch, k, n) if draw.chance(0.95) else (k,), -0.7, 0.7))
    y = draw.MatMul(x, other)
    if draw.chance(0.5) and y.array.ndim:
        shape = y.array.shape[-1:] if draw.chance(0.6) else narrowed(draw, y.array.shape)
        y = draw.Add(*draw.rng.permutation([y, draw.constant(draw.floats(shape))]).tolist())
    if draw.chance(0.4):
        draw.call(draw.one_of(("Relu", "Gelu", "Tanh", "Sigmoid", "Mish", "HardSwish")), y)


def gemm(draw: Draw) -> None:
    x = a_float(draw, rank=(2, 2))
    a, b = draw.integer(0, 1), draw.integer(0, 1)
    k, m = x.array.shape[:: 1 if a else -1]
    n = draw.one_of((1, 3, 8))
    weights = draw.operand(draw.floats((n, k) if b else (k, n), -0.7, 0.7))
    bias = draw.constant(draw.floats(narrowed(draw, (m, n)))) if draw.chance(0.7) else None
    more: dict[str, Any] = {"alpha": 0.5, "beta": 0.25} if draw.chance(0.2) else {}
    draw.Gemm(x, weights, bias, transA=a, transB=b, **more)


def einsum(draw: Draw) -> None:
    x = a_float(draw, -20, 20, rank=(2, 4))
    letters = "abcd"[: x.array.ndim]
    weights = draw.constant(draw.floats((x.array.shape[-1], 3), -0.7, 0.7))
    draw.Einsum(x, weights, equation=f"{letters},{letters[-1]}z->{letters[:-1]}z")


def an_image(draw: Draw) -> Value:
    """Return a value with one to three spatial axes, a new input where there is none."""
    if draw.chance(0.3):
        spatial = draw.one_of((1, 2, 2, 2, 3))
        channels = draw.one_of((1, 3, 4, 16, 17))
        return draw.input(
            draw.floats((draw.one_of((1, 1, 2)), channels, *(draw.one_of((1, 4, 7)) for _ in range(spatial))))
        )
    return a_float(draw, rank=(3, 5))


def convolution(draw: Draw) -> None:
    """A convolution, with what often follows it."""
    x = an_image(draw)
    _, c, *sizes = x.array.shape
    groups = draw.one_of([1, 1, *(one for one in (2, c) if c % one == 0)])
    m = groups * draw.one_of((1, 2, 16 // groups or 1))
    kernel = [draw.one_of((1, 3)) for _ in sizes]
    attributes: dict[str, Any] = {
        "group": groups,
        "strides": [draw.one_of((1, 1, 2)) for _ in sizes],
        "pads": [size // 2 for size in kernel] * 2,
    }
    if draw.chance(0.2):
        attributes["auto_pad"] = draw.one_of(("SAME_UPPER", "SAME_LOWER"))
        del attributes["pads"]
    elif draw.chance(0.2):
        attributes["dilations"] = [draw.one_of((1, 2)) for _ in sizes]
        attributes["pads"] = [size - 1 for size in kernel] * 2
    weights = draw.constant(draw.floats((m, c // groups, *kernel), -0.5, 0.5))
    bias = draw.constant(draw.floats((m,))) if draw.chance(0.5) else None
    y = draw.Conv(x, weights, bias, **attributes)
    if draw.chance(0.3):
        other = draw.operand(draw.floats(y.array.shape if draw.chance(0.6) else (m, *(1,) * len(sizes))))
        y = draw.Add(*draw.rng.permutation([y, other]).tolist())
    if draw.chance(0.4):
        draw.call(draw.one_of(("Relu", "HardSwish", "Sigmoid", "LeakyRelu", "Mish")), y)


def transposed_convolution(draw: Draw) -> None:
    x = an_image(draw)
    _, c, *sizes = x.array.shape
    draw.ConvTranspose(x, draw.constant(draw.floats((c, 2, *(2 for _ in sizes)), -0.5, 0.5)),
              strides=[draw.one_of((1, 2)) for _ in sizes])  # fmt: skip


def pooling(draw: Draw) -> None:
    x = an_image(draw)
    sizes = x.array.shape[2:]
    op_type = draw.one_of(("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
    exact = op_type.endswith("MaxPool")
    if op_type.startswith("Global"):
        draw.call(op_type, x, exact=exact)
        return
    kernel = [min(draw.one_of((1, 2, 3)), size) for size in sizes]
    strides = [draw.one_of((1, 2)) for _ in sizes]
    pads = [draw.integer(0, size // 2) for size in kernel] * 2 if op_type != "LpPool" else [0] * (2 * len(sizes))
    more = {"count_include_pad": draw.integer(0, 1)} if op_type == "AveragePool" else {}
    draw.call(op_type, x, kernel_shape=kernel, strides=strides, pads=pads, exact=exact, **more)


def resize(draw: Draw) -> None:
    x = a_float(draw, rank=(4, 4))
    scales = draw.constant(np.array([1, 1, draw.one_of((1, 2)), 2], np.float32))
    mode = draw.one_of(("nearest", "linear"))
    draw.Resize(x, None, scales, mode=mode, coordinate_transformation_mode="asymmetric",
              nearest_mode="floor", exact=mode == "nearest")  # fmt: skip


def recurrence(draw: Draw) -> None:
    """RNN, GRU or LSTM over few steps; one step is what decoding does."""
    steps, batch, size, hidden = draw.one_of((1, 1, 3)), draw.one_of((1, 2)), draw.one_of((1, 4)), draw.one_of((1, 5))
    op_type, gates = draw.one_of((("RNN", 1), ("GRU", 3), ("LSTM", 4)))
    x = draw.pick(lambda one: one.dtype == draw.real and one.ndim == 3 and 0 < one.size < 300) or draw.input(
        draw.floats((steps, batch, size))
    )
    size = x.array.shape[2]
    weights = draw.constant(draw.floats((1, gates * hidden, size), -0.7, 0.7))
    recurrent = draw.constant(draw.floats((1, gates * hidden, hidden), -0.7, 0.7))
    bias = draw.constant(draw.floats((1, 2 * gates * hidden))) if draw.chance(0.6) else None
    draw.call(op_type, x, weights, recurrent, bias, outputs=2, hidden_size=hidden)


def attention(draw: Draw) -> None:
    batch, heads, queries, keys, size = 1, draw.one_of((1, 2)), draw.one_of((1, 1, 4)), draw.one_of((1, 4)), 8
    q = draw.input(draw.floats((batch, heads, queries, size)))
    k, v = (draw.operand(draw.floats((batch, heads, keys, size))) for _ in range(2))
    mask = draw.constant(draw.floats((queries, keys))) if draw.chance(0.4) else None
    draw.Attention(q, k, v, mask)


def rotary(draw: Draw) -> None:
    heads, steps, size = draw.one_of((1, 2)), draw.one_of((1, 3)), draw.one_of((2, 8))
    x = draw.input(draw.floats((1, heads, steps, size)))
    cos, sin = (draw.constant(draw.floats((1, steps, size // 2), -1, 1)) for _ in range(2))
    draw.RotaryEmbedding(x, cos, sin, interleaved=draw.integer(0, 1))


def quantized(draw: Draw) -> None:
    """Rounding to 8 bits and back, of exact values, for a value near a tie may go either way."""
    x = a_float(draw, exact=True)
    if x.array.size == 0:
        raise Unfit
    scale, zero = draw.constant(draw.real(0.0625)), draw.constant(np.uint8(draw.integer(100, 140)))
    if draw.chance(0.2):
        draw.DynamicQuantizeLinear(draw.input(draw.floats((2, 3))), outputs=3)
        return
    y = draw.QuantizeLinear(x, scale, zero, exact=True)
    draw.DequantizeLinear(y, scale, zero, exact=True)


def integer_product(draw: Draw) -> None:
    x = draw.input(draw.rng.integers(0, 255, (draw.one_of((1, 3)), 5)).astype(np.uint8))
    weights = draw.constant(draw.rng.integers(-9, 9, (5, draw.one_of((1, 4)))).astype(np.int8))
    if draw.chance(0.5):
        draw.MatMulInteger(x, weights, draw.constant(np.uint8(3)))
        return
    scale, zero, shift = (draw.constant(one) for one in (np.float32(0.0625), np.uint8(3), np.int8(0)))
    draw.QLinearMatMul(x, scale, zero, weights, scale, shift, draw.constant(np.float32(0.3717)), zero)


def integer_convolution(draw: Draw) -> None:
    x = draw.input(draw.rng.integers(0, 255, (1, 3, 4, 4)).astype(np.uint8))
    weights = draw.constant(draw.rng.integers(0, 9, (4, 3, 3, 3)).astype(np.uint8))
    zero = draw.constant(np.uint8(3))
    if draw.chance(0.5):
        draw.ConvInteger(x, weights, zero)
        return
    scale = draw.constant(np.float32(0.0625))
    draw.QLinearConv(x, scale, zero, weights, scale, zero, draw.constant(np.float32(0.3717)), zero)


PRODUCTS = (
    Row("MatMul", matmul, 8.0), Row("Gemm", gemm, 3.0), Row("Einsum", einsum), Row("convolution", convolution, 6.0),
    Row("ConvTranspose", transposed_convolution), Row("pooling", pooling, 3.0), Row("Resize", resize),
    Row("recurrence", recurrence), Row("Attention", attention), Row("RotaryEmbedding", rotary),
    Row("quantized", quantized), Row("integer_product", integer_product),
    Row("integer_convolution", integer_convolution),
)  # fmt: skip
