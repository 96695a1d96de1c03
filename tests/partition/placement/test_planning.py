"""The plan's rows are read off from the decisions, in the model's order."""

from __future__ import annotations

from graft.partition.placement.partitioner import partition
from graft.partition.plan import Placement
from graft.patterns import Composite, is_op, wildcard
from tests.partition.graphs import everything, small, toy

IF = """n = Neg(x)
y = If(c) <
  then_branch = t () => (float[2,3] p) { p = Relu(n) },
  else_branch = e () => (float[2,3] q) { q = Abs(x) }
>"""


def named(row: Placement) -> tuple[str, str, str]:
    return row.op_type, row.backend, row.composite


def test_every_operator_has_a_row_with_its_composite_region_and_work() -> None:
    row = Composite("npu.add_relu", is_op("Relu")(is_op("Add")(wildcard(), wildcard())))
    plan = partition(small("a = Add(x, x)\nb = Relu(a)\ny = Exp(b)"), [toy("npu", patterns=[row]), everything()]).plan
    assert list(map(named, plan.placements)) == [
        ("Add", "npu", "npu.add_relu"),
        ("Relu", "npu", "npu.add_relu"),
        ("Exp", "rest", ""),
    ]
    first, second, third = plan.placements
    assert first.region == second.region != third.region
    assert all(one.flops > 0 for one in plan.placements)
    assert {name: why.code for name, why in third.reasons.items()} == {"npu": "no-pattern"}
    assert {name: why.code for name, why in first.reasons.items()} == {"rest": "lost-to:npu"}


def test_operators_of_bodies_follow_their_node() -> None:
    plan = partition(small(IF, inputs="float[2,3] x, bool c"), [everything()]).plan
    assert [(row.op_type, row.backend) for row in plan.placements] == [
        ("Neg", "rest"),
        ("If", "runtime"),
        ("Abs", "rest"),
        ("Relu", "rest"),
    ]


def test_operators_of_a_body_that_stays_with_its_node_inherit_its_place() -> None:
    class Whole(type(everything())):  # type: ignore[misc]
        control_flow = True

    whole = Whole("npu", answer=lambda node: True)
    plan = partition(small(IF, inputs="float[2,3] x, bool c"), [whole]).plan
    owner = plan.placements[1]
    assert owner.op_type == "If"
    for row in plan.placements[2:]:
        assert (row.backend, row.region, row.reasons) == (owner.backend, owner.region, owner.reasons)
    assert [row.op_type for row in plan.placements[2:]] == ["Abs", "Relu"]


def test_regions_of_an_earlier_partitioning_are_opened_into_their_operators() -> None:
    row = Composite("npu.add_relu", is_op("Relu")(is_op("Add")(wildcard(), wildcard())))
    npu = toy("npu", "Neg", patterns=[row])
    first = partition(small("a = Add(x, x)\nb = Relu(a)\nc = Neg(b)\ny = Exp(c)"), [npu, everything()])
    again = partition(first.model, [npu, everything()]).plan
    assert list(map(named, again.placements)) == list(map(named, first.plan.placements))
    assert [{name: why.code for name, why in one.reasons.items()} for one in again.placements[:3]] == [
        {"rest": "lost-to:npu"}
    ] * 3
