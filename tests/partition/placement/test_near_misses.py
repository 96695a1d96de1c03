"""The reasons of a plan are the true ones: of the nearest pattern, and of a backend that cost decided against."""

from __future__ import annotations

import pytest

from graft.core.reject import Reject
from graft.partition.placement.partitioner import partition
from graft.partition.plan import Plan
from graft.partition.policy import Policy
from graft.patterns import Composite, Pattern, is_constant, is_op, wildcard
from tests.partition.graphs import everything, small, toy

INPUTS = "float[3,3] x, float[3,3] w"
PRODUCT = is_op("MatMul")(wildcard(), wildcard())


def plan_of(pattern: Pattern, body: str, policy: Policy | None = None, **more: str) -> Plan:
    npu = toy("npu", patterns=[Composite("npu.group", pattern)])
    given = {"inputs": INPUTS, "outputs": "float[3,3] y", **more}
    return partition(small(body, **given), [npu, everything()], policy=policy).plan


def test_a_near_miss_gives_its_own_reason() -> None:
    pattern = is_op("Relu")(is_op("MatMul")(wildcard(), is_constant()))
    plan = plan_of(pattern, "m = MatMul(x, w)\ny = Relu(m)")
    reason = Reject(
        "constant-required",
        "npu.group matched 2 of 2 operators, then at input 1 of MatMul (node 'm'): "
        "'w' is not known at compile time, wanted a constant",
    )
    assert [row.reasons["npu"] for row in plan.placements] == [reason, reason]


def test_every_kind_of_demand_has_its_code() -> None:
    body = "m = MatMul(x, w)\ny = Relu(m)"
    for pattern, code in (
        (is_op("Relu")(PRODUCT.has_dtype("float64")), "dtype"),
        (is_op("Relu")(PRODUCT.has_rank(4)), "rank"),
        (is_op("Relu")(PRODUCT.has_shape(1, 3)), "shape"),
        (is_op("Relu")(is_op("Exp")), "no-pattern"),
    ):
        assert plan_of(pattern, body)["y"].reasons["npu"].code == code
    leaky = is_op("LeakyRelu")(PRODUCT).has_attr(alpha=0.5)
    assert plan_of(leaky, "m = MatMul(x, w)\ny = LeakyRelu(m)")["m"].reasons["npu"].code == "attribute"


def test_a_value_that_is_used_elsewhere_is_the_reason_of_all_nodes_of_the_pattern() -> None:
    plan = plan_of(is_op("Relu")(PRODUCT), "m = MatMul(x, w)\nr = Relu(m)\ny = Add(r, m)")
    assert {row.node: row.reasons["npu"].code for row in plan.placements} == {
        "m": "fused-use", "r": "fused-use", "y": "no-pattern",
    }  # fmt: skip


def test_cost_is_the_reason_only_where_the_backend_would_have_taken_the_node() -> None:
    plan = plan_of(is_op("Relu")(PRODUCT), "m = MatMul(x, w)\nr = Relu(m)\ny = Exp(r)", Policy(placement="model"))
    rows = {row.node: row for row in plan.placements}
    assert {row.backend for row in plan.placements} == {"rest"}
    assert {node: row.reasons["npu"].code for node, row in rows.items()} == {
        "m": "cost",
        "r": "cost",
        "y": "no-pattern",
    }


def test_a_backend_that_fails_when_it_is_asked_for_its_reasons_leaves_those_that_are_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    is_over = list[bool]()

    def check(match: object) -> bool:
        if is_over:
            raise RuntimeError("gone")
        return True

    row = Composite("npu.group", is_op("Relu")(PRODUCT), check)
    graph = small("m = MatMul(x, w)\nr = Relu(m)\ny = Exp(r)", INPUTS, "float[3,3] y")
    plan = partition(graph, [toy("npu", patterns=[row]), everything()], policy=Policy(placement="model")).plan
    is_over.append(True)
    assert {row.reasons["npu"].code for row in plan.placements} == {"no-pattern"}
    assert "backend 'npu' does not say why it gets no node: " in caplog.text


def test_pins_do_not_hide_a_near_miss() -> None:
    policy = Policy(pin={"y": "rest"})
    plan = plan_of(is_op("Relu")(PRODUCT.has_rank(4)), "m = MatMul(x, w)\nr = Relu(m)\ny = Exp(r)", policy)
    assert [row.reasons["npu"].code for row in plan.placements] == ["rank", "rank", "user-excluded"]


def test_a_composite_that_an_earlier_claim_breaks_names_the_one_who_claimed() -> None:
    first = toy("first", "MatMul")
    second = toy("second", patterns=(Composite("second.pair", is_op("Relu")(is_op("MatMul")(wildcard(), wildcard()))),))
    plan = partition(
        small("a = MatMul(x, x)\ny = Relu(a)", "float[3,3] x", "float[3,3] y"), [first, second, everything()]
    ).plan
    assert plan["a"].reasons["second"] == Reject("lost-to:first", "first comes first")
    assert plan["y"].backend == "rest"
    assert plan["y"].reasons["second"] == Reject(
        "lost-to:first", "first comes first at 'a', which second.pair needs too"
    )
