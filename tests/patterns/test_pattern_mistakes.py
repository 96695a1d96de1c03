"""Patterns that are mistakes: they can never match, or what they ask fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graft.errors import PatternError
from graft.patterns import (
    Pattern,
    is_constant,
    is_op,
    wildcard,
)
from graft.patterns.matching import match
from tests.patterns.graphs import graph_of, root

ROWS = {"inputs": "float[seq,8] x", "outputs": "float[seq,8] y"}
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


def test_mistakes_in_building_a_pattern_are_errors() -> None:
    for build, message in (
        (lambda: is_op(), "is_op takes one or more operator names, got ()"),
        (lambda: is_op("Relu")(wildcard())(wildcard()), "the pattern of Relu already has arguments; call it once"),
        (
            lambda: is_op("Add")(..., wildcard()),
            "'...' stands for the inputs that follow, so it can only be the last argument",
        ),
        (
            lambda: is_op("Add")(wildcard(), 2.0),  # type: ignore[arg-type]
            "an argument of the pattern of Add is 2.0, not a pattern; "
            "write wildcard() for any value, is_constant(2.0) for a number, absent() for none",
        ),
        (lambda: is_op("Split")[-1], "outputs are counted from 0, got -1"),
    ):
        with pytest.raises(PatternError) as caught:
            build()
        assert str(caught.value) == message


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


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda p: p.has_dtype("FLOAT"), "has_dtype: 'FLOAT' is not an element type; did you mean 'float32'?"),
        (lambda p: p.has_dtype("flaot16"), "has_dtype: 'flaot16' is not an element type; did you mean 'float16'?"),
        (lambda p: p.has_shape((1, 3)), "has_shape takes the dimensions one by one; write has_shape(1, 3)"),
        (
            lambda p: p.has_shape(1.5),
            "has_shape: 1.5 is not a dimension; write a number, a name, an expression of names, None for any "
            "or ... for several",
        ),
        (lambda p: p.has_rank("3"), "has_rank takes one or more numbers, as in has_rank(3, 4), got '3'"),
        (lambda p: p.where(3), "where takes a function of a value, got 3"),
    ],
)
def test_demands_that_can_never_hold_are_errors(build: Callable[[Pattern], Pattern], message: str) -> None:
    with pytest.raises(PatternError) as caught:
        build(wildcard())
    assert str(caught.value) == message
