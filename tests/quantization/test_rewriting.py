"""The rewrite to QDQ form: nodes, types and constants, as ONNX's text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from graft.quantization.grids import GRIDS
from graft.quantization.recipe import Recipe, Scaling
from graft.quantization.rewriting import Point, QdqWriter, bits_of_weights
from graft.quantization.scales import Layout, scaled
from graft.quantization.sites import sites_of
from tests.quantization.networks import convolutions, model

RECIPE = Recipe(activations=Scaling())
GEMM = "g (float[2,4] x) => (float[2,3] y, float[2,4] z) { [fc] y = Gemm <transB = 1> (x, w, b) [e] z = Exp (x) }"


def written(text: str, point: Point, layout: Layout, kind: str = "int8", **weights) -> ir.Model:
    one = graft.load(model(text, **weights)).clone()
    sites = sites_of(one, RECIPE)
    writer = QdqWriter(one)
    for group in sites.groups:
        writer.activations(group, point)
    for product in sites.products:
        array = product.weights.const_value.numpy()
        codes = scaled(array, layout, Scaling(type=kind), GRIDS[kind], "w")
        writer.bias(product, codes)
        writer.weights(product, codes)
    onnx.checker.check_model(ir.to_proto(one), full_check=True)
    return one


def shape_of(one: ir.Model) -> list[tuple[str, list[str | None]]]:
    return [(node.op_type, [value.name if value else None for value in node.inputs]) for node in one.graph]


INT8 = Point(GRIDS["int8"], np.float32(0.5), np.float32(-3))


def test_a_product_reads_codes_and_other_readers_the_float():
    found = written(GEMM, INT8, Layout((3, 4), 0), w=(3, 4), b=(3,))
    assert shape_of(found) == [
        ("QuantizeLinear", ["x", "x_scale", "x_zero"]),
        ("DequantizeLinear", ["x_quantized", "x_scale", "x_zero"]),
        ("DequantizeLinear", ["fc_bias_codes", "fc_bias_scale", "fc_bias_zero"]),
        ("DequantizeLinear", ["w_codes", "w_scale", "w_zero"]),
        ("Gemm", ["x_dequantized", "w_dequantized", "fc_bias_dequantized"]),
        ("Exp", ["x"]),
    ]
    constants = {name: value.const_value.numpy() for name, value in found.graph.initializers.items()}
    assert constants["fc_bias_codes"].dtype == np.int32
    np.testing.assert_allclose(constants["fc_bias_scale"], 0.5 * constants["w_scale"])
    bias, step = constants["fc_bias_codes"] * constants["fc_bias_scale"], constants["fc_bias_scale"].max()
    np.testing.assert_allclose(bias, constants["b"], atol=step / 2)


@pytest.mark.parametrize("kind", ["int16", "int4", "float8e4m3fn"])
def test_a_bias_beside_codes_of_other_than_8_bits_stays_as_it_is(kind):
    found = written(GEMM, INT8, Layout((3, 4), 0), kind, w=(3, 4), b=(3,))
    gemm = next(node for node in found.graph if node.op_type == "Gemm")
    assert gemm.inputs[2].name == "b"
    scaled_by_2 = GEMM.replace("transB = 1", "transB = 1, alpha = 2.0")
    found = written(scaled_by_2, INT8, Layout((3, 4), 0), w=(3, 4), b=(3,))
    assert next(node for node in found.graph if node.op_type == "Gemm").inputs[2].name == "b"


def test_floats_have_no_zero_point():
    found = written(GEMM, Point(GRIDS["float8e5m2"], np.float32(0.5), np.float32(0)), Layout((3, 4)), w=(3, 4), b=(3,))
    first = found.graph[0]
    assert (len(first.inputs), first.attributes["output_dtype"].value) == (2, int(ir.DataType.FLOAT8E5M2))


def test_activations_of_a_group_share_their_constants():
    one = graft.load(convolutions()).clone()
    group = next(group for group in sites_of(one, RECIPE).groups if len(group.readers) == 2)
    QdqWriter(one).activations(group, INT8)
    nodes = [node for node in one.graph if node.op_type == "QuantizeLinear"]
    assert sorted(node.inputs[0].name for node in nodes) == ["b", "c"]
    assert len({node.inputs[1] for node in nodes}) == 1


def test_bits_count_scales_and_zero_points():
    array = np.random.default_rng(0).normal(size=(8, 32)).astype(np.float32)
    layout = Layout(array.shape, 1, 16)
    plain = scaled(array, layout, Scaling(type="int4"), GRIDS["int4"], "w")
    shifted = scaled(array, layout, Scaling(type="uint4", symmetric=False), GRIDS["uint4"], "w")
    assert bits_of_weights([plain]) == 4 + 32 / 16
    assert bits_of_weights([shifted]) == 4 + 36 / 16


def test_an_added_bias_is_whole_and_an_output_keeps_its_name():
    text = "g (float[2,4] x) => (float[2,3] y) { [m] a = MatMul (x, w) [b] y = Add (a, c) }"
    one = graft.load(model(text, w=(4, 3), c=(3,))).clone()
    sites, writer = sites_of(one, replace(RECIPE, results=True)), QdqWriter(one)
    for group in sites.groups:
        writer.activations(group, INT8, results=True)
    codes = scaled(sites.products[0].weights.const_value.numpy(), Layout((4, 3), 1), Scaling(), GRIDS["int8"], "w")
    writer.bias(sites.products[0], codes, added=True)
    writer.weights(sites.products[0], codes)
    onnx.checker.check_model(ir.to_proto(one), full_check=True)
    assert [node.op_type for node in one.graph][-3:] == ["Add", "QuantizeLinear", "DequantizeLinear"]
    add = next(node for node in one.graph if node.op_type == "Add")
    bias = add.inputs[1].producer()
    assert (bias.op_type, bias.inputs[0].dtype, one.graph.outputs[0].name) == (
        "DequantizeLinear",
        ir.DataType.INT32,
        "y",
    )
