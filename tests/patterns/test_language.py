"""How patterns are put together, and mistakes in doing so."""

from __future__ import annotations

import pytest

from graft.errors import PatternError
from graft.patterns import (
    is_op,
    wildcard,
)
from tests.patterns.graphs import hits


def test_arithmetic_builds_operators() -> None:
    x = wildcard()
    body = "a = Add(x, x)\nb = Pow(a, x)\nc = Neg(b)\nd = MatMul(c, x)\ny = Div(d, x)"
    square = {"inputs": "float[3,3] x", "outputs": "float[3,3] y"}
    assert hits((-((x + x) ** x) @ x) / x, body, **square) == ["a", "b", "c", "d", "y"]
    numbers = {"more": "<float one = {1}, float two = {2}>"}
    assert hits(1.0 - 2.0 * wildcard(), "a = Mul(two, x)\ny = Sub(one, a)", **numbers) == ["a", "y"]
    assert hits(2.0 / (1.0 + wildcard()), "a = Add(one, x)\ny = Div(two, a)", **numbers) == ["a", "y"]
    assert hits(wildcard() - 1.0, "y = Sub(x, one)", **numbers) == ["y"]


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


def test_a_wildcard_is_redirected_once() -> None:
    alias = wildcard().redirect_to(is_op("Relu"))
    with pytest.raises(PatternError) as caught:
        alias.redirect_to(is_op("Exp"))
    assert str(caught.value) == "this wildcard is already redirected; use a new wildcard() for another pattern"
