"""Extents are evaluated, printed and bounded."""

from __future__ import annotations

import math
from itertools import product
from random import Random

import pytest

from graft.errors import GraftError
from graft.runtime.extents import (
    MAXIMUM,
    Agreement,
    Extent,
    ExtentEquation,
    Operation,
    Symbol,
    agree,
    evaluate,
    limits,
    replaced,
    symbols_of,
)

A, B = Symbol("a"), Symbol("b")
OPERATORS = ("add", "sub", "mul", "floordiv", "mod", "min", "max")


@pytest.mark.parametrize(
    ("operator", "value"),
    [("add", -4), ("sub", -10), ("mul", -21), ("floordiv", -3), ("mod", 2), ("min", -7), ("max", 3)],
)
def test_every_operation_is_that_of_whole_numbers(operator: str, value: int) -> None:
    assert evaluate(Operation(operator, A, B), {"a": -7, "b": 3}) == value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("extent", "message"),
    [
        (A, "dimension 'a' has no value; give it one"),
        (Operation("floordiv", 1, 0), "extent '1 // 0' divides by zero"),
        (Operation("mod", 1, Operation("sub", 2, 2)), "extent '1 % (2 - 2)' divides by zero"),
        (Operation("add", MAXIMUM, 1), f"extent '{MAXIMUM} + 1' is {MAXIMUM + 1}, beyond 2**62"),
        (Operation("sub", -MAXIMUM, 1), f"extent '-{MAXIMUM} - 1' is {-MAXIMUM - 1}, beyond 2**62"),
    ],
)
def test_what_has_no_value_is_an_error(extent: Extent, message: str) -> None:
    with pytest.raises(GraftError) as caught:
        evaluate(extent, {})
    assert str(caught.value) == message
    assert evaluate(Operation("add", MAXIMUM - 1, 1), {}) == MAXIMUM


def test_operations_inside_others_are_printed_in_brackets_but_for_extremes() -> None:
    extent = Operation("sub", Operation("mul", 2, A), Operation("min", Operation("add", A, 1), B))
    assert str(extent) == "(2 * a) - min(a + 1, b)"
    assert str(Operation("floordiv", A, Operation("mod", B, 3))) == "a // (b % 3)"


def test_symbols_are_told_from_left_to_right_once_for_each_place() -> None:
    assert list(symbols_of(Operation("add", Operation("mul", B, A), Operation("max", A, 3)))) == [B, A, A]
    assert list(symbols_of(4)) == []


@pytest.mark.parametrize(
    ("kind", "pairs"),
    [
        ("equal", {(2, 2)}),
        ("broadcast", {(2, 2), (1, 2), (2, 1)}),
        ("expand", {(2, 2), (1, 2)}),
        ("at most", {(2, 2), (1, 2), (2, 3)}),
    ],
)
def test_numbers_agree_as_nodes_demand(kind: Agreement, pairs: set[tuple[int, int]]) -> None:
    assert {pair for pair in ((2, 2), (1, 2), (2, 1), (2, 3), (3, 2)) if agree(kind, *pair)} == pairs


def test_a_refusal_has_both_numbers_in_place() -> None:
    equation = ExtentEquation(A, B, "equal", ("rows ", " are not ", " columns"))
    assert equation.refusal(2, 3) == "rows 2 are not 3 columns"


@pytest.mark.parametrize("seed", range(150))
def test_limits_hold_every_value(seed: int) -> None:
    draw = Random(seed)

    def drawn(depth: int) -> Extent:
        if depth == 0:
            return draw.choice((A, B, draw.randint(-3, 4)))
        return Operation(draw.choice(OPERATORS), drawn(depth - 1), drawn(depth - 1))  # type: ignore[arg-type]

    extent = drawn(draw.randint(1, 3))
    low, high = limits(extent, {"a": (0, 5), "b": (1, 3)})
    for a, b in product(range(6), range(1, 4)):
        try:
            assert low <= evaluate(extent, {"a": a, "b": b}) <= high
        except GraftError:  # it divides by zero there
            continue


@pytest.mark.parametrize(
    ("extent", "wanted"),
    [
        (5, (5, 5)),
        (A, (0, math.inf)),
        (Operation("add", A, B), (1, math.inf)),
        (Operation("sub", B, A), (-math.inf, 3)),
        (Operation("mul", A, 0), (0, 0)),
        (Operation("mul", B, -2), (-6, -2)),
        (Operation("floordiv", A, B), (0, math.inf)),
        (Operation("floordiv", B, 2), (0, 1)),
        (Operation("floordiv", 7, Operation("add", A, 2)), (0, 3)),
        (Operation("floordiv", B, Operation("sub", A, 1)), (-math.inf, math.inf)),
        (Operation("mod", A, 4), (0, 3)),
        (Operation("mod", A, Operation("sub", 0, B)), (-math.inf, math.inf)),
        (Operation("min", A, B), (0, 3)),
        (Operation("max", A, B), (1, math.inf)),
    ],
)
def test_limits_of_each_operation(extent: Extent, wanted: tuple[float, float]) -> None:
    assert limits(extent, {"a": (0, math.inf), "b": (1, 3)}) == wanted


def test_symbols_are_replaced_and_the_rest_is_as_written() -> None:
    extent = Operation("add", Operation("mul", Symbol("a"), 2), Symbol("b"))
    other = Operation("max", Symbol("b"), 1)
    assert replaced(extent, {"a": other}) == Operation("add", Operation("mul", other, 2), Symbol("b"))
    assert replaced(7, {"a": 1}) == 7
    for a in range(4):
        assert evaluate(replaced(extent, {"a": other}), {"b": a}) == evaluate(extent, {"a": max(a, 1), "b": a})
