"""Whole models in scaled types: each product is that of the encoded operands, everything else stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import graft
from graft.datatypes.scaled.blocks import encode_scaled
from graft.datatypes.scaled.conversion import convert_scaled
from graft.datatypes.scaled.operators import DOMAIN
from graft.datatypes.scaled.products import matmul_scaled
from graft.datatypes.scaled.scaled_type import SCALED_TYPES, ScaledType
from graft.errors import GraftError


def network(rows: int | str = 5) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """Two products with constant matrices, of extents that blocks do not divide, and one of two activations."""
    random = np.random.default_rng(0)
    weights = [random.standard_normal(shape).astype(np.float32) for shape in ((70, 48), (48, 9))]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("MatMul", ["b", "w1"], ["c"], name="second"),
        helper.make_node("Transpose", ["c"], ["d"], name="turn"),
        helper.make_node("MatMul", ["c", "d"], ["y"], name="third"),
    ]
    x, y = (helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [rows, 70]), ("y", [rows, rows])))
    given = [onnx.numpy_helper.from_array(one, f"w{number}") for number, one in enumerate(weights)]
    graph = helper.make_graph(nodes, "net", [x], [y], given)
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model, weights


def numbers(rows: int = 5) -> np.ndarray:
    return np.random.default_rng(rows).standard_normal((rows, 70)).astype(np.float32)


def expected_of(
    x: np.ndarray, weights: list[np.ndarray], type: ScaledType, other: ScaledType, kept: int = -1
) -> np.ndarray:
    """What the network computes, by the forms in NumPy; activations have 1 as the scale of their tensor."""
    for number, matrix in enumerate(weights):
        x = np.maximum(x, 0) if number else x
        whole = 1.0 if type.tensor_scale else None
        left, right = encode_scaled(x, type, tensor_scale=whole), encode_scaled(matrix, other, axis=0)
        x = x @ matrix if number == kept else matmul_scaled(left, right)
    return x @ x.T


@pytest.mark.parametrize(("name", "other"), [("mxfp4", ""), ("mxfp8e4m3", "mxfp4"), ("nvfp4", ""), ("mxint8", "")])
def test_products_with_constant_matrices_are_those_of_encoded_operands(name: str, other: str) -> None:
    model, weights = network()
    converted = convert_scaled(model, name, weights=other or None)
    found = graft.compile(converted, ["llvm"])(numbers())
    expected = expected_of(numbers(), weights, SCALED_TYPES[name], SCALED_TYPES[other or name])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    counts = [node.op_type for node in converted.graph if node.domain == DOMAIN]
    assert counts == ["Encode", "MatMul"] * 2


def test_a_converted_model_is_valid_and_may_have_open_extents() -> None:
    model, weights = network("rows")
    converted = convert_scaled(model, "mxfp4")
    onnx.checker.check_model(ir.to_proto(converted))
    program = graft.compile(ir.to_proto(converted), ["llvm"])
    for rows in (2, 7):
        expected = expected_of(numbers(rows), weights, *[SCALED_TYPES["mxfp4"]] * 2)
        np.testing.assert_allclose(program(numbers(rows)), expected, rtol=1e-5, atol=1e-4)


def test_nodes_are_kept_by_pattern() -> None:
    model, weights = network()
    converted = convert_scaled(model, "mxfp4", keep=["sec*"])
    assert [node.op_type for node in converted.graph if node.domain == DOMAIN] == ["Encode", "MatMul"]
    expected = expected_of(numbers(), weights, *[SCALED_TYPES["mxfp4"]] * 2, kept=1)
    np.testing.assert_allclose(graft.compile(converted, ["llvm"])(numbers()), expected, rtol=1e-4, atol=1e-3)


def test_a_stochastic_rounding_of_activations_is_repeated_by_its_seed() -> None:
    model, _ = network()
    seeds = [convert_scaled(model, "mxfp4", rounding="stochastic", seed=seed) for seed in (1, 1, 2)]
    first, again, other = (graft.compile(one, ["llvm"])(numbers()) for one in seeds)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def refused(model: onnx.ModelProto, *types: str | ScaledType, **options: object) -> str:
    with pytest.raises(GraftError) as caught:
        convert_scaled(model, types[0], weights=types[-1], **options)  # type: ignore[arg-type]
    return caught.value.message


def test_what_cannot_be_converted_is_refused() -> None:
    model, _ = network()
    assert refused(model, "mxfp4", "nvfp4") == "activations and weights have blocks of one size, not 32 and 16"
    whole = replace(SCALED_TYPES["mxfp4"], block=None)
    assert refused(model, whole) == "activations and weights have blocks of one size, not none and none"
    assert refused(model, "mxfp4", keep=["fourth"]) == (
        "no node's name or operator matches 'fourth'; graft plan lists the nodes"
    )
    assert refused(model, "mxfp4", keep=["MatMul"]) == (
        "model 'net' has no MatMul, Gemm or convolution of float32 with constant weights to convert"
    )


FORMS = {
    "3 x 3": ("y = Conv <pads = [1,1,1,1]> (x, w, b)", (6, 40, 3, 3), (2, 40, 5, 6)),
    "strides, dilations, uneven pads": (
        "y = Conv <pads = [0,2,1,1], strides = [2,1], dilations = [1,2]> (x, w)", (4, 5, 2, 3), (1, 5, 7, 8),
    ),
    "1 x 1": ("y = Conv (x, w, b)", (6, 70, 1, 1), (2, 70, 3, 3)),
    "groups": ("y = Conv <group = 3, pads = [1,0,0,1]> (x, w, b)", (6, 40, 2, 3), (2, 120, 4, 5)),
    "few channels in a group": ("y = Conv <group = 2, strides = [2,2]> (x, w)", (4, 5, 3, 3), (1, 10, 7, 7)),
    "depthwise": ("y = Conv <group = 7, pads = [1,1,1,1]> (x, w, b)", (7, 1, 3, 3), (2, 7, 5, 6)),
    "depthwise, several results each": ("y = Conv <group = 3> (x, w, b)", (6, 1, 3, 3), (1, 3, 6, 5)),
    "groups, 1 x 1": ("y = Conv <group = 2> (x, w, b)", (6, 70, 1, 1), (2, 140, 3, 3)),
    "same": ('y = Conv <auto_pad = "SAME_UPPER", strides = [2]> (x, w)', (4, 33, 3), (2, 33, 7)),
}  # fmt: skip


def convolved(x: np.ndarray, weights: np.ndarray, node: onnx.NodeProto, type: ScaledType) -> np.ndarray:
    """A convolution of operands encoded along the channels of their group, from its attributes alone.

    Position after position of the kernel, block after block of channels: the sum of a block is exact in float64, and so
    is it under its scales, powers of two; it is rounded to float32 and added.
    """
    given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    if (groups := given.get("group", 1)) > 1:
        one = onnx.NodeProto(op_type="Conv", attribute=[one for one in node.attribute if one.name != "group"])
        parts = zip(np.split(x, groups, 1), np.split(weights, groups), strict=True)
        return np.concatenate([convolved(*part, one, type) for part in parts], 1)
    rank, kernel, block = x.ndim - 2, weights.shape[2:], type.block or 1
    strides, dilations = given.get("strides", [1] * rank), given.get("dilations", [1] * rank)
    pads = given.get("pads", [0] * (2 * rank))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if given.get("auto_pad"):
        wanted = [(-(-n // s) - 1) * s + span - n for n, s, span in zip(x.shape[2:], strides, spans, strict=True)]
        pads = [one // 2 for one in wanted] + [one - one // 2 for one in wanted]
    border = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    left, right = encode_scaled(x, type, axis=1), encode_scaled(weights, type, axis=1)
    numbers, own = (type.element_format.to_numbers(one.elements) for one in (left, right))
    scales, own_scales = (type.scale_format.to_numbers(one.scales) for one in (left, right))
    numbers, scales = np.pad(numbers, border), np.pad(scales, border)
    counts = [(n - span) // s + 1 for n, span, s in zip(numbers.shape[2:], spans, strides, strict=True)]
    y = np.zeros((len(x), len(weights), *counts), np.float32)
    for k in np.ndindex(*kernel):
        at = [
            slice(one * d, one * d + (n - 1) * s + 1, s)
            for one, d, n, s in zip(k, dilations, counts, strides, strict=True)
        ]
        for part in range(scales.shape[1]):
            inside = slice(part * block, (part + 1) * block)
            total = np.einsum("nc...,mc->nm...", numbers[:, inside, *at], own[:, inside, *k])
            factor = scales[:, np.newaxis, part, *at] * own_scales[:, part, *k].reshape(-1, *[1] * rank)
            y += (total * factor).astype(np.float32)
    return y


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["mxfp4", "mxfp8e4m3"])
def test_a_convolution_is_exact_in_blocks_of_channels(form: str, name: str) -> None:
    text, shape, given = FORMS[form]
    random = np.random.default_rng(1)
    weights, x = (random.standard_normal(one).astype(np.float32) for one in (shape, given))
    bias = random.standard_normal(shape[0]).astype(np.float32)
    dims = ",".join(map(str, given))
    header = '<ir_version: 10, opset_import: ["" : 21]> '
    proto = onnx.parser.parse_model(
        f"{header} g (float[{dims}] x) => (float[{','.join('nmhw'[: len(given)])}] y) {{ [c] {text} }}"
    )
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(one, n) for one, n in ((weights, "w"), (bias, "b")))
    wanted = convolved(x, weights, proto.graph.node[0], SCALED_TYPES[name])
    if "b)" in text:
        wanted += bias.reshape(-1, *[1] * (len(given) - 2))
    converted = convert_scaled(proto, name, depthwise=True)
    onnx.checker.check_model(ir.to_proto(converted))
    assert [node.name for node in converted.graph][-1] == "c"
    np.testing.assert_array_equal(graft.compile(converted, ["llvm"])(x), wanted)


@pytest.mark.parametrize("attributes", ["", "<transB = 1>", "<transA = 1, alpha = 0.3, beta = 2.0>"])
def test_a_gemm_is_the_product_of_encoded_operands(attributes: str) -> None:
    random = np.random.default_rng(2)
    x, weights, bias = (random.standard_normal(one).astype(np.float32) for one in ((5, 40), (40, 6), (6,)))
    given, matrix = x.T if "transA" in attributes else x, weights.T if "transB" in attributes else weights
    header = '<ir_version: 10, opset_import: ["" : 21]> '
    rows, columns = given.shape
    text = f"g (float[{rows},{columns}] x) => (float[5,6] y) {{ [fc] y = Gemm {attributes} (x, w, b) }}"
    proto = onnx.parser.parse_model(header + text)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(one, n) for one, n in ((matrix, "w"), (bias, "b")))
    product = matmul_scaled(encode_scaled(x, "mxfp4"), encode_scaled(weights, "mxfp4", axis=0))
    factors = (np.float32(0.3), np.float32(2)) if "alpha" in attributes else (np.float32(1), np.float32(1))
    found = graft.compile(convert_scaled(proto, "mxfp4"), ["llvm"])(np.ascontiguousarray(given))
    np.testing.assert_allclose(found, product * factors[0] + bias * factors[1], rtol=1e-6, atol=1e-6)


def test_depthwise_convolutions_stay_unless_asked_for() -> None:
    text = "g (float[1,4,5,5] x) => (float[1,n,h,w] y) { a = Conv <group = 4> (x, v) y = Conv <group = 2> (a, w) }"
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    for name, shape in (("v", (4, 1, 3, 3)), ("w", (2, 2, 1, 1))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, np.float32), name))
    kinds = [
        [
            node.op_type
            for node in convert_scaled(proto, "mxfp4", depthwise=one).graph
            if node.op_type in ("MatMul", "Conv")
        ]
        for one in (False, True)
    ]
    assert kinds == [["Conv", "MatMul"], ["MatMul", "MatMul"]]
