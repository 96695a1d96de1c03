"""What partitioning asks of a backend, and answers that are none."""

from __future__ import annotations

import pytest

from graft.core.graph.view import NodeView
from graft.core.reject import Reject
from graft.errors import PatternError, PluginError
from graft.partition.placement.partitioner import partition
from graft.patterns import Composite, is_op, wildcard
from graft.patterns.match import Match
from tests.partition.graphs import Toy, everything, small, toy


def test_a_predicate_that_raises_or_answers_nonsense_names_its_backend() -> None:
    def raises(node: NodeView) -> bool:
        raise ValueError("oops")

    with pytest.raises(PluginError) as caught:
        partition(small("y = Relu(x)"), [Toy("npu", answer=raises)])
    assert str(caught.value) == "backend 'npu' raised ValueError when asked for Relu (node 'y'): oops"
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(PluginError) as caught:
        partition(small("y = Relu(x)"), [Toy("npu", answer=lambda node: "yes")])  # type: ignore[arg-type, return-value]
    assert str(caught.value) == (
        "backend 'npu' answered 'yes' for Relu (node 'y'); supports(node) returns True or a Reject"
    )


def test_a_bare_false_is_a_refusal_without_reason() -> None:
    plan = partition(small("y = Relu(x)"), [Toy("npu", answer=lambda node: False), everything()]).plan
    assert plan["y"].reasons["npu"] == Reject("no-pattern", "npu gave no reason")


def test_a_check_that_raises_or_answers_nonsense_names_its_composite() -> None:
    def raises(match: Match) -> bool:
        raise KeyError("w")

    relu = is_op("Relu")(wildcard())
    with pytest.raises(PatternError) as caught:
        partition(small("y = Relu(x)"), [toy("npu", patterns=[Composite("npu.relu", relu, raises)])])
    assert str(caught.value) == (
        "the check of composite 'npu.relu' (backend 'npu') raised KeyError at Relu (node 'y'): 'w'"
    )
    broken = Composite("npu.relu", relu, lambda match: 3)  # type: ignore[arg-type, return-value]
    with pytest.raises(PatternError) as caught:
        partition(small("y = Relu(x)"), [toy("npu", patterns=[broken])])
    assert str(caught.value) == (
        "the check of composite 'npu.relu' (backend 'npu') answered 3 at Relu (node 'y'); "
        "a check returns None or True to accept, or a Reject"
    )
