"""Quantised models are computed in integers: to the bit in QLinear form, within a step of the scale in QDQ form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import graft
from graft.errors import GraftError
from graft.patterns import is_constant, is_op, wildcard
from graft.patterns.match import Match
from graft.plugins.json_backend import Engine
from graft.plugins.json_graph import JsonGraph, JsonNode

from .quantized import Quantized, operators

FLOAT_PRODUCTS = {"Conv", "MatMul", "Gemm"}
DTYPES = st.sampled_from(("uint8", "int8"))
ZEROS = st.tuples(st.integers(0, 127), st.integers(0, 127))
OUT = 0.4
"""A scale with which results are spread over all numbers of 8 bits."""


def run(model: onnx.ModelProto, build: Quantized, **options: object) -> np.ndarray:
    program = graft.compile(model, ["llvm"], threads=1, cache=False, strict=True, **options)  # type: ignore[arg-type]
    (result,) = program.run(build.inputs).values()
    return np.asarray(result)


def check_steps(model: onnx.ModelProto, build: Quantized) -> None:
    """The numbers are at most one off those of the reference evaluator, and no product is computed in floats."""
    expected = build.expected(model)
    found = run(model, build)
    assert found.dtype == expected.dtype
    assert np.abs(found.astype(int) - expected.astype(int)).max(initial=0) <= 1
    assert not FLOAT_PRODUCTS & set(operators(model))


def test_the_last_of_seventeen_channels_is_one_byte() -> None:
    build = Quantized()
    weights, _ = build.weights(17, 1, 1, 1)
    y = build.add("Conv", build.activation(1, 17, 2, 3), weights, group=17)
    check_steps(build.model(build.quantize(y, OUT, 128), "uint8"), build)


def with_bias(build: Quantized, kind: str, channels: int, scales: np.ndarray) -> list[str]:
    numbers = build.random.integers(-2000, 2000, channels)
    if kind == "none":
        return []
    if kind == "float":
        return [build.constant(numbers * 0.0003)]
    whole = np.broadcast_to(np.float32(0.02) * scales, (channels,))
    return [build.dequantize(build.constant(numbers, "int32"), whole, 0, "int32", 0)]


def finished(build: Quantized, value: str, activation: str, dtype: str) -> str:
    if activation == "Relu":
        value = build.add("Relu", value)
    elif activation == "Clip":
        value = build.add("Clip", value, build.constant(-20), build.constant(30))
    elif activation == "Sigmoid":
        return build.quantize(build.add("Sigmoid", value), 1 / 255, 0 if dtype == "uint8" else -128, dtype)
    return build.quantize(value, OUT, {"uint8": 0 if activation == "Relu" else 128, "int8": 3}[dtype], dtype)


@settings(max_examples=15, deadline=None)
@given(
    channels=st.integers(1, 20), outputs=st.integers(1, 36), height=st.integers(1, 9), width=st.integers(1, 11),
    window=st.sampled_from(((1, 1), (3, 3), (3, 2), (1, 5), (1, 1, 1), (3, 3, 3), (2, 1, 3))),
    stride=st.integers(1, 2), dilation=st.integers(1, 2),
    pad=st.integers(0, 2), depthwise=st.booleans(), axis=st.sampled_from((0, None)), dtype=DTYPES,
    zero=st.integers(0, 127), bias=st.sampled_from(("none", "int32", "float")),
    activation=st.sampled_from(("none", "Relu", "Clip", "Sigmoid")),
)  # fmt: skip
def test_convolutions_in_qdq_form_are_within_a_step(
    channels: int, outputs: int, height: int, width: int, window: tuple[int, ...], stride: int, dilation: int,
    pad: int, depthwise: bool, axis: int | None, dtype: str, zero: int, bias: str, activation: str,
) -> None:  # fmt: skip
    build = Quantized(channels * 37 + outputs)
    reach = [(extent - 1) * dilation + 1 for extent in window]
    extents = [max(pair) for pair in zip((height, width, 4), reach, strict=False)]
    outputs = channels if depthwise else outputs
    x = build.activation(1, channels, *extents, zero=zero, dtype=dtype)
    weights, scales = build.weights(outputs, 1 if depthwise else channels, *window, axis=axis)
    attributes = {
        "strides": [stride] * len(window), "dilations": [dilation] * len(window), "group": channels if depthwise else 1,
        "pads": [pad] * len(window) + [pad + 1] + [pad] * (len(window) - 1),
    }  # fmt: skip
    y = build.add("Conv", x, weights, *with_bias(build, bias, outputs, scales), **attributes)
    check_steps(build.model(finished(build, y, activation, dtype), dtype), build)


@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(1, 20), depth=st.integers(1, 70), columns=st.integers(1, 40), form=st.sampled_from("MTG"),
    axis=st.booleans(), dtype=DTYPES, zero=st.integers(0, 127), bias=st.sampled_from(("none", "int32", "float")),
)  # fmt: skip
def test_products_in_qdq_form_are_within_a_step(
    rows: int, depth: int, columns: int, form: str, axis: bool, dtype: str, zero: int, bias: str
) -> None:
    build = Quantized(rows * 41 + depth)
    transposed = form == "T"
    shape = (columns, depth) if transposed else (depth, columns)
    if form == "M":
        x = build.activation(2, rows, depth, zero=zero, dtype=dtype)
        weights, _ = build.weights(*shape, axis=1 if axis else None)
        y = build.add("MatMul", x, weights)
    else:
        x = build.activation(rows, depth, zero=zero, dtype=dtype)
        weights, scales = build.weights(*shape, axis=int(not transposed) if axis else None)
        y = build.add("Gemm", x, weights, *with_bias(build, bias, columns, scales), transB=int(transposed))
    check_steps(build.model(finished(build, y, "none", dtype), dtype), build)


@settings(max_examples=15, deadline=None)
@given(
    channels=st.integers(1, 17), outputs=st.integers(1, 33), side=st.integers(3, 8), window=st.sampled_from((1, 3)),
    stride=st.integers(1, 2), dtypes=st.tuples(DTYPES, DTYPES), zeros=ZEROS,
    bias=st.booleans(), apart=st.booleans(),
)  # fmt: skip
def test_qlinear_convolutions_are_exact(
    channels: int, outputs: int, side: int, window: int, stride: int, dtypes: tuple[str, str],
    zeros: tuple[int, int], bias: bool, apart: bool,
) -> None:  # fmt: skip
    build = Quantized(channels * 31 + outputs)
    x = build.input(1, channels, side, side, dtype=dtypes[0])
    scales = build.scales(outputs, 0.01) if apart else np.float32(0.01)
    numbers = [build.constant(build.random.integers(-500, 500, outputs), "int32")] if bias else []
    y = build.add(
        "QLinearConv", x, build.constant(0.02), build.constant(zeros[0], dtypes[0]),
        build.constant(build.bytes("int8", outputs, channels, window, window), "int8"), build.constant(scales),
        build.constant(np.zeros(np.shape(scales)), "int8"), build.constant(OUT), build.constant(zeros[1], dtypes[1]),
        *numbers, strides=[stride] * 2, pads=[window // 2] * 4,
    )  # fmt: skip
    model = build.model(y, dtypes[1])
    np.testing.assert_array_equal(run(model, build), qlinear(build, model))
    assert "QLinearConv" not in operators(model)


@settings(max_examples=20, deadline=None)
@given(
    rows=st.integers(1, 20), depth=st.integers(1, 40), columns=st.integers(1, 40), dtypes=st.tuples(DTYPES, DTYPES),
    zeros=ZEROS,
)  # fmt: skip
def test_qlinear_products_are_exact(
    rows: int, depth: int, columns: int, dtypes: tuple[str, str], zeros: tuple[int, int]
) -> None:
    build = Quantized(rows * 29 + columns)
    y = build.add(
        "QLinearMatMul", build.input(rows, depth, dtype=dtypes[0]), build.constant(0.02),
        build.constant(zeros[0], dtypes[0]), build.constant(build.bytes("int8", depth, columns), "int8"),
        build.constant(0.01), build.constant(0, "int8"), build.constant(OUT), build.constant(zeros[1], dtypes[1]),
    )  # fmt: skip
    model = build.model(y, dtypes[1])
    np.testing.assert_array_equal(run(model, build), qlinear(build, model))
    assert "QLinearMatMul" not in operators(model)


def qlinear(build: Quantized, model: onnx.ModelProto) -> np.ndarray:
    """ONNX's definition: whole sums times (x_scale * w_scale) / y_scale, rounded to even, shifted, clamped."""
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    node = model.graph.node[-1]
    x, x_scale, x_zero, w, w_scale, _, y_scale, y_zero, *bias = (
        build.inputs[name] if name in build.inputs else arrays[name] for name in node.input
    )
    centred = x.astype(np.int64) - int(x_zero)
    if node.op_type == "QLinearMatMul":
        sums, along = centred @ w.astype(np.int64), (-1,)
    else:
        attributes = {one.name: list(one.ints) for one in node.attribute}
        pads, stride = attributes["pads"], attributes["strides"][0]
        padded = np.pad(centred, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
        windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
        sums, along = np.einsum("nchwij,ocij->nohw", windows, w.astype(np.int64)), (-1, 1, 1)
        if bias:
            sums = sums + bias[0].reshape(along)
    factor = (x_scale * w_scale) / y_scale
    factor = factor.reshape(along) if factor.ndim else factor
    limits = np.iinfo(y_zero.dtype)
    rounded = np.rint(sums.astype(np.int32).astype(np.float32) * factor.astype(np.float32)) + np.float32(y_zero)
    return np.clip(rounded, limits.min, limits.max).astype(y_zero.dtype)


def image(build: Quantized) -> str:
    return build.activation(1, 6, 8, 9, zero=130)


def same(build: Quantized, value: str) -> str:
    return build.quantize(value, 0.02, 130)


MOVES: dict[str, Callable[[Quantized], str]] = {
    "MaxPool": lambda build: same(build, build.add("MaxPool", image(build), kernel_shape=[3, 3], strides=[2, 2])),
    "Transpose": lambda build: same(build, build.add("Transpose", image(build), perm=[0, 2, 3, 1])),
    "Flatten": lambda build: same(build, build.add("Flatten", image(build))),
    "Reshape": lambda build: same(build, build.add("Reshape", image(build), build.constant([6, 72], "int64"))),
    "Concat": lambda build: same(build, build.add("Concat", image(build), image(build), axis=1)),
}


@pytest.mark.parametrize("name", MOVES)
def test_what_moves_elements_moves_bytes(name: str) -> None:
    build = Quantized()
    model = build.model(MOVES[name](build), "uint8")
    np.testing.assert_array_equal(run(model, build), build.expected(model))
    assert "DequantizeLinear" not in operators(model)


BETWEEN: dict[str, Callable[[Quantized], str]] = {
    "Add": lambda build: build.add("Add", image(build), build.activation(1, 6, 8, 9, scale=0.013, zero=7)),
    "Sub": lambda build: build.add("Sub", image(build), build.activation(1, 6, 8, 9, scale=0.013, zero=7)),
    "Mul": lambda build: build.add("Mul", image(build), build.activation(1, 6, 1, 1, scale=0.013, zero=7)),
    "Concat of two scales": lambda build: build.add("Concat", image(build), build.activation(1, 2, 8, 9), axis=1),
    "GlobalAveragePool": lambda build: build.add("GlobalAveragePool", image(build)),
    "ReduceMean": lambda build: build.add("ReduceMean", image(build), build.constant([3, 2], "int64"), keepdims=0),
    "AveragePool": lambda build: build.add("AveragePool", image(build), kernel_shape=[2, 2], pads=[1, 0, 0, 1]),
    "AveragePool of all": lambda build: build.add("AveragePool", image(build), kernel_shape=[8, 9]),
    "HardSwish": lambda build: build.add("HardSwish", image(build)),
    "MatMul of two activations": lambda build: build.add(
        "MatMul", build.activation(2, 5, 7), build.activation(2, 7, 3, scale=0.01, zero=100)
    ),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_other_operators_are_within_a_step(name: str) -> None:
    build = Quantized(3)
    model = build.model(build.quantize(BETWEEN[name](build), 0.03, 90), "uint8")
    expected, found = build.expected(model), run(model, build)
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1


def network(build: Quantized) -> onnx.ModelProto:
    """Convolution, residual block with a branch, pooling, classifier: everything between two quantised tensors."""

    def step(value: str, scale: float = 0.1, zero: int = 0) -> str:
        return build.dequantize(build.quantize(value, scale, zero), scale, zero)

    def convolution(x: str, outputs: int, channels: int, window: int, stride: int = 1, group: int = 1) -> str:
        weights, scales = build.weights(outputs, channels // group, window, window, scale=0.002)
        whole = np.float32(0.02) * scales
        bias = build.dequantize(build.constant(build.random.integers(-90, 90, outputs), "int32"), whole, 0, "int32", 0)
        pads = [window // 2] * 4
        return build.add("Conv", x, weights, bias, strides=[stride] * 2, pads=pads, group=group)

    x = step(build.add("Relu", convolution(build.activation(1, 3, 16, 16), 16, 3, 3, 2)), 0.02)
    x = build.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    first = step(build.add("Clip", convolution(x, 32, 16, 1), build.constant(0), build.constant(6)), 6 / 255)
    second = step(build.add("Relu", convolution(first, 32, 32, 3, group=32)), 0.02)
    branch = step(convolution(x, 24, 16, 1), 0.02, 120)
    x = step(build.add("Add", step(convolution(second, 24, 32, 1), 0.015, 131), branch), 0.025, 124)
    x = build.add("Flatten", step(build.add("GlobalAveragePool", x), 0.02, 124))
    weights, _ = build.weights(10, 24, scale=0.01)
    return build.model(step(build.add("Gemm", x, weights, transB=1), 0.05, 128), "float32")


def test_a_network_is_in_integers_from_end_to_end() -> None:
    build = Quantized(5)
    model = network(build)
    found = operators(model)
    assert not FLOAT_PRODUCTS & set(found)
    assert found.count("DequantizeLinear") == 2  # a branch where it is added, and the result
    assert found.count("ConvInteger") + found.count("MatMulInteger") == 6
    plan = graft.plan(model, ["llvm"])
    assert plan.summary().startswith("llvm ")
    assert np.abs(run(model, build) - build.expected(model)).max() <= 0.051


@pytest.mark.parametrize("without", [(), ("integer-arithmetic",)])
def test_a_network_computes_the_same_without_integers(without: tuple[str, ...]) -> None:
    build = Quantized(6)
    model = network(build)
    assert bool(FLOAT_PRODUCTS & set(operators(model, without))) == bool(without)
    assert np.abs(run(model, build, without=without) - build.expected(model)).max() <= 0.051


class Npu(graft.JsonBackend):
    name = "npu"

    @graft.supports(
        is_op("QuantizeLinear")(
            is_op("MatMul")(is_op("DequantizeLinear")(wildcard(), ...), is_op("DequantizeLinear")(is_constant(), ...)),
            ...,
        ),
        name="npu.qmatmul",
    )
    def quantized_product(self, match: Match) -> bool:
        return True

    def load(self, graph: JsonGraph, constants: Mapping[str, np.ndarray]) -> Engine:
        def product(node: JsonNode, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            x, scale, zero, w, scales, zeros, out, point = (array.astype(np.float64) for array in arrays)
            values = (x - zero) * scale @ ((w - zeros) * scales)
            return [np.clip(np.rint(values / out) + point, 0, 255).astype(np.uint8)]

        return lambda inputs: graph.run(inputs, constants, product)


def test_a_vendor_finds_the_quantised_operators_and_the_rest_is_in_integers() -> None:
    build = Quantized(9)
    first, _ = build.weights(12, 16, axis=1)
    second, _ = build.weights(16, 8, axis=None)
    x = build.quantize(build.add("MatMul", build.activation(4, 12), first), 0.1, 128)
    x = build.dequantize(x, 0.1, 128)
    model = build.model(build.quantize(build.add("Softmax", build.add("MatMul", x, second)), 1 / 255), "uint8")
    plan = graft.plan(model, [Npu(), "llvm"])
    offloaded = [row for row in plan.placements if row.backend == "npu"]
    assert [row.composite for row in offloaded] == ["npu.qmatmul"] * 4
    (result,) = graft.compile(model, [Npu(), "llvm"], threads=1, strict=True).run(build.inputs).values()
    assert np.abs(np.asarray(result).astype(int) - build.expected(model).astype(int)).max() <= 1


def test_libraries_for_floats_leave_quantised_networks_whole() -> None:
    assert graft.plan(network(Quantized(5)), ["onednn", "llvm"]).summary().startswith("onednn 0/")


def test_a_processor_without_dot_products_computes_the_same() -> None:
    build = Quantized(7)
    model = network(build)
    np.testing.assert_array_equal(run(model, build, cpu="x86-64-v3"), run(model, build))


def test_two_threads_compute_the_same() -> None:
    build = Quantized(8)
    model = network(build)
    (result,) = graft.compile(model, ["llvm"], threads=2).run(build.inputs).values()
    np.testing.assert_array_equal(result, run(model, build))


def test_weights_of_four_bits_and_blocks_are_left_to_others() -> None:
    build = Quantized()
    array = build.constant(build.bytes("int8", 8, 4), "int8")
    blocks = build.add("DequantizeLinear", array, build.constant(np.full((2, 4), 0.01)), axis=0, block_size=4)
    y = build.quantize(build.add("MatMul", build.activation(3, 8), blocks), OUT, 128)
    model = build.model(y, "uint8")
    assert "MatMul" in operators(model)
    expected = build.expected(model)
    assert np.abs(run(model, build).astype(int) - expected.astype(int)).max() <= 1
    four = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (int4[4] x) => (float[4] y) <float s = {0.5}> '
        "{ y = DequantizeLinear(x, s) }"
    )
    with pytest.raises(GraftError, match="int4"):
        graft.compile(four, ["llvm"], threads=1)


@pytest.mark.parametrize("signed", [False, True])
def test_the_digits_model_is_as_accurate_as_with_onnxruntime(signed: bool) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    import onnx_ir as ir

    from benchmarks.data.quantize import quantized
    from benchmarks.zoo import model as zoo_model
    from examples.digits.data import accuracy, held_out

    images, labels = held_out()
    proto = ir.to_proto(quantized(zoo_model("digits"), signed=signed))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    program = graft.compile(proto, ["llvm"], threads=1)
    name = session.get_inputs()[0].name
    theirs = accuracy(lambda x: session.run(None, {name: x})[0], images, labels)
    # Not less: without an instruction for sums of four products ONNX Runtime's sums of two saturate.
    assert accuracy(lambda x: np.asarray(program(x)), images, labels) >= theirs - 0.003
    assert not FLOAT_PRODUCTS & set(operators(proto))


def test_a_dequantized_column_is_broadcast_in_the_kernel_that_reads_it() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]> g (uint8[2,1] x, float[2,3] z) => (float[2,3] y)
        <float scale = {0.5}, uint8 zero = {118}> { d = DequantizeLinear(x, scale, zero) y = Add(d, z) }"""
    )
    given = np.array([[110], [138]], np.uint8)
    got = graft.compile(model, ["llvm"], threads=1)(given, np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(got, [[-3] * 3, [11] * 3])


def test_an_image_with_channels_first_is_copied_with_channels_last() -> None:
    build = Quantized(5)
    x, weights = build.input(1, 16, 9, 11, dtype="uint8"), build.bytes("int8", 24, 16, 3, 3)
    y = build.add(
        "QLinearConv", x, build.constant(0.02), build.constant(7, "uint8"), build.constant(weights, "int8"),
        build.constant(0.01), build.constant(0, "int8"), build.constant(OUT), build.constant(90, "uint8"),
        pads=[0] * 4, strides=[1, 1],
    )  # fmt: skip
    model = build.model(y, "uint8")
    np.testing.assert_array_equal(run(model, build), qlinear(build, model))
    product, _ = graft.compile(model, ["llvm"], strict=True).description.procedures[0].calls  # and a Transpose
    assert product.schedule["strategy"] == "direct_nhwc"


def test_volumes_have_channels_last_and_pools_do_not_transpose() -> None:
    """A pool of an image in one order that stored in another would gather the elements of its vectors."""
    build = Quantized(8)
    first, _ = build.weights(32, 16, 3, 3, 3)
    second, _ = build.weights(16, 32, 1, 1, 1)
    pooled = build.add("MaxPool", build.input(1, 16, 4, 8, 8, dtype="uint8"), kernel_shape=[2] * 3, strides=[2] * 3)
    x = build.dequantize(pooled, 0.02, 0)
    y = build.add("Relu", build.add("Conv", x, first, pads=[1] * 6))
    y = build.add("Conv", build.dequantize(build.quantize(y, OUT, 0), OUT, 0), second)
    model = build.model(build.quantize(y, OUT, 90), "uint8")
    check_steps(model, build)
    calls = graft.compile(model, ["llvm"], threads=1, strict=True).description.procedures[0].calls
    taken = [(call.schedule or {})["strategy"] for call in calls]
    moved = "fused_elementwise"
    assert taken == ["clipped_windows", moved, moved, "direct_nhwc", "blocked_product", moved]


def test_channels_stay_last_behind_pad_and_resize() -> None:
    build = Quantized(6)

    def convolution(x: str, channels: int) -> str:
        weights, _ = build.weights(12, channels, 3, 3)
        return build.dequantize(build.quantize(build.add("Conv", x, weights), OUT, 120), OUT, 120)

    padded = build.add(
        "Pad", convolution(image(build), 6), build.constant([0, 0, 1, 2, 0, 0, 3, 0], "int64"), mode="edge"
    )
    large = build.add("Resize", padded, "", build.constant([1, 1, 2, 2]), mode="nearest")
    model = build.model(
        build.quantize(convolution(build.dequantize(build.quantize(large, OUT, 120), OUT, 120), 12), OUT, 90), "uint8"
    )
    check_steps(model, build)
    found = operators(model)
    before = [found[number - 1] for number, operator in enumerate(found) if operator == "ConvInteger"]
    assert before == ["Transpose"] * 2  # of what has channels last


@pytest.mark.parametrize("backend", ["llvm", "c_source", "reference"])
@pytest.mark.parametrize("size", [1, 5, 100])
def test_the_scale_of_zeros_alone_is_that_of_a_range_of_one(backend: str, size: int) -> None:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "point"])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [size])
    kinds = {"y": (TensorProto.UINT8, [size]), "scale": (TensorProto.FLOAT, []), "point": (TensorProto.UINT8, [])}
    results = [helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()]
    graph = helper.make_graph([node], "zeros", [x], results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    found = graft.compile(model, [backend])(np.zeros(size, np.float32))
    for one, expected in zip(found, (np.zeros(size), np.float32(1) / 255, 0), strict=True):
        np.testing.assert_array_equal(one, expected)
