"""One partitioning problem, solved with other refusals."""

from __future__ import annotations

import weakref
from dataclasses import replace
from types import SimpleNamespace

import pytest

from graft.core.collection import collection_paused
from graft.core.operators.all import OPERATORS
from graft.core.reject import Reject
from graft.partition.placement import problem as problem_module
from graft.partition.placement.partitioner import partition
from graft.partition.placement.problem import Problem
from graft.partition.policy import Policy
from graft.patterns import Composite, is_constant, is_op, wildcard
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


FUSED = Composite("fused.mul_relu", is_op("Relu")(is_op("Mul")(wildcard(), wildcard())))


def test_a_later_backends_composite_has_nodes_that_no_earlier_backend_takes() -> None:
    model = small("z = Mul(x, x)\ny = Relu(z)")
    fused = toy("fused", patterns=[FUSED])
    assert [row.backend for row in partition(model, [toy("first", "Exp"), fused]).plan.placements] == ["fused"] * 2
    refused = {(node, "first"): Reject("compile-failed", "no") for node in ("z", "y")}
    plan = partition(model, [everything("first"), fused], refusals=refused).plan
    assert [row.composite for row in plan.placements] == ["fused.mul_relu"] * 2
    half = {key: why for key, why in refused.items() if key[0] == "y"}
    plan = partition(model, [everything("first"), fused], refusals=half).plan
    assert [row.backend for row in plan.placements] == ["first", ""]


def test_a_composite_that_is_dropped_is_refused_for_its_cost_and_others_stay() -> None:
    model = small("a = Add(x, x)\nb = Relu(a)\nc = Mul(b, b)\ny = Relu(c)")
    npu = toy("npu", patterns=[Composite("npu.add_relu", ADD_RELU), replace(FUSED, name="npu.mul_relu")])
    problem = Problem(model, (npu, everything()), Policy(), {}, OPERATORS)
    plan = problem.solve(dropped={("npu", "npu.add_relu")}).plan
    assert [plan[node].backend for node in "abcy"] == ["rest", "rest", "npu", "npu"]
    assert plan["b"].reasons["npu"].code == "cost"
    assert plan.dropped == (("npu", "npu.add_relu"),)
    assert [one.backend for one in problem.solve().plan.placements] == ["npu"] * 4


def test_a_backend_that_got_nothing_for_want_of_a_pattern_says_what_came_nearest() -> None:
    model = small("m = MatMul(x, w)\ny = Relu(m)", "float[3,3] x, float[3,3] w", "float[3,3] y")
    pattern = is_op("Relu")(is_op("MatMul")(wildcard(), is_constant()))
    other = toy("other", patterns=[Composite("other.add_relu", ADD_RELU)])
    plan = partition(model, [toy("npu", patterns=[Composite("npu.group", pattern)]), other, everything()]).plan
    assert [row.reasons["npu"].code for row in plan.placements] == ["constant-required"] * 2
    assert [row.reasons["other"].code for row in plan.placements] == ["no-pattern"] * 2


def test_a_backend_that_is_asked_what_came_nearest_keeps_its_own_refusals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = small("m = MatMul(x, w)\ny = Relu(m)", "float[3,3] x, float[3,3] w", "float[3,3] y")
    pattern = is_op("Relu")(is_op("MatMul")(wildcard(), is_constant()))
    backends = [toy("npu", patterns=[Composite("npu.group", pattern)]), everything()]
    refusals = {("m", "npu"): Reject("compile-failed", "no"), ("y", "rest"): Reject("compile-failed", "never")}
    plan = partition(model, backends, refusals=refusals).plan
    monkeypatch.setattr(problem_module, "MergeRegions", None)  # no regions are made to ask
    assert plan["m"].reasons["npu"].text == "no"
    assert plan["y"].reasons["npu"].code == "constant-required"
    assert plan["y"].reasons["rest"].text == "never"


def test_a_backend_is_a_fallback_only_where_it_says_so() -> None:
    silent = SimpleNamespace(name="npu", patterns=(), supports=lambda node: True, available=lambda: None)
    backends = (silent, toy("other", "Relu"), everything("rest", fallback=True))
    assert Problem(small("y = Relu(x)"), backends, Policy(), {}, OPERATORS).fallbacks == ("rest",)


def test_plans_that_were_kept_are_freed_once_enough_operators_were_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small("a = Relu(x)\ny = Exp(a)")
    monkeypatch.setattr(problem_module, "COLLECT_ALL", 4)
    problem = Problem(model, (toy("npu", "Relu"), everything()), Policy(), {}, OPERATORS)
    with collection_paused():
        kept = problem.solve().model
        seen = weakref.ref(kept.graph)
        problem.solve()
        del kept
        problem.solve()
        assert seen() is None


def test_plans_that_a_search_drops_are_freed() -> None:
    model = small("a = Relu(x)\ny = Exp(a)")
    problem = Problem(model, (toy("npu", "Relu"), everything()), Policy(), {}, OPERATORS)
    with collection_paused():
        kept = [weakref.ref(problem.solve().model.graph) for _ in range(4)]
        problem.solve()
        assert [reference() for reference in kept] == [None] * 4
