from __future__ import annotations

from dataclasses import replace

from graft.core.reject import Reject
from graft.partition.plan import Placement, Plan
from graft.partition.plan_diff import PlanChange, plan_diff

ROWS = (
    Placement("conv", "Conv", "npu", "npu_0", "npu.conv", 900, {"llvm": Reject("lost-to:npu", "npu comes first")}),
    Placement("soft", "Softmax", "llvm", "llvm_0", "", 100, {"npu": Reject("rank", "rank 2 only, got 3")}),
)
PLAN = Plan(("npu", "llvm"), ROWS, "0123456789abcdef")


def changed(number: int, **facts: object) -> Plan:
    rows = list(ROWS)
    rows[number] = replace(rows[number], **facts)  # type: ignore[arg-type]
    return replace(PLAN, placements=tuple(rows))


def test_equal_plans_do_not_differ() -> None:
    assert plan_diff(PLAN, changed(0, region="npu_7", flops=1)) == ()


def test_a_node_that_moved_says_why_it_left() -> None:
    moved = changed(0, backend="llvm", composite="", reasons={"npu": Reject("dtype", "float32 only")})
    assert plan_diff(PLAN, moved) == (PlanChange("conv", "Conv", "backend", "npu", "llvm", "dtype: float32 only"),)


def test_nodes_of_one_side_are_told_apart() -> None:
    renamed = changed(1, node="softmax")
    assert plan_diff(PLAN, renamed) == (
        PlanChange("soft", "Softmax", "removed", "llvm", ""),
        PlanChange("softmax", "Softmax", "added", "", "llvm"),
    )


def test_an_operator_a_composite_and_reasons_are_compared_where_the_backend_stayed() -> None:
    assert plan_diff(PLAN, changed(0, op_type="Gemm"))[0].what == "operator"
    assert plan_diff(PLAN, changed(0, composite="")) == (PlanChange("conv", "Conv", "composite", "npu.conv", ""),)
    other = changed(1, reasons={"npu": Reject("dtype", "float32 only")})
    assert plan_diff(PLAN, other) == (PlanChange("soft", "Softmax", "reasons", "npu: rank", "npu: dtype"),)
