from __future__ import annotations

from itertools import product

import onnx_ir as ir
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from graft.partition.placement.partitioner import partition
from tests.partition.graphs import BINARY, UNARY, everything, model_of, random_models, region_sets, toy


def test_a_large_value_is_produced_in_the_region_that_needs_it() -> None:
    model = model_of(
        '<ir_version: 10, opset_import: ["" : 21]>\n'
        "g (float[8,1] x, float[1,64] w) => (float[8,64] y) {"
        " p = Relu(x) f = Exp(p) b = MatMul(p, w) y = Sub(b, f) }"
    )
    result = partition(model, [toy("npu", "Relu", "MatMul", "Sub"), everything()])
    assert region_sets(result.model) == {frozenset("p"), frozenset("f"), frozenset("by")}


def test_a_large_input_of_a_small_value_keeps_it_in_the_earlier_region() -> None:
    model = model_of(
        '<ir_version: 10, opset_import: ["" : 21]>\n'
        "g (float[8,64] x, float[64,1] w) => (float[8,1] y) {"
        " p = Relu(x) f = Exp(p) b = MatMul(p, w) c = MatMul(f, w) y = Sub(b, c) }"
    )
    result = partition(model, [toy("npu", "Relu", "MatMul", "Sub"), everything()])
    assert region_sets(result.model) == {frozenset("pb"), frozenset("f"), frozenset("cy")}


def carried(model: ir.Model, side: dict[str, int]) -> int:
    """Return how many values pass from the first region to the second, or are read by both."""
    count = 0
    graph = model.graph
    for value in (*graph.inputs, *(output for node in graph for output in node.outputs)):
        producer = value.producer()
        readers = {side[use.node.name or ""] for use in value.uses() if use.node.name in side}
        home = side.get(producer.name or "") if producer is not None else None
        if home is None:
            count += readers == {0, 1}
        else:
            count += home == 0 and 1 in readers
    return count


def is_legal(model: ir.Model, side: dict[str, int]) -> bool:
    """Whether no path leads from the second region to the first, nor from the first through a foreign node to it."""
    earliest: dict[str, int] = {}
    for node in model.graph:
        producers = [value.producer() for value in node.inputs if value is not None and value.producer() is not None]
        level = max((earliest[producer.name or ""] for producer in producers if producer is not None), default=0)
        if node.name in side:
            if side[node.name] < level:
                return False
            earliest[node.name] = side[node.name]
        else:
            own = [side[producer.name or ""] + 1 for producer in producers if producer and producer.name in side]
            earliest[node.name or ""] = max([level, *own])
    return True


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(random_models(9), st.sets(st.sampled_from((*UNARY, *BINARY)), min_size=2))
def test_between_two_regions_the_fewest_bytes_pass(model: ir.Model, operators: set[str]) -> None:
    plan = partition(model, [toy("npu", *operators), everything()]).plan
    regions = plan.regions("npu")
    assume(len(regions) == 2)
    chosen = {row.node: int(row.region == regions[1]) for row in plan.placements if row.backend == "npu"}
    if not is_legal(model, chosen):
        chosen = {name: 1 - side for name, side in chosen.items()}
    assert is_legal(model, chosen)
    names = list(chosen)
    sides = (dict(zip(names, choice, strict=True)) for choice in product((0, 1), repeat=len(names)))
    assert carried(model, chosen) == min(carried(model, side) for side in sides if is_legal(model, side))
