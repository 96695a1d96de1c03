"""Regions that are parted: by the memory of a device, by their number of layers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
import pytest

from graft.core.device_memory import DeviceMemory
from graft.core.reject import Reject
from graft.errors import GraftError
from graft.partition.placement.partitioner import partition
from graft.partition.plan import Plan
from graft.partition.policy import Policy
from graft.patterns.composite import Composite
from graft.patterns.language import is_op, wildcard
from tests.partition.graphs import Toy, everything, run_reference, small, toy

UNARY = frozenset({"Relu", "Tanh", "Add", "MatMul"})
REST = everything("llvm", fallback=True)
CHAIN = "a = Relu(x)\nb = Tanh(a)\nc = Relu(b)\nd = Add(a, c)\ne = Tanh(d)\ny = Relu(e)"


@dataclass(frozen=True)
class Small(Toy):
    """A backend whose device has little memory."""

    memory: DeviceMemory = field(default_factory=DeviceMemory)


def device(**room: int) -> Small:
    return Small("npu", UNARY, memory=DeviceMemory(**room))


def regions(plan: Plan) -> dict[str, str]:
    return {row.node: row.region for row in plan.placements}


def test_a_region_is_parted_where_activations_would_not_fit() -> None:
    # at c: b and c, and a, which d reads; 24 B each
    plan = partition(small(CHAIN), [device(activations=48), REST]).plan
    assert regions(plan) == {"a": "npu_0", "b": "npu_0", "c": "npu_1", "d": "llvm_0", "e": "npu_2", "y": "npu_2"}
    assert plan.parted == {
        "npu_1": "with 'c' it would have activations of 72 B, and the device has room for 48 B"
    }  # fmt: skip
    assert plan["d"].reasons["npu"] == Reject("size", "it has activations of 72 B, and the device has room for 48 B")
    assert Plan.from_json(plan.to_json()).parted == plan.parted


def test_what_is_read_from_outside_is_there_from_the_beginning() -> None:
    model = small("a = Relu(x)\nb = Tanh(a)\ny = Add(b, z)", "float[2,3] x, float[2,3] z")
    assert partition(model, [device(activations=72), REST]).plan.parted == {}
    assert list(partition(model, [device(activations=71), REST]).plan.parted) == []  # Add alone needs 72
    assert partition(model, [device(activations=71), REST]).plan["y"].backend == "llvm"


def test_weights_count_once_and_a_larger_region_is_parted() -> None:
    body = "a = MatMul(x, w)\nb = MatMul(a, w)\nc = MatMul(b, v)\ny = Relu(c)"
    model = small(body, "float[4,4] x, float[4,4] w, float[4,4] v", "float[4,4] y")
    for value in model.graph.inputs[1:]:
        value.const_value = ir.tensor(np.ones((4, 4), np.float32), name=value.name)
        model.graph.initializers[value.name or ""] = value
    del model.graph.inputs[1:]
    assert partition(model, [device(weights=128), REST]).plan.parted == {}
    plan = partition(model, [device(weights=127), REST]).plan
    assert regions(plan) == {"a": "npu_0", "b": "npu_0", "c": "npu_1", "y": "npu_1"}
    assert plan.parted["npu_1"].startswith("with 'c' it would have weights of 128 B, and the device has room for 127 B")
    refused = partition(model, [device(weights=63), REST]).plan
    assert {row.node for row in refused.placements if row.backend == "npu"} == {"y"}
    assert refused["a"].reasons["npu"].code == "size"


def test_what_a_composite_computes_inside_does_not_count() -> None:
    pair = Composite("npu.pair", is_op("Tanh")(is_op("Relu")(wildcard())))
    npu = Small("npu", patterns=(pair,), memory=DeviceMemory(activations=48))
    model = small("a = Relu(x)\nb = Tanh(a)\nc = Relu(b)\ny = Tanh(c)")
    plan = partition(model, [npu, REST]).plan
    assert (plan.parted, plan.coverage("npu")) == ({}, 1.0)


@pytest.mark.parametrize("most", [1, 2, 3, 6])
def test_regions_have_at_most_so_many_layers_and_the_model_stays_the_same(most: int) -> None:
    model = small(CHAIN)
    result = partition(model, [toy("npu", *UNARY), REST], policy=Policy(max_region_layers=most))
    counts = [sum(row.region == name for row in result.plan.placements) for name in result.plan.regions()]
    assert max(counts) == most
    assert len(counts) == -(-6 // most)
    reason = f"a region has at most {most} layer{'' if most == 1 else 's'}"
    assert set(result.plan.parted.values()) <= {reason}
    given = {"x": np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)}
    np.testing.assert_array_equal(run_reference(result.model, given)[0], run_reference(model, given)[0])


def test_fallbacks_are_not_parted_by_a_policy() -> None:
    plan = partition(small(CHAIN), [REST], policy=Policy(max_region_layers=1)).plan
    assert len(plan.regions()) == 1


def test_a_wrong_memory_is_told() -> None:
    with pytest.raises(GraftError) as caught:
        DeviceMemory(weights=-1)
    assert caught.value.message == "DeviceMemory: weights is int -1; give a whole number of at least 0, or None"
