"""One match, all matches, matches that share no node: how patterns are asked for."""

from __future__ import annotations

import numpy as np

from graft.patterns import (
    is_constant,
    is_op,
    wildcard,
)
from graft.patterns.matching import extract, match, matches
from tests.patterns.graphs import graph_of, names, root


def test_extract_returns_matches_that_share_no_node() -> None:
    graph = graph_of("a = Relu(x)\nb = Relu(a)\nc = Relu(b)\ny = Exp(c)")
    found = extract(is_op("Relu")(is_op("Relu")(wildcard())), graph)
    assert [names(each) for each in found] == [["b", "c"]]
    assert [names(each) for each in extract(is_op("Relu"), graph)] == [["a"], ["b"], ["c"]]


def test_a_check_can_ask_for_another_way_to_match() -> None:
    graph = graph_of("a = Exp(x)\ny = Add(x, a)")
    pattern = is_op("Add")(wildcard().named("left"), wildcard())
    ways = [found["left"].name for found in matches(pattern, root(graph))]
    assert ways == ["x", "a"]
    found = match(pattern, root(graph), check=lambda found: found["left"].name == "a")
    assert found is not None
    assert found["left"].name == "a"


def test_predicates_may_answer_with_numpy_booleans() -> None:
    graph = graph_of("y = Mul(x, c)", more="<float[3] c = {1, 2, 3}>")
    pattern = is_op("Mul")(wildcard().where(lambda x: np.bool_(True)), is_constant(where=lambda c: (c > 0).all()))
    assert match(pattern, root(graph), check=lambda found: np.True_) is not None
    assert match(pattern, root(graph), check=lambda found: np.False_) is None
