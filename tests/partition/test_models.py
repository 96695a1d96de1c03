"""Partitioning of the shared models among three toy vendors of different coverage."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from benchmarks.zoo import NAMES, model, path_of
from graft.core.graph.view import NodeView
from graft.core.reject import Reject
from graft.core.shapes.sample_inputs import sample_inputs
from graft.partition.graph import is_constant_node
from graft.partition.placement.partitioner import Partitioned, partition
from graft.partition.policy import Policy
from graft.partition.region import regions
from graft.patterns import Composite, absent, is_constant, is_op, wildcard
from graft.patterns.match import Match
from tests.partition.graphs import Toy, everything, toy

CONV = is_op("Conv")(wildcard(), wildcard().named("w"), wildcard() | absent())
LINEAR = is_op("MatMul")(wildcard(), is_constant()) + is_constant()


def no_groups(match: Match) -> Reject | None:
    group = match.root.attribute("group", 1) if match.root.op_type == "Conv" else 1
    return None if group == 1 else Reject("attribute", f"group 1 only, got {group}")


def square_windows(node: NodeView) -> bool | Reject:
    if node.op_type not in ("MaxPool", "AveragePool"):
        return Reject("no-pattern", f"no rule for {node.op_type}")
    shape = node.attribute("kernel_shape")
    return len(set(shape)) == 1 or Reject("shape", f"square windows only, got {shape}")


VENDORS = (
    Toy(
        "conv",
        patterns=(
            Composite("conv.add_relu", is_op("Relu")(CONV + wildcard())),
            Composite("conv.relu", is_op("Relu")(CONV)),
            Composite("conv.plain", CONV, check=no_groups),
        ),
        answer=square_windows,
    ),
    toy("blas", "MatMul", "Gemm", patterns=(Composite("blas.linear", LINEAR),)),
    toy("dsp", "Add", "Mul", "Relu", "Sigmoid", "Softmax", "LayerNormalization"),
)


@cache
def partitioned(name: str) -> Partitioned:
    return partition(graft.load(path_of(name)), [*VENDORS, everything()])


def coverage(name: str) -> str:
    plan = partitioned(name).plan
    counts = [
        f"{backend} {sum(row.backend == backend for row in plan.placements)}/{len(plan.regions(backend))}"
        for backend in plan.backends
    ]
    return f"{name}: {len(plan.placements)} ops: {', '.join(counts)}"


def test_the_coverage_of_the_shared_models_is_as_recorded(golden: Callable[[str, str], None]) -> None:
    lines = ["model: operators: backend operators/regions", *(coverage(name) for name in NAMES)]
    golden("partition_coverage.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("name", NAMES)
def test_every_node_has_one_placement_and_complete_reasons(name: str) -> None:
    result = partitioned(name)
    backends = set(result.plan.backends)
    assert len(result.plan.placements) == sum(not is_constant_node(node) for node in graft.load(path_of(name)).graph)
    for row in result.plan.placements:
        assert {row.backend, *row.reasons} == backends
        assert row.backend not in row.reasons
    origins = [name for region in regions(result.model) for name in region.origin]
    assert sorted(origins) == sorted(row.node for row in result.plan.placements)


@pytest.mark.parametrize("name", NAMES)
def test_every_value_of_a_region_has_a_type_and_a_shape(name: str) -> None:
    for region in regions(partitioned(name).model):
        for function in (region.function, *region.composites.values()):
            for value in (*function.inputs, *(output for node in function for output in node.outputs)):
                if value.name:
                    assert value.dtype is not None, f"{region.name}: {value.name}"
                    assert value.shape is not None, f"{region.name}: {value.name}"


@pytest.mark.parametrize("name", ["light_squeezenet", "light_shufflenet", "lstm"])
def test_the_partitioned_model_computes_the_same_in_onnx_runtime(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    source = model(name)
    proto = ir.to_proto(source)
    after = ir.to_proto(partition(source, [*VENDORS, everything()]).model)
    onnx.checker.check_model(after)
    feeds = sample_inputs(source)
    outputs = [
        runtime.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
        for each in (proto, after)
    ]
    for left, right in zip(*outputs, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)


def test_bounds_on_regions_reduce_their_number() -> None:
    source = graft.load(path_of("light_inception_v1"))
    bounded = partition(source, [*VENDORS, everything(fallback=True)], policy=Policy(min_region_ops=4)).plan
    free = partitioned("light_inception_v1").plan
    assert len(bounded.regions()) < len(free.regions())
    for name in bounded.regions("conv"):
        assert sum(row.region == name for row in bounded.placements) >= 4
