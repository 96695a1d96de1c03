"""Demands on one value, and what is said where they do not hold."""

from __future__ import annotations

import numpy as np
import pytest

from graft.core.graph.view import ValueView
from graft.errors import PatternError
from graft.patterns import (
    Pattern,
    is_constant,
    is_op,
    wildcard,
)
from graft.patterns.matching import match
from tests.patterns.graphs import graph_of, hits, root


def test_constants_match_by_value_and_by_predicate() -> None:
    body, more = "y = Mul(x, two)", {"more": "<float[1] two = {2}>"}
    assert hits(is_op("Mul")(wildcard(), is_constant()), body, **more) == ["y"]
    assert hits(is_op("Mul")(wildcard(), is_constant(2.0)), body, **more) == ["y"]
    assert hits(is_op("Mul")(wildcard(), is_constant(3.0)), body, **more) is None
    assert hits(is_op("Mul")(wildcard(), is_constant(where=lambda array: array.size == 1)), body, **more) == ["y"]
    assert hits(is_op("Mul")(wildcard(), is_constant(where=lambda array: array.size > 1)), body, **more) is None
    assert hits(is_op("Mul")(is_constant(), is_constant()), body, **more) is None
    assert hits(wildcard() * 2.0, "t = Constant <value = float {2.0}> ()\ny = Mul(x, t)") == ["y"]


def test_predicates_see_the_value() -> None:
    def is_wide(value: ValueView) -> bool:
        shape = value.static_shape
        return shape is not None and shape[-1] > 2

    assert hits(is_op("Relu").where(is_wide), "y = Relu(x)") == ["y"]
    assert hits(is_op("Relu").where(is_wide), "y = Relu(x)", inputs="float[3,2] x", outputs="float[3,2] y") is None


def test_constants_of_several_numbers_match_element_by_element() -> None:
    graph = graph_of("y = Mul(x, c)", more="<float[3] c = {1, 2, 3}>")
    assert match(is_op("Mul")(wildcard(), is_constant([1, 2, 3])), root(graph)) is not None
    assert match(is_op("Mul")(wildcard(), is_constant([1, 2])), root(graph)) is None
    assert match(is_op("Mul")(wildcard(), is_constant(where=lambda c: bool(np.all(c > 0)))), root(graph)) is not None


def big(value: object) -> bool:
    raise KeyError("size")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (
            is_op("Mul")(wildcard().where(big), wildcard()),
            "the predicate 'big' of a pattern raised KeyError for 'x': 'size'",
        ),
        (
            is_op("Mul")(wildcard(), is_constant(where=big)),
            "the predicate 'big' of a pattern raised KeyError for constant 'c': 'size'",
        ),
    ],
)
def test_predicates_that_fail_are_named(pattern: Pattern, message: str) -> None:
    with pytest.raises(PatternError) as caught:
        match(pattern, root(graph_of("y = Mul(x, c)", more="<float[3] c = {1, 2, 3}>")))
    assert str(caught.value) == message
    assert isinstance(caught.value.__cause__, KeyError)
