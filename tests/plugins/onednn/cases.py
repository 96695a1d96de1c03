"""One model for every composite and operator that oneDNN takes, with the kernels it must become."""

from __future__ import annotations

import numpy as np

from tests.plugins.onednn.models import Case, Shape

IMAGE: dict[str, Shape] = {"x": (2, 16, 9, 11)}
WEIGHTS: dict[str, Shape] = {"w": (32, 16, 3, 3)}
BIASED = WEIGHTS | {"b": (32,)}
ROWS: dict[str, Shape] = {"x": (2, 5, 8)}
TABLE: dict[str, Shape] = {"x": (3, 5, 7)}
PLANE: dict[str, Shape] = {"x": (5, 8)}
PRODUCT = {"w": (8, 7), "b": (7,)}


def number(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


ERF = {"q": number(2**0.5), "one": number(1), "h": number(0.5)}
TANH = {"three": number(3), "k": number(0.044715), "q": number((2 / np.pi) ** 0.5), "one": number(1), "h": number(0.5)}
GELU_ERF = "d = Div(a, q) e = Erf(d) g = Add(e, one) t = Mul(a, g) y = Mul(t, h)"
GELU_TANH = (
    "p = Pow(a, three) i = Mul(p, k) j = Add(a, i) l = Mul(j, q) t = Tanh(l) "
    "o = Add(t, one) n = Mul(a, h) y = Mul(n, o)"
)

CONVOLUTIONS = {
    "conv": Case("y = Conv(x, w)", IMAGE, WEIGHTS, kernels=("Conv",)),
    "conv_bias": Case("y = Conv(x, w, b)", IMAGE, BIASED, kernels=("onednn.conv_bias",)),
    "conv_bias_behind": Case(
        "c = Conv(x, w) y = Add(c, b)", IMAGE, WEIGHTS | {"b": (32, 1, 1)}, kernels=("onednn.conv_bias",)
    ),
    "conv_relu": Case("c = Conv(x, w) y = Relu(c)", IMAGE, WEIGHTS, kernels=("onednn.conv_relu",)),
    "conv_bias_relu": Case("c = Conv(x, w, b) y = Relu(c)", IMAGE, BIASED, kernels=("onednn.conv_bias_relu",)),
    "conv_bias_add_relu": Case(
        "c = Conv(x, w, b) a = Add(c, z) y = Relu(a)",
        IMAGE | {"z": (2, 32, 7, 9)},
        BIASED,
        kernels=("onednn.conv_bias_add_relu",),
    ),
    "conv_add_relu": Case(
        "c = Conv(x, w) a = Add(z, c) y = Relu(a)",
        IMAGE | {"z": (2, 32, 7, 9)},
        WEIGHTS,
        kernels=("onednn.conv_add_relu",),
    ),
    "conv_add": Case(
        "c = Conv(x, w) y = Add(c, z)", IMAGE | {"z": (2, 32, 7, 9)}, WEIGHTS, kernels=("onednn.conv_add",)
    ),
    "conv_bias_clip": Case(
        "c = Conv(x, w, b) y = Clip(c, lo, hi)",
        IMAGE,
        BIASED | {"lo": number(0), "hi": number(0.6)},
        kernels=("onednn.conv_bias_clip",),
    ),
    "conv_bias_swish": Case(
        "c = Conv(x, w, b) g = Sigmoid(c) y = Mul(c, g)", IMAGE, BIASED, kernels=("onednn.conv_bias_swish",)
    ),
    "conv_activation": Case("c = Conv(x, w) y = HardSwish(c)", IMAGE, WEIGHTS, kernels=("onednn.conv_activation",)),
    "conv_bias_gelu_erf": Case(
        f"a = Conv(x, w, b) {GELU_ERF}", IMAGE, BIASED | ERF, kernels=("onednn.conv_bias_gelu_erf",)
    ),
    "conv_bias_activation": Case(
        "c = Conv(x, w, b) y = LeakyRelu<alpha = 0.1>(c)", IMAGE, BIASED, kernels=("onednn.conv_bias_activation",)
    ),
    "conv_bias_add": Case(
        "c = Conv(x, w, b) y = Add(c, z)", IMAGE | {"z": (2, 32, 7, 9)}, BIASED, kernels=("onednn.conv_bias_add",)
    ),
    "conv_swish": Case("c = Conv(x, w) g = Sigmoid(c) y = Mul(g, c)", IMAGE, WEIGHTS, kernels=("onednn.conv_swish",)),
    "conv_clip": Case(
        "c = Conv(x, w) y = Clip(c, lo)", IMAGE, WEIGHTS | {"lo": number(0)}, kernels=("onednn.conv_clip",)
    ),
    "conv_same_upper": Case('y = Conv<auto_pad = "SAME_UPPER", strides = [2, 2]>(x, w)', IMAGE, WEIGHTS),
    "conv_same_lower": Case('y = Conv<auto_pad = "SAME_LOWER", strides = [2, 2]>(x, w)', IMAGE, {"w": (32, 16, 4, 4)}),
    "conv_asymmetric_dilated": Case("y = Conv<pads = [0, 1, 2, 3], dilations = [2, 1]>(x, w, b)", IMAGE, BIASED),
    "conv_depthwise": Case(
        "y = Conv<pads = [1, 1, 1, 1], group = 16>(x, w, b)", IMAGE, {"w": (16, 1, 3, 3), "b": (16,)}
    ),
    "conv_grouped": Case("y = Conv<group = 4>(x, w)", IMAGE, {"w": (32, 4, 3, 3)}),
    "conv_1d": Case("y = Conv(x, w)", {"x": (1, 4, 20)}, {"w": (6, 4, 3)}),
    "conv_3d": Case("y = Conv(x, w)", {"x": (1, 4, 6, 7, 8)}, {"w": (6, 4, 3, 3, 3)}),
}

PRODUCTS = {
    "matmul": Case("y = MatMul(x, w)", PLANE, {"w": (8, 7)}, kernels=("MatMul",)),
    "matmul_of_rows": Case("y = MatMul(x, w)", ROWS, {"w": (8, 7)}),
    "matmul_bias": Case("m = MatMul(x, w) y = Add(b, m)", ROWS, PRODUCT, kernels=("onednn.matmul_bias",)),
    "matmul_bias_relu": Case(
        "m = MatMul(x, w) a = Add(m, b) y = Relu(a)", ROWS, PRODUCT, kernels=("onednn.matmul_bias_relu",)
    ),
    "matmul_bias_gelu": Case(
        "m = MatMul(x, w) a = Add(m, b) y = Gelu(a)", ROWS, PRODUCT, kernels=("onednn.matmul_bias_activation",)
    ),
    "matmul_bias_gelu_erf": Case(
        f"m = MatMul(x, w) a = Add(b, m) {GELU_ERF}", ROWS, PRODUCT | ERF, kernels=("onednn.matmul_bias_gelu_erf",)
    ),
    "matmul_bias_gelu_erf_other_order": Case(
        "m = MatMul(x, w) a = Add(b, m) k = Mul(a, h) d = Mul(a, q) e = Erf(d) g = Add(one, e) y = Mul(k, g)",
        ROWS,
        PRODUCT | ERF | {"q": number(0.5**0.5)},
        kernels=("onednn.matmul_bias_gelu_erf",),
    ),
    "matmul_bias_gelu_tanh": Case(
        f"m = MatMul(x, w) a = Add(b, m) {GELU_TANH}", ROWS, PRODUCT | TANH, kernels=("onednn.matmul_bias_gelu_tanh",)
    ),
    "matmul_gelu_erf": Case(
        f"a = MatMul(x, w) {GELU_ERF}", ROWS, {"w": (8, 7)} | ERF, kernels=("onednn.matmul_gelu_erf",)
    ),
    "matmul_relu": Case("m = MatMul(x, w) y = Relu(m)", ROWS, {"w": (8, 7)}, kernels=("onednn.matmul_relu",)),
    "matmul_activation": Case(
        "m = MatMul(x, w) y = Tanh(m)", ROWS, {"w": (8, 7)}, kernels=("onednn.matmul_activation",)
    ),
    "matmul_bias_add": Case(
        "m = MatMul(x, w) a = Add(m, b) y = Add(z, a)",
        ROWS | {"z": (2, 5, 7)},
        PRODUCT,
        kernels=("onednn.matmul_bias_add",),
    ),
    "matmul_residual": Case("r = Relu(x) m = MatMul(r, w) a = Add(m, b) y = Add(r, a)", ROWS, {"w": (8, 8), "b": (8,)}),
    "matmul_batched": Case("y = MatMul(x, z)", {"x": (2, 3, 5, 8), "z": (2, 3, 8, 6)}, {}),
    "matmul_left_shared": Case("y = MatMul(x, z)", {"x": (5, 8), "z": (2, 3, 8, 6)}, {}),
    "matmul_broadcast": Case("y = MatMul(x, z)", {"x": (2, 1, 5, 8), "z": (3, 8, 6)}, {}),
    "gemm": Case("y = Gemm<transB = 1>(x, w, b)", PLANE, {"w": (7, 8), "b": (7,)}, kernels=("Gemm",)),
    "gemm_square_both_ways": Case(
        "f = Gemm(x, w) s = Gemm<transB = 1>(x, w) y = Sub(f, s)", {"x": (4, 8)}, {"w": (8, 8)}
    ),
    "gemm_relu": Case(
        "g = Gemm<transA = 1>(x, w) y = Relu(g)", {"x": (8, 5)}, {"w": (8, 7)}, kernels=("onednn.gemm_relu",)
    ),
    "gemm_bias_of_two_axes": Case("y = Gemm(x, w, b)", PLANE, {"w": (8, 7), "b": (1, 7)}),
    "gemm_gelu_erf": Case(f"a = Gemm(x, w, b) {GELU_ERF}", PLANE, PRODUCT | ERF, kernels=("onednn.gemm_gelu_erf",)),
    "gemm_activation": Case("g = Gemm(x, w, b) y = Sigmoid(g)", PLANE, PRODUCT, kernels=("onednn.gemm_activation",)),
    "gemm_gelu_tanh": Case(f"a = Gemm(x, w, b) {GELU_TANH}", PLANE, PRODUCT | TANH, kernels=("onednn.gemm_gelu_tanh",)),
    "attention": Case(
        "q = Reshape(x, heads) u = Transpose<perm = [0, 2, 1, 3]>(q) k = Transpose<perm = [0, 2, 3, 1]>(q)"
        "a = MatMul(u, k) p = Softmax(a) o = MatMul(p, u) v = Transpose<perm = [0, 2, 1, 3]>(o) y = Reshape(v, rows)",
        {"x": (2, 6, 32)},
        {"heads": integers(2, 6, 4, 8), "rows": integers(2, 6, 32)},
    ),
}

WINDOWS = {
    "max_pool": Case("y = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(x)", IMAGE, {}),
    "max_pool_ceil": Case(
        "y = MaxPool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>(x)", {"x": (1, 3, 10, 10)}, {}
    ),
    "max_pool_dilated": Case("y = MaxPool<kernel_shape = [2, 2], dilations = [2, 2]>(x)", IMAGE, {}),
    "max_pool_same": Case(
        'y = MaxPool<kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_UPPER">(x)', IMAGE, {}
    ),
    "average_pool": Case("y = AveragePool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(x)", IMAGE, {}),
    "average_pool_counting_pads": Case(
        "y = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1>(x)", IMAGE, {}
    ),
    "average_pool_ceil": Case(
        "y = AveragePool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>(x)", {"x": (1, 3, 10, 10)}, {}
    ),
    "global_average_pool": Case("y = GlobalAveragePool(x)", IMAGE, {}),
    "global_max_pool": Case("y = GlobalMaxPool(x)", IMAGE, {}),
}

POINTWISE = {
    **{
        text: Case(f"y = {text}(x)", TABLE, {})
        for text in (
            "Relu",
            "LeakyRelu<alpha = 0.2>",
            "Elu<alpha = 0.7>",
            "Sigmoid",
            "Tanh",
            "Exp",
            "Abs",
            "Neg",
            "Softplus",
            "Round",
            "Mish",
            "HardSwish",
            "HardSigmoid<alpha = 0.3, beta = 0.4>",
            "Gelu",
            'Gelu<approximate = "tanh">',
            "Sqrt",
        )
    },
    **{text: Case(f"e = Exp(x) y = {text}(e)", TABLE, {}) for text in ("Log", "Reciprocal")},
    "clip": Case("y = Clip(x, lo, hi)", TABLE, {"lo": number(-0.5), "hi": number(0.6)}),
    "clip_below": Case("y = Clip(x, lo)", TABLE, {"lo": number(-0.5)}),
    "clip_above": Case("y = Clip(x, , hi)", TABLE, {"hi": number(0.5)}),
    "square": Case("y = Pow(x, p)", TABLE, {"p": number(2)}),
    "cube": Case("y = Pow(x, p)", TABLE, {"p": number(3)}),
    "gelu_erf": Case(f"a = Neg(x) {GELU_ERF}", TABLE, ERF, kernels=("Neg", "onednn.gelu_erf")),
    "gelu_tanh": Case(f"a = Neg(x) {GELU_TANH}", TABLE, TANH, kernels=("Neg", "onednn.gelu_tanh")),
    "swish": Case("g = Sigmoid(x) y = Mul(x, g)", TABLE, {}, kernels=("onednn.swish",)),
    **{f"{op}_whole": Case(f"y = {op}(x, z)", TABLE | {"z": (3, 5, 7)}, {}) for op in ("Add", "Sub", "Mul", "Div")},
    **{f"{op}_last_axis": Case(f"y = {op}(x, z)", TABLE | {"z": (7,)}, {}) for op in ("Add", "Sub", "Max", "Min")},
    **{f"{op}_inner_axis": Case(f"y = {op}(x, z)", TABLE | {"z": (5, 1)}, {}) for op in ("Mul", "Div")},
    **{f"{op}_scalar": Case(f"y = {op}(x, z)", TABLE, {"z": number(0.7)}) for op in ("Sub", "Mul")},
    **{f"{op}_swapped": Case(f"y = {op}(z, x)", TABLE | {"z": (5, 1)}, {}) for op in ("Add", "Mul", "Max", "Min")},
    "one_operand_twice": Case("y = Mul(x, x)", TABLE, {}),
    "channel_gate": Case("c = Conv(x, w) g = GlobalAveragePool(c) s = Sigmoid(g) y = Mul(c, s)", IMAGE, WEIGHTS),
    "scale_channels": Case("c = Conv(x, w) y = Mul(c, b)", IMAGE, WEIGHTS | {"b": (32, 1, 1)}),
    "scale_shift": Case(
        "m = Mul(x, s) y = Add(t, m)",
        IMAGE,
        {"s": (16, 1, 1), "t": (1, 16, 1, 1)},
        kernels=("onednn.scale_shift",),
    ),
    "scale_shift_relu": Case(
        "m = Mul(s, x) a = Add(m, t) y = Relu(a)",
        {"x": (1, 5, 3, 4)},
        {"s": (5, 1, 1), "t": (5, 1, 1)},
        kernels=("onednn.scale_shift_relu",),
    ),
    "softmax": Case("y = Softmax<axis = 1>(x)", IMAGE, {}),
    "log_softmax": Case("y = LogSoftmax(x)", {"x": (3, 7)}, {}),
    "layer_normalization": Case("y = LayerNormalization(x, g, b)", ROWS, {"g": (8,), "b": (8,)}),
    "layer_normalization_unshifted": Case("y = LayerNormalization<axis = 2, epsilon = 0.01>(x, g)", ROWS, {"g": (8,)}),
    "lrn": Case("y = LRN<size = 5, alpha = 0.01, beta = 0.6, bias = 2.0>(x)", IMAGE, {}),
    "batch_normalization": Case(
        "y = BatchNormalization<epsilon = 0.001>(x, g, b, m, v)",
        IMAGE,
        {"g": (16,), "b": (16,), "m": (16,), "v": np.linspace(0.1, 2, 16, dtype=np.float32)},
    ),
    "concat": Case(
        "c = Conv(x, w) d = Conv(x, v) y = Concat<axis = 1>(c, d, c)", IMAGE, WEIGHTS | {"v": (20, 16, 3, 3)}
    ),
    "concat_last": Case("y = Concat<axis = -1>(x, z)", {"x": (3, 4), "z": (3, 5)}, {}),
    "flatten": Case(
        "c = Conv(x, w) f = Flatten(c) y = Gemm<transB = 1>(f, v)", IMAGE, WEIGHTS | {"v": (10, 32 * 7 * 9)}
    ),
    "transpose": Case("y = Transpose<perm = [0, 2, 3, 1]>(x)", IMAGE, {}),
    "transpose_thrice": Case(
        "a = Transpose<perm = [1, 2, 0]>(x) b = Exp(a) c = Transpose(b) y = Transpose<perm = [2, 0, 1]>(c)", TABLE, {}
    ),
    "reshape": Case("y = Reshape(x, s)", IMAGE, {"s": integers(2, -1)}),
    "reshape_of_a_transpose": Case(
        "t = Transpose<perm = [1, 0, 2]>(x) r = Reshape(t, s) y = Exp(r)", TABLE, {"s": integers(5, 21)}
    ),
    "split": Case("y, z, u = Split<axis = 2>(x, s)", TABLE, {"s": integers(3, 1, 3)}, outputs=("y", "z", "u")),
    "split_of_a_convolution": Case(
        "c = Conv(x, w) a, b = Split<axis = 1, num_outputs = 2>(c) d, e = Split<axis = 1, num_outputs = 2>(a)"
        "f = Mul(d, e) g = MaxPool<kernel_shape = [2, 2]>(b) h = Concat<axis = 1>(f, e) y = Relu(h) z = Neg(g)",
        IMAGE,
        WEIGHTS,
        outputs=("y", "z"),
    ),
    "split_heads": Case(
        "m = MatMul(x, w) q, k, v = Split<axis = 2, num_outputs = 3>(m) q1 = Reshape(q, s) k1 = Reshape(k, s)"
        "v1 = Reshape(v, s) q2 = Transpose<perm = [0, 2, 1, 3]>(q1) k2 = Transpose<perm = [0, 2, 3, 1]>(k1)"
        "v2 = Transpose<perm = [0, 2, 1, 3]>(v1) a = MatMul(q2, k2) p = Softmax(a) y = MatMul(p, v2)",
        {"x": (2, 6, 8)},
        {"w": (8, 96), "s": integers(2, 6, 4, 8)},
    ),
    "slice": Case("y = Slice(x, a, b, c)", TABLE, {"a": integers(1, -3), "b": integers(4, 100), "c": integers(1, -1)}),
    "slice_of_a_slice": Case(
        "e = Exp(x) u = Slice(e, one, big, axis) y = Slice(u, one, big, one)",
        TABLE,
        {"one": integers(1), "big": integers(9), "axis": integers(2)},
    ),
    "mean_of_planes": Case("y = ReduceMean(x, a)", IMAGE, {"a": integers(2, 3)}),
    "unsqueeze": Case("u = Unsqueeze(x, a) y = Exp(u)", TABLE, {"a": integers(0, 2)}),
    "two_outputs": Case("y = Relu(x) z = Tanh(y)", IMAGE, {}, outputs=("y", "z")),
    "output_reshaped_twice": Case(
        "e = Exp(x) y = Reshape(e, s) z = Flatten(e)", IMAGE, {"s": integers(2, -1)}, outputs=("y", "z", "e")
    ),
}

RESIDUALS = {
    "residual_in_place": Case(
        "d = Conv<pads = [1, 1, 1, 1]>(x, v) r = Relu(d) c = Conv<pads = [1, 1, 1, 1]>(r, w, b)"
        "n = Conv<pads = [1, 1, 1, 1]>(c, w, b) a = Add(n, r) y = Relu(a)",
        IMAGE,
        {"v": (16, 16, 3, 3), "w": (16, 16, 3, 3), "b": (16,)},
    ),
    "residual_is_the_source": Case(
        "d = Conv<pads = [1, 1, 1, 1]>(x, v) r = Relu(d) c = Conv<pads = [1, 1, 1, 1]>(r, w) a = Add(c, r) y = Relu(a)",
        IMAGE,
        {"v": (16, 16, 3, 3), "w": (16, 16, 3, 3)},
    ),
    "residual_read_again": Case(
        "d = Conv<pads = [1, 1, 1, 1]>(x, v) r = Relu(d) e = Conv<pads = [1, 1, 1, 1]>(r, w)"
        "c = Conv<pads = [1, 1, 1, 1]>(e, w) a = Add(c, r) q = Relu(a) y = Mul(q, r)",
        IMAGE,
        {"v": (16, 16, 3, 3), "w": (16, 16, 3, 3)},
    ),
    "residual_is_an_output": Case(
        "d = Conv<pads = [1, 1, 1, 1]>(x, v) r = Relu(d) e = Conv<pads = [1, 1, 1, 1]>(r, w)"
        "c = Conv<pads = [1, 1, 1, 1]>(e, w) a = Add(c, r) y = Relu(a)",
        IMAGE,
        {"v": (16, 16, 3, 3), "w": (16, 16, 3, 3)},
        outputs=("y", "r"),
    ),
}

CASES = CONVOLUTIONS | PRODUCTS | WINDOWS | POINTWISE | RESIDUALS
