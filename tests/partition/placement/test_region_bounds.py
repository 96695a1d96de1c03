"""Regions that are not worth their boundary."""

from __future__ import annotations

from graft.core.reject import Reject
from graft.partition.placement.partitioner import partition
from graft.partition.policy import Policy
from tests.partition.graphs import everything, small, toy


def test_small_regions_go_to_the_next_backend() -> None:
    model = small("a = Relu(x)\nb = Exp(a)\nc = Relu(b)\nd = Tanh(c)\ny = Exp(d)")
    backends = [toy("npu", "Relu", "Tanh"), toy("gpu", "Relu", "Tanh", "Exp"), everything("reference", fallback=True)]
    plan = partition(model, backends, policy=Policy(min_region_ops=2)).plan
    assert plan["a"].reasons["npu"] == Reject("region-too-small", "the region has 1 operator, at least 2 wanted")
    assert [row.backend for row in plan.placements] == ["gpu", "gpu", "npu", "npu", "reference"]
    assert plan["y"].reasons["gpu"].code == "region-too-small"


def test_regions_below_a_bound_of_work_go_to_the_next_backend() -> None:
    model = small("a = MatMul(x, x)\nb = Exp(a)\ny = Add(b, x)", "float[4,4] x", "float[4,4] y")
    plan = partition(
        model, [toy("npu", "MatMul", "Add"), everything("llvm", fallback=True)], policy=Policy(min_region_flops=100)
    ).plan
    assert plan["a"].backend == "npu"
    assert plan["y"].reasons["npu"] == Reject("region-too-small", "the region has 16 FLOPs, at least 100 wanted")


def test_the_largest_regions_are_kept_where_their_number_is_bounded() -> None:
    model = small("a = Relu(x)\nb = Exp(a)\nc = Relu(b)\nd = Tanh(c)\ne = Exp(d)\ny = Relu(e)")
    plan = partition(
        model, [toy("npu", "Relu", "Tanh"), everything("llvm", fallback=True)], policy=Policy(max_regions=1)
    ).plan
    assert [row.backend for row in plan.placements] == ["llvm", "llvm", "npu", "npu", "llvm", "llvm"]
    assert plan["a"].reasons["npu"] == Reject("region-too-small", "1 larger region is enough")
