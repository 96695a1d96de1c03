from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from graft.core.reject import Reject
from graft.errors import PlanError
from graft.partition.placement.partitioner import partition
from graft.partition.plan import Placement, Plan, Why
from graft.patterns import Composite, is_op, wildcard
from tests.partition.graphs import everything, small, toy

PLAN = Plan(
    ("npu", "llvm"),
    (
        Placement("conv", "Conv", "npu", "npu_0", "npu.conv", 900, {"llvm": Reject("lost-to:npu", "npu comes first")}),
        Placement("soft", "Softmax", "llvm", "llvm_0", "", 100, {"npu": Reject("rank", "rank 2 only, got 3")}),
        Placement("relu", "Relu", "npu", "npu_1", "", 0, {"llvm": Reject("lost-to:npu", "npu comes first")}),
    ),
    "0123456789abcdef",
)


def test_the_summary_is_one_line() -> None:
    assert PLAN.summary() == "npu 2/3 ops (66.7 %, 2 regions, 90 % of FLOPs) · llvm 1/3 · top reasons: rank 1"


def test_the_summary_of_an_empty_model_divides_by_nothing() -> None:
    assert Plan(("npu",), ()).summary() == "npu 0/0 ops (0.0 %, 0 regions)"


def test_the_summary_says_what_a_backend_took_and_failed_to_compile() -> None:
    rows = (replace(PLAN.placements[0], backend="llvm", reasons={"npu": Reject("compile-failed", "no license")}),)
    assert replace(PLAN, placements=rows).summary() == (
        "npu 0/1 ops (0.0 %, 0 regions, 0 % of FLOPs) · llvm 1/1 · npu failed to compile 1 · "
        "top reasons: compile-failed 1"
    )


def test_why_lists_every_refusal() -> None:
    assert PLAN.why("npu") == (Why("soft", "Softmax", "npu", "rank", "rank 2 only, got 3"),)
    assert [row.node for row in PLAN.why()] == ["conv", "soft", "relu"]
    assert PLAN.reasons("llvm") == {"lost-to:npu": 2}


def test_a_plan_is_read_back_as_it_was_written() -> None:
    for plan in (PLAN, PLAN.with_precision({"conv"}, "bf16")):
        assert Plan.from_json(plan.to_json()) == plan


def test_a_plan_says_which_products_are_rounded() -> None:
    plan = PLAN.with_precision({"conv", "none of this name"}, "bf16")
    assert [row.precision for row in plan.placements] == ["bf16", "", ""]
    assert plan.summary() == (
        "npu 2/3 ops (66.7 %, 2 regions, 90 % of FLOPs) · llvm 1/3 · products in bf16 1/3 (90 % of FLOPs)"
        " · top reasons: rank 1"
    )
    assert "precision" not in PLAN.to_json()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "the file is not a plan: its format is not 'graft.plan'"),
        ({"version": 9}, "the plan has version 9, this Graft reads version 1"),
        ({"nodes": [{"node": "a"}]}, "the plan is damaged: KeyError 'reasons'"),
        ({"nodes": 3}, "the plan is damaged: TypeError 'int' object is not iterable"),
    ],
)
def test_what_is_no_plan_is_refused(change: dict[str, object], message: str) -> None:
    content = json.loads(PLAN.to_json())
    content.update(change)
    with pytest.raises(PlanError) as caught:
        Plan.from_json(json.dumps(content))
    assert str(caught.value) == message


def test_text_that_is_not_json_is_refused() -> None:
    with pytest.raises(PlanError) as caught:
        Plan.from_json("{")
    assert str(caught.value) == (
        "the plan is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    )


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "image.npy"
    path.write_bytes(b"\x93NUMPY")
    with pytest.raises(PlanError) as caught:
        Plan.load(path)
    assert str(caught.value) == f"'{path}' holds no plan: it is no text; give what `graft plan -o` wrote"


def test_a_node_that_the_plan_does_not_have_is_an_error() -> None:
    with pytest.raises(PlanError) as caught:
        PLAN["convv"]
    assert str(caught.value) == "the plan has no node 'convv'; did you mean 'conv'?"


def test_the_plan_counts_the_work_of_operators() -> None:
    plan = partition(
        small("a = MatMul(x, x)\ny = Relu(a)", "float[4,4] x", "float[4,4] y"), [toy("npu", "MatMul"), everything()]
    ).plan
    assert plan["a"].flops == 128
    assert plan.summary() == "npu 1/2 ops (50.0 %, 1 region, 89 % of FLOPs) · rest 1/2 · top reasons: no-pattern 1"


CHAIN = "a = Add(x, x)\nb = Relu(a)\ny = Exp(b)"
ROWS = [Composite("npu.add_relu", is_op("Relu")(is_op("Add")(wildcard(), wildcard())))]
BACKENDS = [toy("npu", "Relu", patterns=ROWS), toy("gpu", "Add", "Relu", "Exp"), everything()]


def moved(plan: Plan, node: str, backend: str) -> Plan:
    """Return the plan with one node on another backend, as a user edits it."""
    rows = tuple(replace(row, backend=backend) if row.node == node else row for row in plan.placements)
    return replace(plan, placements=rows)


def test_a_plan_given_back_gives_the_same_plan() -> None:
    plan = partition(small(CHAIN), BACKENDS).plan
    again = partition(small(CHAIN), BACKENDS, plan=Plan.from_json(plan.to_json())).plan
    assert again == plan


def test_an_edited_plan_is_followed() -> None:
    plan = partition(small(CHAIN), BACKENDS).plan
    assert [row.backend for row in plan.placements] == ["npu", "npu", "gpu"]
    again = partition(small(CHAIN), BACKENDS, plan=moved(moved(plan, "a", "gpu"), "y", "rest")).plan
    assert [row.backend for row in again.placements] == ["gpu", "npu", "rest"]
    assert again["y"].reasons["gpu"] == Reject("user-excluded", "the plan places the node on rest")


def test_a_plan_may_have_its_nodes_in_any_order_but_each_once() -> None:
    plan = partition(small(CHAIN), BACKENDS).plan
    rows = plan.placements
    assert partition(small(CHAIN), BACKENDS, plan=replace(plan, placements=rows[::-1])).plan == plan
    other = replace(rows[0], node="q")
    for changed, name, said, has in (
        (rows[1:], rows[0].node, 0, 1), ((*rows, rows[0]), rows[0].node, 2, 1), ((*rows, other), "q", 1, 0),
    ):  # fmt: skip
        with pytest.raises(PlanError) as caught:
            partition(small(CHAIN), BACKENDS, plan=replace(plan, placements=changed))
        assert str(caught.value) == f"the plan places node '{name}' {said} times, and the model has it {has} times"


def test_a_plan_that_cannot_be_followed_is_an_error() -> None:
    model = small(CHAIN)
    plan = partition(model, BACKENDS).plan
    with pytest.raises(PlanError) as caught:
        partition(model, BACKENDS, plan=moved(plan, "y", "npu"))
    assert str(caught.value) == (
        "the plan places Exp (node 'y') on 'npu', which refuses it: no-pattern: npu has no rule for Exp"
    )
    with pytest.raises(PlanError) as caught:
        partition(model, BACKENDS, plan=moved(plan, "y", "tpu"))
    assert str(caught.value) == ("the plan places Exp (node 'y') on backend 'tpu', which is not among npu, gpu, rest")
    with pytest.raises(PlanError) as caught:
        partition(small("y = Relu(x)"), BACKENDS, plan=replace(plan, model="0" * 16))
    assert str(caught.value).startswith("the plan is for another model: its fingerprint is 0000000000000000, the model")
