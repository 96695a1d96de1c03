"""Refusals for accuracy do not count where the user allows the operator."""

from __future__ import annotations

from dataclasses import replace

from graft.core.graph.view import NodeView
from graft.core.reject import Reject
from graft.partition.tolerance import Tolerance
from graft.patterns import Composite, is_op, wildcard
from graft.patterns.match import Match
from graft.patterns.matching import match
from tests.partition.graphs import Toy, small

NODES = [NodeView(node) for node in small("a = Log(x)\ny = Exp(a)").graph]
LOG, EXP = NODES
ROUGH, NONE = Reject("accuracy", "within 8 ulp"), Reject("no-pattern", "it has no rule")
BOTH = is_op("Exp")(is_op("Log")(wildcard()))


def backend(answer: Reject | bool, *rows: Composite) -> Toy:
    return replace(Toy("npu", patterns=rows), answer=lambda node: answer)


def matched() -> Match:
    found = match(BOTH, EXP.node)
    assert found is not None
    return found


def test_a_refusal_for_accuracy_counts_unless_the_user_allows_operator_and_backend() -> None:
    rough = backend(ROUGH)
    assert Tolerance().ask(rough, LOG) == ROUGH
    assert Tolerance(frozenset({("npu", "Log")})).ask(rough, LOG) is None
    assert Tolerance(frozenset({("npu", "Log")})).ask(rough, EXP) == ROUGH
    assert Tolerance(frozenset({("gpu", "Log")})).ask(rough, LOG) == ROUGH


def test_other_refusals_count_and_what_is_taken_is_taken() -> None:
    allowed = Tolerance(frozenset({("npu", "Log")}))
    assert allowed.ask(backend(NONE), LOG) == NONE
    assert Tolerance(frozenset({("npu", "Log")})).ask(backend(True), LOG) is None


def test_a_backend_is_asked_for_a_node_once() -> None:
    asked: list[str] = []

    def answer(node: NodeView) -> bool:
        asked.append(node.op_type)
        return True

    tolerance, counted = Tolerance(), replace(Toy("npu"), answer=answer)
    for node in (LOG, LOG, EXP):
        tolerance.ask(counted, node)
    assert asked == ["Log", "Exp"]


def test_rows_are_the_tables_own_where_nothing_of_the_backend_is_allowed() -> None:
    row = Composite("npu.both", BOTH, check=lambda found: ROUGH)
    assert Tolerance(frozenset({("gpu", "Log")})).rows(backend(True, row)) == (row,)
    plain = Composite("npu.both", BOTH)
    assert Tolerance(frozenset({("npu", "Log")})).rows(backend(True, plain)) == (plain,)


def test_a_check_that_refuses_for_accuracy_yields_where_all_its_rough_operators_are_allowed() -> None:
    rough = backend(ROUGH, Composite("npu.both", BOTH, check=lambda found: ROUGH))
    for allowed, answer in (({"Log"}, ROUGH), ({"Log", "Exp"}, None)):
        (row,) = Tolerance(frozenset(("npu", name) for name in allowed)).rows(rough)
        assert row.check is not None
        assert row.check(matched()) == answer


def test_a_check_that_refuses_for_another_reason_is_believed() -> None:
    (row,) = Tolerance(frozenset({("npu", "Log"), ("npu", "Exp")})).rows(
        backend(ROUGH, Composite("npu.both", BOTH, check=lambda found: NONE))
    )
    assert row.check is not None
    assert row.check(matched()) == NONE
