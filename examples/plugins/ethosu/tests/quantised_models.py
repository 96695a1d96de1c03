"""Models of one layer each: float inputs are quantised, an operator reads what is dequantised, and so on behind it."""

import math

import numpy as np
import onnx
from onnx import helper, numpy_helper


def layer(core, inputs, constants=(), *, weights=None, bias=None, dtype="int8", per_channel=False, scale=0.1, zero=3):
    """Return a model of operators in ONNX's text: they read ``x0``, ``x1``, ``w``, ``b`` and constants, and give ``y``.

    ``weights`` and ``bias`` are arrays of float, ``w`` and ``b`` what these are as integers, dequantised.
    """
    nodes, given, made = [], [], [numpy_helper.from_array(np.asarray(one), name) for name, one in constants]

    def constant(name, array):
        made.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def steps(name, factor, point=0):
        return constant(f"{name}_scale", np.float32(factor)), constant(f"{name}_zero", np.array(point, dtype))

    for number, shape in enumerate(inputs):
        name = f"f{number}"
        given.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
        own = steps(f"x{number}", 0.02 * (1 + number), zero)
        nodes.append(helper.make_node("QuantizeLinear", [name, *own], [f"q{number}"], name=f"quantise{number}"))
        nodes.append(helper.make_node("DequantizeLinear", [f"q{number}", *own], [f"x{number}"], name=f"meant{number}"))
    if weights is not None:
        axes = tuple(range(1, weights.ndim)) if per_channel else None
        factor = (np.abs(weights).max(axis=axes) / 127).astype(np.float32)
        whole = np.rint(weights / factor.reshape([-1] + [1] * (weights.ndim - 1) if per_channel else [])).astype(
            np.int8
        )
        pair = constant("w_integers", whole), constant("w_scale", factor)
        nodes.append(helper.make_node("DequantizeLinear", pair, ["w"], axis=0, name="weights"))
        if bias is not None:
            summed = (np.float32(0.02) * factor).astype(np.float32)
            pair = constant("b_integers", np.rint(bias / summed).astype(np.int32)), constant("b_scale", summed)
            nodes.append(helper.make_node("DequantizeLinear", pair, ["b"], axis=0, name="bias"))
    head = '<ir_version: 10, opset_import: ["" : 21]> g (float x) => (float y) {' + core + "}"
    nodes += onnx.parser.parse_model(head).graph.node
    for number, node in enumerate(nodes):
        node.name = node.name or f"core{number}"
    own = steps("y", scale, zero)
    nodes.append(helper.make_node("QuantizeLinear", ["y", *own], ["quantised"], name="quantise"))
    nodes.append(helper.make_node("DequantizeLinear", ["quantised", *own], ["result"], name="meant"))
    result = helper.make_tensor_value_info("result", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "layer", given, [result], made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def normal(*shape):
    """Return weights."""
    return np.random.default_rng(math.prod(shape)).standard_normal(shape).astype(np.float32) / 4


IMAGE = [[1, 4, 8, 8]]
SPACE = ("pads", np.array([0, 0, 1, 2, 0, 0, 2, 1], np.int64))
WHOLE = {"roi": np.zeros(0, np.float32), "scales": np.array([1, 1, 2, 2], np.float32)}.items()
MODELS = {
    "conv": layer("y = Conv <pads=[1,1,1,1]> (x0, w, b)", IMAGE, weights=normal(6, 4, 3, 3), bias=normal(6)),
    "conv_channels": layer("c = Conv <strides=[2,2]> (x0, w, b) y = Relu(c)", IMAGE, weights=normal(6, 4, 3, 3),
                           bias=normal(6), per_channel=True),
    "conv_unsigned": layer("y = Conv (x0, w)", IMAGE, weights=normal(6, 4, 3, 3), dtype="uint8", zero=120),
    "depthwise": layer("y = Conv <group=4, pads=[1,1,1,1]> (x0, w)", IMAGE, weights=normal(4, 1, 3, 3)),
    "multiplied": layer("y = Conv <group=4> (x0, w)", IMAGE, weights=normal(8, 1, 3, 3)),
    "groups": layer("y = Conv <group=2, dilations=[2,2]> (x0, w)", IMAGE, weights=normal(6, 2, 3, 3)),
    "sequence": layer("y = Conv <pads=[2,2]> (x0, w, b)", [[1, 4, 16]], weights=normal(6, 4, 5), bias=normal(6)),
    "transposed": layer("y = ConvTranspose <strides=[2,2], pads=[1,1,1,1], output_padding=[1,1]> (x0, w)", IMAGE,
                        weights=normal(4, 5, 3, 3)),
    "gemm": layer("y = Gemm <transB=1> (x0, w, b)", [[3, 16]], weights=normal(8, 16), bias=normal(8)),
    "matmul": layer("y = MatMul (x0, w)", [[2, 3, 16]], weights=normal(16, 8)),
    "matmul_bias": layer("m = MatMul (x0, w) y = Add(m, c)", [[3, 16]], [("c", normal(8))], weights=normal(16, 8)),
    "matrices": layer("y = MatMul (x0, x1)", [[2, 3, 8], [2, 8, 5]]),
    "add": layer("a = Add (x0, x1) y = Relu(a)", [[1, 4, 8, 8]] * 2),
    "add_channels": layer("y = Add (x0, x1)", [[1, 4, 8, 8], [4, 1, 1]]),
    "add_constant": layer("y = Add (x0, c)", IMAGE, [("c", normal(4, 1, 1))]),
    "subtract": layer("y = Sub (x0, x1)", [[2, 8], [8]]),
    "multiply": layer("y = Mul (x0, x1)", [[1, 4, 8, 8], [1, 4, 1, 1]], scale=0.04),
    "divide": layer("y = Div (x0, c)", IMAGE, [("c", normal(4, 1, 1) + 2)]),
    "maximum": layer("y = Max (x0, x1)", [[1, 4, 8, 8]] * 2),
    "max_pool": layer("y = MaxPool <kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]> (x0)", IMAGE),
    "average_pool": layer("y = AveragePool <kernel_shape=[2,2], strides=[2,2]> (x0)", IMAGE, scale=0.0137),
    "average_pads": layer("y = AveragePool <kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1> (x0)", IMAGE,
                          scale=0.0137),
    "global_pool": layer("y = GlobalAveragePool (x0)", IMAGE, scale=0.01),
    "reduce_mean": layer("y = ReduceMean <keepdims=0> (x0, a)", [[1, 6, 8]], [("a", np.array([-1]))], scale=0.0071),
    "reduce_sum": layer("y = ReduceSum <keepdims=1> (x0, a)", IMAGE, [("a", np.array([1]))]),
    "reduce_max": layer("y = ReduceMax <keepdims=0> (x0, a)", IMAGE, [("a", np.array([2, 3]))]),
    "softmax": layer("y = Softmax <axis=-1> (x0)", [[4, 10]], scale=1 / 256, zero=-128),
    "softmax_channels": layer("y = Softmax <axis=1> (x0)", IMAGE, scale=1 / 256, zero=-128),
    "sigmoid": layer("y = Sigmoid (x0)", IMAGE, scale=1 / 256, zero=-128),
    "silu": layer("s = Sigmoid (x0) y = Mul(x0, s)", IMAGE, scale=0.03),
    "hard_swish": layer("y = HardSwish (x0)", IMAGE),
    "chain": layer("a = Add(x0, c) e = Exp(a) y = Neg(e)", IMAGE, [("c", np.float32(-1))], scale=0.05),
    "leaky": layer("y = LeakyRelu (x0)", IMAGE, dtype="uint8", zero=100),
    "concat": layer("y = Concat <axis=1> (x0, x1)", [[1, 4, 8, 8], [1, 2, 8, 8]]),
    "slice": layer("y = Slice (x0, s, e, a)", IMAGE,
                   [("s", np.array([1, -4])), ("e", np.array([3, 100])), ("a", np.array([1, 3]))]),
    "pad": layer("y = Pad (x0, pads)", IMAGE, [SPACE]),
    "transpose": layer("t = Transpose <perm=[0,2,1]> (x0) y = Sigmoid(t)", [[2, 6, 8]], scale=1 / 256, zero=-128),
    "reshape": layer("r = Reshape (x0, s) y = Tanh(r)", IMAGE, [("s", np.array([1, 16, 16]))], scale=1 / 128, zero=0),
    "nearest": layer('y = Resize <mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"> '
                     "(x0, roi, scales)", IMAGE, WHOLE),
    "linear_corners": layer('y = Resize <mode="linear", coordinate_transformation_mode="asymmetric"> '
                            "(x0, roi, scales)", IMAGE, WHOLE),
    "linear": layer('y = Resize <mode="linear"> (x0, roi, scales)', IMAGE, WHOLE),
}  # fmt: skip
"""By name, one for each lowering."""
OTHERS = [
    onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]> g (int8[1,6,4,4] x) => (int64[1,1,4,4] y)
    <float s = {0.5}> { d = DequantizeLinear(x, s) y = ArgMax<axis=1>(d) }"""),
    onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]> g (int8[2,8] x) => (int8[2,8] y)
    <float s = {0.5}, float t = {0.3}, int8 z = {7}>
    { d = DequantizeLinear(x, s) y = QuantizeLinear(d, t, z) }"""),
]
"""Models whose inputs or results are integers."""
