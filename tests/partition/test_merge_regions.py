"""The largest regions whose graph stays acyclic."""

from __future__ import annotations

from graft.partition.placement.partitioner import partition
from tests.partition.graphs import everything, region_sets, small, toy


def sets(*groups: str) -> set[frozenset[str]]:
    return {frozenset(group.split()) for group in groups}


def test_a_foreign_arm_stays_apart() -> None:
    model = small("a = Relu(x)\nb = Exp(a)\ny = Add(a, b)")
    result = partition(model, [toy("npu", "Relu", "Add"), everything()])
    assert region_sets(result.model) == sets("a", "b", "y")


def test_siblings_that_share_an_input_are_merged() -> None:
    model = small("a = Relu(x)\nb = Tanh(x)\nc = Exp(a)\nd = Exp(b)\ny = Sub(c, d)")
    result = partition(model, [toy("npu", "Relu", "Tanh"), everything()])
    assert region_sets(result.model) == sets("a b", "c d y")
