"""One partitioning problem, solved with other refusals."""

from __future__ import annotations

import weakref

from graft.core.collection import collection_paused
from graft.core.operators.all import OPERATORS
from graft.core.reject import Reject
from graft.partition.placement.partitioner import partition
from graft.partition.placement.problem import Problem
from graft.partition.policy import Policy
from graft.patterns import Composite, is_op, wildcard
from tests.partition.graphs import Toy, everything, small, toy

ADD_RELU = is_op("Relu")(is_op("Add")(wildcard(), wildcard()))


def test_a_backend_that_is_unavailable_gets_nothing_and_says_why() -> None:
    model = small("y = Relu(x)")
    missing = Toy("npu", frozenset({"Relu"}), missing="the driver is missing; install npu-driver")
    plan = partition(model, [missing, everything()]).plan
    assert plan["y"].backend == "rest"
    assert plan["y"].reasons == {"npu": Reject("unavailable", "the driver is missing; install npu-driver")}


def test_refusals_known_beforehand_move_a_node_to_the_next_backend() -> None:
    model = small("a = Relu(x)\ny = Exp(a)")
    failed = {("a", "npu"): Reject("compile-failed", "no memory")}
    plan = partition(model, [toy("npu", "Relu", "Exp"), everything()], refusals=failed).plan
    assert plan["a"].backend == "rest"
    assert plan["a"].reasons["npu"] == Reject("compile-failed", "no memory")
    assert plan["y"].backend == "npu"


def test_refusals_break_up_composites_too() -> None:
    model = small("a = Add(x, x)\ny = Relu(a)")
    backend = toy("npu", "Relu", patterns=[Composite("npu.add_relu", ADD_RELU)])
    plan = partition(model, [backend, everything()], refusals={("a", "npu"): Reject("compile-failed", "no")}).plan
    assert (plan["a"].backend, plan["y"].backend, plan["y"].composite) == ("rest", "npu", "")


def test_a_later_backends_composite_takes_no_node_that_an_earlier_backend_takes() -> None:
    model = small("z = Mul(x, x)\ny = Relu(z)")
    fused = toy("fused", patterns=[Composite("fused.mul_relu", is_op("Relu")(is_op("Mul")(wildcard(), wildcard())))])
    plan = partition(model, [everything("first"), fused]).plan
    assert [row.backend for row in plan.placements] == ["first", "first"]
    assert all(row.reasons["fused"].code == "lost-to:first" for row in plan.placements)
    assert [row.backend for row in partition(model, [fused, everything("first")]).plan.placements] == ["fused"] * 2


def test_plans_that_a_search_drops_are_freed() -> None:
    model = small("a = Relu(x)\ny = Exp(a)")
    problem = Problem(model, (toy("npu", "Relu"), everything()), Policy(), {}, OPERATORS)
    with collection_paused():
        kept = [weakref.ref(problem.solve().model.graph) for _ in range(4)]
        problem.solve()
        assert [reference() for reference in kept] == [None] * 4
