"""Properties of partitioning on random graphs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.partition.placement.partitioner import partition
from tests.partition.drawn_backends import BACKENDS, backends_of
from tests.partition.graphs import (
    inputs_for,
    random_models,
    region_sets,
    run_reference,
)


@settings(max_examples=60, deadline=None)
@given(random_models(), BACKENDS)
def test_the_partitioned_model_computes_the_same(model: ir.Model, operators: list[set[str]]) -> None:
    before = run_reference(model, inputs_for(model))
    after = run_reference(partition(model, backends_of(operators)).model, inputs_for(model))
    for left, right in zip(before, after, strict=True):
        np.testing.assert_array_equal(left, right)


@settings(max_examples=60, deadline=None)
@given(random_models(), BACKENDS)
def test_every_node_has_one_placement_and_every_other_backend_one_reason(
    model: ir.Model, operators: list[set[str]]
) -> None:
    backends = backends_of(operators)
    plan = partition(model, backends).plan
    assert [row.node for row in plan.placements] == [node.name for node in model.graph]
    for row in plan.placements:
        assert {row.backend, *row.reasons} == {backend.name for backend in backends}
        assert row.backend not in row.reasons


def edges(model: ir.Model, groups: list[frozenset[str]]) -> tuple[dict[str, int], dict[int, set[int]]]:
    """Return the group of every node and the groups that every group reads."""
    owner = {name: number for number, group in enumerate(groups) for name in group}
    before: dict[int, set[int]] = {number: set() for number in range(len(groups))}
    for node in model.graph:
        for value in node.inputs:
            producer = value.producer() if value is not None else None
            if producer is not None and owner[producer.name] != owner[node.name]:
                before[owner[node.name]].add(owner[producer.name])
    return owner, before


def is_acyclic(before: dict[int, set[int]]) -> bool:
    left = dict(before)
    while left:
        free = [number for number, others in left.items() if not others & left.keys()]
        if not free:
            return False
        for number in free:
            del left[number]
    return True


@settings(max_examples=60, deadline=None)
@given(random_models(), BACKENDS)
def test_regions_are_convex_and_no_two_of_a_backend_can_be_merged(model: ir.Model, operators: list[set[str]]) -> None:
    result = partition(model, backends_of(operators))
    groups = sorted(region_sets(result.model), key=sorted)
    _, before = edges(model, groups)
    assert is_acyclic(before)
    backend = [result.plan[next(iter(group))].backend for group in groups]
    for first in range(len(groups)):
        for second in range(first):
            if backend[first] == backend[second]:
                assert not is_acyclic(edges(model, merged(groups, first, second))[1])


def merged(groups: list[frozenset[str]], first: int, second: int) -> list[frozenset[str]]:
    rest = [group for number, group in enumerate(groups) if number not in (first, second)]
    return [*rest, groups[first] | groups[second]]


@settings(max_examples=60, deadline=None)
@given(random_models(), BACKENDS, st.randoms(use_true_random=False))
def test_the_regions_do_not_depend_on_the_order_of_nodes(
    model: ir.Model, operators: list[set[str]], random: object
) -> None:
    plan = partition(model, backends_of(operators)).plan
    other = partition(reordered(model, random), backends_of(operators)).plan
    assert {row.node: row for row in plan.placements} == {row.node: row for row in other.placements}


def reordered(model: ir.Model, random: object) -> ir.Model:
    """Return the model with its nodes in another topological order."""
    copy = model.clone()
    left = list(copy.graph)
    done: set[ir.Node] = set()
    order: list[ir.Node] = []
    while left:
        ready = [node for node in left if all(producer in done for producer in producers(node))]
        node = random.choice(ready)  # type: ignore[attr-defined]
        order.append(node)
        done.add(node)
        left.remove(node)
    copy.graph.remove(order)
    copy.graph.extend(order)
    return copy


def producers(node: ir.Node) -> Iterable[ir.Node]:
    return [value.producer() for value in node.inputs if value is not None and value.producer() is not None]  # type: ignore[misc]


@settings(max_examples=40, deadline=None)
@given(random_models(), BACKENDS)
def test_one_after_the_other_equals_all_at_once_and_a_second_time_changes_nothing(
    model: ir.Model, operators: list[set[str]]
) -> None:
    backends = backends_of(operators)
    at_once = partition(model, backends).model
    step = model
    for backend in backends:
        step = partition(step, [backend]).model
    assert region_sets(step) == region_sets(at_once)
    again = partition(at_once, backends)
    assert ir.to_onnx_text(again.model) == ir.to_onnx_text(at_once)
