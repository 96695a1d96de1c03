"""A composite's operands and results, in the order in which its pattern is written."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from graft.partition.compose import compose
from graft.partition.placement.partitioner import partition
from graft.partition.region import Region, regions
from graft.patterns import Pattern, absent, is_constant, is_op, outputs, repeat, wildcard
from graft.patterns.composite import Composite
from graft.plugins.json_codegen import serialize
from graft.plugins.json_graph import JsonGraph, JsonNode
from tests.partition.graphs import everything, inputs_for, model_of, run_reference, small, toy

SQUARE = "float[3,3] x, float[3,3] w, float[3,3] s"


def region_with(pattern: Pattern, model: ir.Model) -> Region:
    """Return the region that the composite of a pattern makes of a model."""
    done = partition(model, [toy("npu", patterns=[Composite("npu.group", pattern)]), everything()])
    (region,) = [region for region in regions(done.model) if region.backend == "npu"]
    inputs = inputs_for(model)
    for got, want in zip(run_reference(done.model, inputs), run_reference(model, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)
    return region


def operands(pattern: Pattern, body: str, inputs: str = SQUARE, outputs: str = "float[3,3] y") -> list[str]:
    region = region_with(pattern, small(body, inputs, outputs))
    (node,) = region.nodes()
    return ["" if one.value is None else one.value.name for one in region.operands(node)]


def kernel_of(pattern: Pattern, model: ir.Model) -> tuple[JsonGraph, JsonNode]:
    graph, _ = serialize(region_with(pattern, model))
    graph = JsonGraph.from_json(graph.to_json())
    (kernel,) = graph.kernels
    return graph, kernel


def test_equal_operands_stay_two() -> None:
    pattern = is_op("Relu")(is_op("MatMul")(wildcard(), wildcard()))
    assert operands(pattern, "m = MatMul(x, x)\ny = Relu(m)", "float[3,3] x") == ["x", "x"]


def test_one_pattern_object_is_one_operand() -> None:
    x = wildcard()
    assert operands(is_op("Mul")(x, is_op("Sigmoid")(x)), "g = Sigmoid(x)\ny = Mul(g, x)", "float[3,3] x") == ["x"]


def test_an_absent_operand_keeps_its_place() -> None:
    bounds = is_op("Clip")(wildcard(), wildcard() | absent(), wildcard().named("high"))
    model = small("c = Clip(x, , high)\ny = Relu(c)", "float[3,3] x, float high", "float[3,3] y")
    graph, kernel = kernel_of(is_op("Relu")(bounds), model)
    assert [entry.node for entry in kernel.inputs] == [0, -1, 1]
    assert kernel.position("high") == 2
    arrays: list[object] = []
    graph.run([np.ones(1), np.ones(2)], {}, lambda node, given: arrays.extend(given) or [given[0]])
    assert [None if one is None else np.size(one) for one in arrays] == [1, None, 2]


def test_inputs_without_a_pattern_follow_in_the_order_of_the_node() -> None:
    pattern = is_op("Mul")(wildcard(), is_op("Gemm")(wildcard(), ...))
    assert operands(pattern, "m = Gemm(x, w, b)\ny = Mul(m, s)", f"{SQUARE}, float[3] b") == ["s", "x", "w", "b"]


def test_a_name_that_repeats_has_several_operands() -> None:
    sums = repeat(lambda inner: is_op("Add")(inner, is_constant().named("bias")), is_op("Relu")(wildcard()))
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[3] x) => (float[3] y) <float[3] b1 = {1, 2, 3}, float[3] b2 = {4, 5, 6}>
    { r = Relu(x) a = Add(r, b1) y = Add(b2, a) }"""
    region = region_with(sums, model_of(text))
    (node,) = region.nodes()
    assert [one.value.name for one in region.operands(node) if one.value is not None] == ["x", "b1", "b2"]
    assert serialize(region)[0].kernels[0].operands == {"bias": (1, 2)}


def test_results_stand_in_the_order_of_the_pattern_even_if_not_needed() -> None:
    shared = wildcard()
    pair = outputs(is_op("Exp")(shared), is_op("Relu")(shared))
    for used in ("Abs(r)", "Sub(r, e)"):
        model = small(f"r = Relu(x)\ne = Exp(x)\ny = {used}", "float[3] x", "float[3] y")
        assert [value.name for value in compose(model, [Composite("npu.pair", pair)]).graph[0].outputs] == ["e", "r"]
