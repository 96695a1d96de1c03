"""Operands and results of composites: in the order in which the pattern is written, by name, duplicates kept."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graft.errors import PluginError
from graft.partition.placement.partitioner import partition
from graft.partition.region import Region, regions
from graft.patterns import Pattern, is_op, wildcard
from graft.patterns.composite import Composite
from graft.plugins.json_codegen import serialize
from graft.plugins.json_graph import JsonGraph, JsonNode
from tests.partition.graphs import everything, inputs_for, run_reference, small, toy

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


def test_an_operand_before_the_operator_comes_first() -> None:
    body = "m = MatMul(x, w)\ny = Mul(s, m)"
    assert operands(is_op("Mul")(wildcard(), is_op("MatMul")(wildcard(), wildcard())), body) == ["s", "x", "w"]


def test_a_commutative_node_gives_its_operands_in_the_order_of_the_pattern() -> None:
    pattern = is_op("Mul")(wildcard(), is_op("MatMul")(wildcard(), wildcard()))
    assert operands(pattern, "m = MatMul(x, w)\ny = Mul(m, s)") == ["s", "x", "w"]
    assert operands(is_op("Mul")(is_op("MatMul"), wildcard()), "m = MatMul(x, w)\ny = Mul(s, m)") == ["x", "w", "s"]


def test_a_regrouped_product_gives_its_operands_in_the_order_of_the_pattern() -> None:
    pattern = is_op("Add")(is_op("Add")(is_op("Relu")(wildcard()), wildcard()), wildcard())
    assert operands(pattern, "r = Relu(x)\na = Add(w, s)\ny = Add(a, r)") == ["x", "w", "s"]


def test_kernels_find_operands_by_capture_name() -> None:
    product = is_op("MatMul")(wildcard().named("x"), wildcard().named("weight"))
    pattern = is_op("Mul")(product, wildcard().named("scale"))
    _, kernel = kernel_of(pattern, small("m = MatMul(x, w)\ny = Mul(s, m)", SQUARE, "float[3,3] y"))
    assert kernel.operands == {"x": (0,), "weight": (1,), "scale": (2,)}
    assert kernel.named(["a", "b", "c"]) == {"x": "a", "weight": "b", "scale": "c"}
    with pytest.raises(PluginError) as caught:
        kernel.position("wieght")
    assert str(caught.value) == "npu.group (node 'm') has no operand 'wieght'; did you mean 'weight'?"


def test_an_operator_in_another_graph_is_no_part_of_a_composite() -> None:
    body = """m = MatMul(x, w)
    y = If(c) <
      then_branch = t () => (float[3,3] a) { a = Relu(m) },
      else_branch = e () => (float[3,3] b) { b = Abs(m) }
    >"""
    pattern = is_op("Relu")(is_op("MatMul")(wildcard(), wildcard()))
    model = small(body, f"{SQUARE}, bool c", "float[3,3] y")
    done = partition(model, [toy("npu", patterns=[Composite("npu.group", pattern)]), everything()])
    assert {row.composite for row in done.plan.placements} == {""}
