"""Single operators at three sizes each: one for the first cache, one for the second, and one for none.

A row of `CASES` says how the graph is made of a shape, and of which shapes. What costs nothing (views, shapes, what
folds into constants) and what draws random numbers is in `LEFT_OUT`, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from benchmarks.families.builder import Net

Shape = tuple[int, ...]
Build = Callable[[Net, Shape], str]
IMAGES: tuple[Shape, ...] = ((1, 8, 16, 16), (1, 32, 56, 56), (8, 64, 112, 112))
ROWS: tuple[Shape, ...] = ((16, 128), (128, 768), (4096, 1024))
SQUARES: tuple[Shape, ...] = ((64, 64), (256, 256), (1024, 1024))
INT64, BOOL, FLOAT = onnx.TensorProto.INT64, onnx.TensorProto.BOOL, onnx.TensorProto.FLOAT
INT32, UINT32, UINT8 = onnx.TensorProto.INT32, onnx.TensorProto.UINT32, onnx.TensorProto.UINT8

LEFT_OUT: Mapping[str, str] = {
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", "BitCast"), "a view"),
    **dict.fromkeys(("Shape", "Size"), "reads no element"),
    **dict.fromkeys(
        ("Compress", "Det", "Loop", "MaxRoiPool", "NonMaxSuppression", "NonZero", "RoiAlign", "If", "Scan", "Scatter",
         "SplitToSequence", "StringConcat", "Unique"),
        "has no lowering",
    ),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow", "EyeLike", "Range", "ConstantOfShape"), "folds"),
    **dict.fromkeys(
        ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        "draws other numbers than the peer",
    ),
    **dict.fromkeys(
        ("AffineGrid", "Attention", "CastLike", "CausalConvWithState", "CenterCropPad", "CumProd",
         "GroupNormalization", "LinearAttention", "MeanVarianceNormalization", "RMSNormalization", "RotaryEmbedding",
         "NegativeLogLikelihoodLoss", "SequenceMap", "SoftmaxCrossEntropyLoss", "SwiGLU", "Swish", "TensorScatter",
         "Upsample"),
        "becomes others, or is in no opset that all peers take",
    ),
}  # fmt: skip


MATHEMATICS = "polynomials of its function, which are not counted, to 1 to 4 units in the last place"
REASONS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Gelu",
            "LRN", "Log", "LogSoftmax", "LpPool", "Mish", "Pow", "ReduceLogSumExp", "Selu", "Sigmoid", "Sin", "Sinh",
            "Softmax", "Softplus", "Tan", "Tanh",
        ),
        MATHEMATICS,
    ),
    **dict.fromkeys(("ArgMax", "ArgMin"), "a comparison and two choices for each element, of numbers and of places"),
    **dict.fromkeys(("AveragePool", "MaxPool"), "nine elements of the first cache for each that is counted"),
    **dict.fromkeys(("DFT", "STFT"), "in float64, and each factor of the length is a pass over all points"),
    "DepthToSpace": "lanes of two rows are interleaved",
    "Pad": "rows begin at no boundary of a vector, and their ends are single elements",
    "Resize": "two neighbours along each axis, those of the innermost gathered",
    "CumSum": "each sum waits for the one before",
    "DynamicQuantizeLinear": "three passes: least, largest, and the bytes",
    "GridSample": "four elements are gathered for each sample, at places that data say",
    "Mod": "a division in float64, for the remainder is exact",
    "TopK": "what may be among the best is inserted one by one",
    **dict.fromkeys(("LSTM", "GRU", "RNN"), "a step waits for the one before, its weights come from the second cache"),
    **dict.fromkeys(("ScatterElements", "GatherElements"), "one element by one index after the other"),
    **dict.fromkeys(("OneHot", "ReverseSequence", "DeformConv", "MaxUnpool"), "places that data say"),
    "Col2Im": "each pixel is a sum of up to nine elements, of as many places",
}  # fmt: skip
"""Why an operator stays below `LEAST` of the limit where its calls are long."""


def floats(net: Net, shape: Shape, name: str = "x") -> str:
    return net.input(name, *shape)


def unary(operator: str, kind: int = FLOAT, **attributes: Any) -> Build:
    return lambda net, shape: net.call(operator, net.input("x", *shape, dtype=kind), **attributes)


def binary(operator: str, kind: int = FLOAT, **attributes: Any) -> Build:
    return lambda net, s: net.call(
        operator, net.input("x", *s, dtype=kind), net.input("y", *s, dtype=kind), **attributes
    )


def reduced(operator: str) -> Build:
    return lambda net, shape: net.call(operator, floats(net, shape), net.integers(-1))


def with_integers(operator: str, *numbers: int, **attributes: Any) -> Build:
    return lambda net, shape: net.call(operator, floats(net, shape), net.integers(*numbers), **attributes)


def split(net: Net, shape: Shape) -> str:
    parts = net.Split(floats(net, shape), outputs=2, axis=1, num_outputs=2)
    return net.Concat(*parts[::-1], axis=1)


def quantized(operator: str, kind: int) -> Build:
    return lambda net, shape: net.call(
        operator, net.input("x", *shape, dtype=kind), net.constant(0.02), net.constant(128, np.uint8)
    )


def matmul(net: Net, shape: Shape) -> str:
    m, k, n = shape
    return net.MatMul(net.input("x", m, k), net.weights(k, n))


def gemm(net: Net, shape: Shape) -> str:
    m, k, n = shape
    return net.Gemm(net.input("x", m, k), net.weights(n, k), net.weights(n), transB=1)


def integer_product(net: Net, shape: Shape) -> str:
    m, k, n = shape
    weights = net.constant(net.random.integers(-127, 128, (k, n)), np.int8)
    return net.MatMulInteger(net.input("x", m, k, dtype=UINT8), weights)


def quantized_product(net: Net, shape: Shape) -> str:
    m, k, n = shape
    zero, scale = net.constant(0, np.int8), net.constant(0.01)
    weights = net.constant(net.random.integers(-127, 128, (k, n)), np.int8)
    left = (net.input("x", m, k, dtype=onnx.TensorProto.INT8), scale, zero)
    return net.QLinearMatMul(*left, weights, scale, zero, net.constant(0.5), zero)


def integer_convolution(net: Net, shape: Shape) -> str:
    channels = shape[1]
    weights = net.constant(net.random.integers(-127, 128, (channels, channels, 3, 3)), np.int8)
    return net.ConvInteger(net.input("x", *shape, dtype=UINT8), weights, pads=[1] * 4)


def quantized_convolution(net: Net, shape: Shape) -> str:
    channels = shape[1]
    zero, scale = net.constant(0, np.int8), net.constant(0.01)
    weights = net.constant(net.random.integers(-127, 128, (channels, channels, 3, 3)), np.int8)
    left = (net.input("x", *shape, dtype=onnx.TensorProto.INT8), scale, zero)
    return net.QLinearConv(*left, weights, scale, zero, net.constant(0.5), zero, pads=[1] * 4)


def recurrent(operator: str, gates: int) -> Build:
    def build(net: Net, shape: Shape) -> str:
        steps, batch, size = shape
        weights = [net.weights(1, gates * size, size, terms=size) for _ in range(2)]
        outputs = 3 if operator == "LSTM" else 2
        return net.call(operator, floats(net, (steps, batch, size)), *weights, outputs=outputs, hidden_size=size)[0]

    return build


def gathered(net: Net, shape: Shape) -> str:
    index = net.random.integers(0, shape[0], shape[0])
    return net.Gather(floats(net, shape), net.integers(*index), axis=0)


def gathered_elements(net: Net, shape: Shape) -> str:
    index = net.constant(net.random.integers(0, shape[1], shape), np.int64)
    return net.GatherElements(floats(net, shape), index, axis=1)


def gathered_places(net: Net, shape: Shape) -> str:
    index = net.constant(net.random.integers(0, shape[0], (shape[0], 1)), np.int64)
    return net.GatherND(floats(net, shape), index)


def scattered_elements(net: Net, shape: Shape) -> str:
    index = net.constant(net.random.integers(0, shape[1], shape), np.int64)
    return net.ScatterElements(floats(net, shape), index, floats(net, shape, "y"), axis=1, reduction="add")


def scattered_places(net: Net, shape: Shape) -> str:
    index = net.constant(net.random.permutation(shape[0])[: shape[0] // 2, None], np.int64)
    return net.ScatterND(floats(net, shape), index, floats(net, (shape[0] // 2, *shape[1:]), "y"))


def one_hot(net: Net, shape: Shape) -> str:
    index = net.constant(net.random.integers(0, shape[1], shape[0]), np.int64)
    return net.OneHot(index, net.integers(shape[1]), net.input("values", 2))


def reversed_sequences(net: Net, shape: Shape) -> str:
    lengths = net.integers(*net.random.integers(1, shape[0] + 1, shape[1]))
    return net.ReverseSequence(floats(net, (*shape, 32)), lengths)


def where(net: Net, shape: Shape) -> str:
    return net.Where(net.input("c", *shape, dtype=BOOL), floats(net, shape), floats(net, shape, "y"))


def clipped(net: Net, shape: Shape) -> str:
    return net.Clip(floats(net, shape), net.constant(-0.5), net.constant(0.5))


def sliced(net: Net, shape: Shape) -> str:
    ends = net.integers(*(one - 1 for one in shape[2:]))
    return net.Slice(floats(net, shape), net.integers(1, 1), ends, net.integers(2, 3), net.integers(1, 2))


def normed_layer(net: Net, shape: Shape) -> str:
    return net.normed(floats(net, shape), "layer")


def sampled(net: Net, shape: Shape) -> str:
    grid = net.constant(net.random.uniform(-1, 1, (shape[0], shape[2], shape[3], 2)))
    return net.GridSample(floats(net, shape), grid)


def spectra(net: Net, shape: Shape) -> str:
    return net.DFT(floats(net, (*shape, 1)), "", net.constant(1, np.int64))


def windowed_spectra(net: Net, shape: Shape) -> str:
    window = net.constant(np.hanning(64))
    return net.STFT(floats(net, (*shape, 1)), net.constant(32, np.int64), window)


def columns(net: Net, shape: Shape) -> str:
    n, c, h, w = shape
    source = floats(net, (n, 9 * c, (h - 2) * (w - 2)))
    return net.Col2Im(source, net.integers(h, w), net.integers(3, 3))


def deformed(net: Net, shape: Shape) -> str:
    n, c, h, w = shape
    offsets = net.constant(net.random.uniform(-1, 1, (n, 18, h - 2, w - 2)))
    return net.DeformConv(floats(net, shape), net.weights(c, c, 3, 3), offsets)


def unpooled(net: Net, shape: Shape) -> str:
    settings: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    most, places = net.MaxPool(floats(net, shape), outputs=2, **settings)
    return net.MaxUnpool(most, places, **settings)


UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp",
    "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal",
    "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan",
    "Tanh", "ThresholdedRelu",
)  # fmt: skip
BINARY = (
    "Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mean", "Sum", "Equal", "Greater", "Less", "GreaterOrEqual",
    "LessOrEqual", "PRelu",
)  # fmt: skip
REDUCED = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
POOLED: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1] * 4}
PRODUCTS: tuple[Shape, ...] = ((64, 64, 64), (1, 2048, 2048), (256, 512, 512))
FILTERED: tuple[Shape, ...] = ((1, 16, 16, 16), (1, 32, 56, 56), (1, 128, 28, 28))
SEQUENCES: tuple[Shape, ...] = ((8, 1, 64), (32, 1, 256), (32, 8, 256))

CASES: Mapping[str, tuple[Build, Sequence[Shape]]] = {
    **{one: (unary(one), IMAGES) for one in UNARY},
    **{one: (binary(one), IMAGES) for one in BINARY},
    **{one: (binary(one, INT32), IMAGES) for one in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    **{one: (binary(one, BOOL), IMAGES) for one in ("And", "Or", "Xor")},
    **{f"Reduce{one}": (reduced(f"Reduce{one}"), ROWS) for one in REDUCED},
    **{one: (unary(one, axis=-1), ROWS) for one in ("Softmax", "LogSoftmax", "Hardmax", "ArgMax", "ArgMin")},
    **{one: (unary(one), IMAGES) for one in ("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")},
    **{one: (unary(one, **POOLED), IMAGES) for one in ("AveragePool", "LpPool", "MaxPool")},
    **{one: (unary(one, blocksize=2), IMAGES) for one in ("DepthToSpace", "SpaceToDepth")},
    "Not": (unary("Not", BOOL), IMAGES),
    "BitwiseNot": (unary("BitwiseNot", INT32), IMAGES),
    "BitShift": (binary("BitShift", UINT32, direction="LEFT"), IMAGES),
    "Mod": (binary("Mod", fmod=1), IMAGES),
    "Cast": (unary("Cast", to=INT32), IMAGES),
    "Clip": (clipped, IMAGES),
    "Where": (where, IMAGES),
    "QuantizeLinear": (quantized("QuantizeLinear", FLOAT), IMAGES),
    "DequantizeLinear": (quantized("DequantizeLinear", UINT8), IMAGES),
    "DynamicQuantizeLinear": (lambda net, s: net.DynamicQuantizeLinear(floats(net, s), outputs=3)[0], IMAGES),
    "MatMul": (matmul, PRODUCTS),
    "Gemm": (gemm, PRODUCTS),
    "MatMulInteger": (integer_product, PRODUCTS),
    "QLinearMatMul": (quantized_product, PRODUCTS),
    "Einsum": (lambda net, s: net.Einsum(floats(net, s), net.weights(*s), equation="bik,bjk->bij"),
               ((4, 32, 32), (4, 128, 64), (12, 256, 64))),
    "Conv": (lambda net, s: net.conv(floats(net, s), s[1], 3), FILTERED),
    "ConvInteger": (integer_convolution, FILTERED),
    "QLinearConv": (quantized_convolution, FILTERED),
    "ConvTranspose": (lambda net, s: net.transposed(floats(net, s), s[1], 4, 2, 1), FILTERED),
    "LSTM": (recurrent("LSTM", 4), SEQUENCES),
    "GRU": (recurrent("GRU", 3), SEQUENCES),
    "RNN": (recurrent("RNN", 1), SEQUENCES),
    "BatchNormalization": (lambda net, s: net.normed(floats(net, s)), IMAGES),
    "InstanceNormalization": (lambda net, s: net.normed(floats(net, s), "instance"), IMAGES),
    "LayerNormalization": (normed_layer, ROWS),
    "LpNormalization": (unary("LpNormalization", axis=-1), ROWS),
    "LRN": (unary("LRN", size=5), IMAGES),
    "CumSum": (lambda net, s: net.CumSum(floats(net, s), net.constant(1, np.int64)), ROWS),
    "TopK": (lambda net, s: net.TopK(floats(net, s), net.integers(5), outputs=2)[0], ROWS),
    "Gather": (gathered, ROWS),
    "GatherElements": (gathered_elements, ROWS),
    "GatherND": (gathered_places, ROWS),
    "ScatterElements": (scattered_elements, ROWS),
    "ScatterND": (scattered_places, ROWS),
    "OneHot": (one_hot, ROWS),
    "ReverseSequence": (reversed_sequences, ((16, 4), (64, 16), (256, 64))),
    "Trilu": (unary("Trilu", upper=1), SQUARES),
    "Transpose": (unary("Transpose", perm=[0, 2, 3, 1]), IMAGES),
    "Concat": (binary("Concat", axis=1), IMAGES),
    "Split": (split, IMAGES),
    "Slice": (sliced, IMAGES),
    "Pad": (with_integers("Pad", 0, 0, 1, 2, 0, 0, 1, 2, mode="reflect"), IMAGES),
    "Tile": (with_integers("Tile", 1, 2, 1, 1), IMAGES),
    "Expand": (lambda net, s: net.Expand(floats(net, (*s[:2], 1, s[3])), net.integers(*s)), IMAGES),
    "GridSample": (sampled, IMAGES),
    "DFT": (spectra, ((1, 256), (16, 256), (16, 1000))),
    "STFT": (windowed_spectra, ((1, 1024), (1, 16384), (16, 16384))),
    "Col2Im": (columns, ((1, 8, 16, 16), (1, 32, 56, 56), (4, 64, 56, 56))),
    "DeformConv": (deformed, ((1, 8, 16, 16), (1, 32, 28, 28), (1, 32, 56, 56))),
    "MaxUnpool": (unpooled, IMAGES),
    "Resize": (lambda net, s: net.resized(floats(net, s), 2), IMAGES),
}  # fmt: skip


def model_of(operator: str, shape: Shape) -> onnx.ModelProto:
    """Return the model of one case."""
    net = Net()
    return net.model(CASES[operator][0](net, shape))
