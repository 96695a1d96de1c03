"""What a match tells of the nodes and values that it found."""

from __future__ import annotations

import random

import pytest

from graft.core.graph.view import NodeView, ValueView
from graft.errors import PatternError
from graft.patterns import (
    is_op,
    wildcard,
)
from graft.patterns.match import sort_nodes
from graft.patterns.matching import match
from tests.patterns.graphs import graph_of, root


def test_captures_have_names() -> None:
    pattern = is_op("Add")(wildcard().named("a"), is_op("Relu").named("b"))
    found = match(pattern, root(graph_of("r = Relu(x)\ny = Add(x, r)")))
    assert found is not None
    assert (found["a"].name, found["b"].name, found.root.name) == ("x", "r", "y")
    assert found.node("b").op_type == "Relu"
    assert "a" in found
    with pytest.raises(PatternError) as caught:
        found["c"]
    assert str(caught.value) == "the pattern captures no 'c'; it captures a, b"
    with pytest.raises(PatternError) as caught:
        found.node("a")
    assert str(caught.value) == "'a' is an input or a constant here: no node produces it"


def test_a_capture_of_a_part_that_is_not_there_is_none() -> None:
    pattern = is_op("Exp")(wildcard() | is_op("Relu")(wildcard().named("inner")))
    found = match(pattern, root(graph_of("y = Exp(x)")))
    assert found is not None
    assert found.get("inner") is None
    assert "inner" not in found
    with pytest.raises(PatternError) as caught:
        found["inner"]
    assert str(caught.value) == (
        "'inner' is not bound in this match of Exp (node 'y'); ask match.get('inner') for optional parts"
    )
    with pytest.raises(PatternError) as caught:
        found.get("iner")
    assert str(caught.value) == "the pattern captures no 'iner'; did you mean 'inner'?"


def test_all_values_of_a_name_are_told_and_of_one_pattern_object_its_node_or_value() -> None:
    relu, x = is_op("Relu"), wildcard()
    pattern = is_op("Add")(relu, x).named("sum")
    found = match(pattern, root(graph_of("r = Relu(x)\ny = Add(r, x)")))
    assert found is not None
    assert [value.name for value in found.all("sum")] == ["y"]
    node, value = found.of(relu), found.of(x)
    assert isinstance(node, NodeView)
    assert isinstance(value, ValueView)
    assert (node.name, value.name) == ("r", "x")
    assert found.of(wildcard()) is None
    assert str(found) == "Relu (node 'r') -> Add (node 'y')"


def test_a_pattern_without_names_says_that_it_captures_nothing() -> None:
    found = match(is_op("Relu"), root(graph_of("y = Relu(x)")))
    assert found is not None
    with pytest.raises(PatternError) as caught:
        found.all("x")
    assert str(caught.value) == "the pattern captures no 'x'; it captures nothing"


def test_nodes_are_sorted_producers_first_whatever_order_they_come_in() -> None:
    graph = graph_of("a = Relu(x)\nb = Exp(a)\nc = Tanh(a)\nd = Add(c, b)\ny = Add(d, a)")
    nodes = list(graph)
    draw = random.Random(0)
    for _ in range(20):
        draw.shuffle(nodes)
        assert [node.name for node in sort_nodes(nodes)] == ["a", "c", "b", "d", "y"]


def test_nodes_apart_are_sorted_by_the_names_of_their_last_ones() -> None:
    graph = graph_of("m = Relu(x)\nz = Exp(m)\nb = Tanh(x)\ny = Add(z, b)")
    nodes = [node for node in graph if node.name != "y"]
    assert [node.name for node in sort_nodes(nodes)] == ["b", "m", "z"]
    assert [node.name for node in sort_nodes([node for node in nodes if node.name != "m"])] == ["b", "z"]
