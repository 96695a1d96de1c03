"""Transposed convolutions as interleaved ones: the same results, by ONNX Runtime, for random settings and any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import graft
from graft.core.importer.load import load
from graft.core.passes.interleave_convolutions import MOST_PARTS
from graft.core.passes.normalize import normalize

onnxruntime = pytest.importorskip("onnxruntime")


def model_of(
    size: tuple[int | str, ...],
    channels: int,
    outputs: int,
    kernel: tuple[int, ...],
    *,
    bias: bool = True,
    is_computed: bool = False,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node, whose weights may be computed: chosen by an input."""
    random, group = np.random.default_rng(1), attributes.get("group", 1)
    weights = random.standard_normal((channels, outputs // group, *kernel)).astype(np.float32)
    constants = [numpy_helper.from_array(weights, "w")]
    constants += [numpy_helper.from_array(random.standard_normal(outputs).astype(np.float32), "b")] if bias else []
    node = helper.make_node("ConvTranspose", ["x", "w", "b"][: 2 + bias], ["y"], name="it", **attributes)
    nodes = [node]
    if is_computed:
        nodes.insert(0, helper.make_node("Where", ["c", "v", "w"], ["u"], name="chosen"))
        constants += [numpy_helper.from_array(2 * weights, "v")]
        node.input[1] = "u"
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, [1] * (2 + len(size)))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", channels, *size])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * (2 + len(size)))
    graph = helper.make_graph(nodes, "g", [x, c] if is_computed else [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def simplified(proto: onnx.ModelProto) -> ir.Model:
    model = load(proto)
    normalize(model)
    return model


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def compared(proto: onnx.ModelProto, *shapes: tuple[int, ...]) -> ir.Model:
    """Compare the model before and after, and return the latter."""
    model = simplified(proto)
    before, after = (
        onnxruntime.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"])
        for one in (proto, ir.to_proto(model))
    )
    for shape in shapes:
        x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
        feeds = {"x": x, "c": np.full([1] * len(shape), False)}
        feeds = {one.name: feeds[one.name] for one in before.get_inputs()}
        (expected,), (found,) = before.run(None, feeds), after.run(None, feeds)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    return model


@st.composite
def transposed_convolutions(draw: st.DrawFn) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    rank = draw(st.integers(1, 3))
    strides = [draw(st.integers(1, 4 if rank < 3 else 2)) for _ in range(rank)]
    kernel = tuple(draw(st.integers(1, 5)) for _ in strides)
    # where a kernel is shorter than the stride, some dilations leave it without a form
    pairs = zip(strides, kernel, strict=True)
    dilations = [draw(st.integers(1, 3) if size >= stride else st.sampled_from([1, stride])) for stride, size in pairs]
    span = [(size - 1) * one + 1 for size, one in zip(kernel, dilations, strict=True)]
    pads = [draw(st.integers(0, size - 1)) for size in (*span, *span)]
    more = [draw(st.integers(0, stride - 1)) for stride in strides]
    size = []
    for axis in range(rank):
        cut = pads[axis] + pads[axis + rank] - more[axis] - span[axis]
        least = max(1, cut // strides[axis] + 2)  # so that something is left of it
        size.append(draw(st.integers(least, least + 4)))
    group = draw(st.sampled_from([1, 2, 4]))
    proto = model_of(
        tuple(size), 4, draw(st.sampled_from([4, 8])), kernel, bias=draw(st.booleans()), strides=strides, pads=pads,
        dilations=dilations, output_padding=more, group=group, is_computed=draw(st.booleans()),
    )  # fmt: skip
    return proto, (2, 4, *size)


@settings(max_examples=25)
@given(transposed_convolutions())
def test_any_transposed_convolution_is_the_interleaved_one(drawn: tuple[onnx.ModelProto, tuple[int, ...]]) -> None:
    proto, shape = drawn
    is_computed = len(proto.graph.node) > 1
    strides = next(attribute.ints for attribute in proto.graph.node[-1].attribute if attribute.name == "strides")
    left = "ConvTranspose" in operators(compared(proto, shape))
    assert not left or (is_computed and max(strides) == 1)


@pytest.mark.parametrize(("kernel", "pad", "convolutions"), [((4, 4), 1, 1), ((2, 2), 0, 1), ((3, 3), 1, 4)])
def test_parts_with_kernels_of_one_size_are_one_convolution(
    kernel: tuple[int, int], pad: int, convolutions: int
) -> None:
    model = compared(
        model_of(("h", "w"), 4, 6, kernel, strides=[2, 2], pads=[pad] * 4), (1, 4, 5, 6), (2, 4, 1, 3), (1, 4, 9, 2)
    )
    assert operators(model).count("Conv") == convolutions


def test_a_stride_of_one_is_the_mirrored_kernel() -> None:
    model = compared(model_of((6,), 4, 4, (3,), pads=[1, 1], group=4), (1, 4, 6))
    assert operators(model) == ["Conv"]


@pytest.mark.parametrize(
    "attributes",
    [
        {"output_shape": [9, 9], "strides": [2, 2]},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [3, 3], "dilations": [2, 2]},
    ],
)
def test_pads_that_follow_from_a_stated_shape_alone_need_that_shape(attributes: dict[str, Any]) -> None:
    assert "ConvTranspose" not in operators(compared(model_of((5, 5), 2, 2, (3, 3), **attributes), (1, 2, 5, 5)))
    left = operators(simplified(model_of(("h", 5), 2, 2, (3, 3), **attributes)))
    assert ("ConvTranspose" in left) == ("output_shape" in attributes)


def test_weights_that_lead_to_scattered_elements_are_left() -> None:
    proto = model_of((5,), 2, 2, (2,), strides=[5], dilations=[2])
    assert "ConvTranspose" in operators(simplified(proto))


def test_elements_that_no_weight_reaches_are_the_bias_even_beside_infinity() -> None:
    model = compared(model_of((4,), 2, 2, (2,), strides=[3]), (1, 2, 4))
    assert operators(model).count("Conv") == 1 and "Pad" in operators(model)
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": np.full((1, 2, 4), np.inf, np.float32)})
    assert np.isfinite(found[..., 2::3]).all()


@pytest.mark.parametrize("is_computed", [False, True])
@pytest.mark.parametrize("backend", ["llvm", "c_source"])
def test_an_infinite_weight_makes_nothing_infinite_but_what_it_is_multiplied_with(
    backend: str, is_computed: bool
) -> None:
    proto = model_of((3,), 1, 1, (3,), bias=False, is_computed=is_computed)
    infinite = np.array([[[1, np.inf, 2]]], np.float32)
    for constant in proto.graph.initializer:
        if tuple(constant.dims) == infinite.shape:
            constant.CopyFrom(numpy_helper.from_array(infinite, constant.name))
    given = [np.ones((1, 1, 3), np.float32), *([np.full((1, 1, 1), True)] if is_computed else [])]
    found = np.asarray(graft.compile(proto, [backend], strict=True)(*given)).ravel()
    np.testing.assert_array_equal(found, [1, np.inf, np.inf, np.inf, 2])


@pytest.mark.parametrize("special", [np.inf, np.nan, 1.0])
@pytest.mark.parametrize("backend", ["llvm", "c_source", "reference"])
def test_weights_that_are_computed_multiply_nothing_around_the_input_where_they_are_not_finite(
    backend: str, special: float
) -> None:
    proto = model_of((3,), 1, 1, (5,), bias=False, is_computed=True, strides=[2], pads=[1, 0])
    weights = np.array([[[2, special, 3, 4, special]]], np.float32)
    for constant in proto.graph.initializer:
        constant.CopyFrom(numpy_helper.from_array(weights, constant.name))
    x = np.array([[[1, -1, 2]]], np.float32)
    sums: list[list[float]] = [[] for _ in range(9)]
    for place, pixel in enumerate(x.ravel()):
        for tap, weight in enumerate(weights.ravel()):
            sums[2 * place + tap].append(float(pixel * weight))
    program = graft.compile(proto, [backend], strict=True)
    found = np.asarray(program(x, np.full((1, 1, 1), True))).ravel()
    np.testing.assert_array_equal(found, [sum(each) for each in sums[1:]])


def test_weights_that_reach_no_further_than_a_stride_need_no_question() -> None:
    assert "If" not in operators(simplified(model_of((3,), 1, 1, (2,), is_computed=True, strides=[2])))
    assert "If" in operators(simplified(model_of((3,), 1, 1, (3,), is_computed=True, strides=[2])))


def test_many_kernels_of_different_sizes_are_left() -> None:
    stride = MOST_PARTS + 1
    assert "ConvTranspose" in operators(simplified(model_of((5,), 2, 2, (stride + 1,), strides=[stride])))


@pytest.mark.parametrize("stride", [1, 2])
def test_the_gradient_of_an_image_is_a_convolution_that_asks_nothing_of_weights(stride: int) -> None:
    """Weights of a training are computed, and finite as far as its gradients are: no branch, no ConvTranspose."""
    proto = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 22]> g (float[1,3,8,8] x, float[4,3,3,3] w) => (float loss) {{
        y = Conv <pads = [1,1,1,1], strides = [{stride},{stride}]> (x, w)
        loss = ReduceSum <keepdims = 0> (y) }}"""
    )
    model = graft.grad(proto, wrt=["x"])
    normalize(model)
    assert not {"ConvTranspose", "If"} & set(operators(model))
