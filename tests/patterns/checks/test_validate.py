"""Patterns that can never match are refused."""

from __future__ import annotations

import pytest

from graft.errors import PatternError
from graft.patterns import (
    Pattern,
    absent,
    is_constant,
    is_input,
    is_op,
    wildcard,
)
from graft.patterns.checks.validate import validate
from graft.patterns.matching import match
from tests.patterns.graphs import graph_of, root

CHAIN = "a = Relu(x)\ny = Exp(a)"


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (is_op("Cnov"), "the pattern names an unknown operator 'Cnov'; did you mean 'Conv'?"),
        (is_op("Conv").has_attr(stride=2), "Conv has no attribute 'stride'; did you mean 'strides'?"),
        (is_op("Relu")(wildcard(), wildcard()), "the pattern gives Relu 2 inputs, it has at most 1"),
        (is_op("Relu")[1], "the pattern asks for output 1 of Relu, which has at most 1"),
    ],
)
def test_a_pattern_that_can_never_match_is_an_error(pattern: Pattern, message: str) -> None:
    with pytest.raises(PatternError) as caught:
        match(pattern, root(graph_of(CHAIN)))
    assert str(caught.value) == message


def test_a_recursive_pattern_without_an_operator_is_an_error() -> None:
    alias = wildcard()
    alias.redirect_to(alias | is_op("Relu"))
    with pytest.raises(PatternError) as caught:
        match(alias, root(graph_of(CHAIN)))
    assert str(caught.value) == "a recursive pattern leads to itself without an operator in between; it never ends"


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (
            is_op("MatMul")(wildcard()),
            "the pattern gives MatMul 1 inputs, it has at least 2; close the arguments with ... for more",
        ),
        (is_op("MatMul")(wildcard(), absent()), "the pattern wants input 1 of MatMul absent, which is never left out"),
        (is_op("Conv").has_attr(group="1"), "attribute 'group' of Conv is of type int, which never equals '1'"),
        (is_op("Conv").has_attr(auto_pad=1), "attribute 'auto_pad' of Conv is of type string, which never equals 1"),
        (
            is_constant().has_attr(axis=1),
            "has_attr(axis=...) stands behind is_constant(), which has no attributes: no node computes it",
        ),
        (
            is_op("Relu")(is_input("x").has_attr(axis=1)),
            'has_attr(axis=...) stands behind is_input("x"), which has no attributes: no node computes it',
        ),
        (is_op("Cos").has_dtype("int8"), "output 0 of Cos is never int8; it is bfloat16, float16, float32, float64"),
        (is_op("Relu") & is_op("Exp"), "the pattern demands Relu and Exp of one value, which no node is"),
        (
            wildcard().has_dtype("float32").has_dtype("int8"),
            "the pattern demands of one value the element types float32 and int8; it has one",
        ),
        (
            wildcard().has_rank(2, 3).named("x").has_shape(1, None, "n", 4),
            "the pattern demands of one value the ranks 2 or 3 and 4; it has one",
        ),
        (
            is_op("Conv").has_attr(group=1).has_attr(group=2),
            "the pattern demands attribute group of one node to be 1 and 2",
        ),
    ],
)
def test_demands_that_nothing_meets_are_refused(pattern: Pattern, message: str) -> None:
    with pytest.raises(PatternError) as caught:
        validate(pattern)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "pattern",
    [
        is_op("Clip")(wildcard(), absent(), wildcard()),
        is_op("Squeeze")(wildcard()),
        is_op("Conv", "Gelu")(wildcard()),
        is_op("Conv").has_attr(strides=2, dilations=[1, 1]),
        is_op("Gelu").has_attr(approximate="none"),
        is_op("Add").has_dtype("custom[posit]16"),
        (is_op("Relu") | is_op("Exp")) & is_op("Exp"),
        is_op("Conv").has_attr(group=1) & is_op("Conv").has_attr(group=lambda group: group < 3),
    ],
)
def test_demands_that_something_meets_are_taken(pattern: Pattern) -> None:
    validate(pattern)
