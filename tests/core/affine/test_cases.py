"""Extents by cases of their minima and maxima."""

from __future__ import annotations

import math
from itertools import product
from random import Random

import pytest

from graft.core.affine.cases import MOST_EXTREMES, interval, simplified, within
from graft.core.affine.intervals import Interval, Range
from graft.core.affine.text import parsed
from graft.errors import GraftError, ModelError
from graft.runtime.extents import Extent, Operation, Symbol, evaluate

S, T = Symbol("s"), Symbol("t")


def least(left: Extent, right: Extent) -> Operation:
    return Operation("min", left, right)


def read(text: str) -> Extent:
    extent = parsed(text)
    assert extent is not None
    return extent


def drawn(draw: Random, depth: int) -> Extent:
    if depth == 0:
        return draw.choice((S, T, draw.randint(-2, 3)))
    operator = draw.choice(("add", "sub", "min", "max", "floordiv", "mul"))
    return Operation(operator, drawn(draw, depth - 1), drawn(draw, depth - 1))


@pytest.mark.parametrize("seed", range(80))
def test_what_is_said_by_cases_holds_for_every_binding(seed: int) -> None:
    draw = Random(seed)
    ranges: dict[Extent, Range] = {S: Range(0, 4), T: Range(1, 4)}
    try:
        extent = within(drawn(draw, 3), ranges)
    except ModelError:
        return
    low, high = interval(extent, ranges)
    simple = simplified(extent, ranges)
    for s, t in product(range(5), range(1, 5)):
        values = {"s": s, "t": t}
        try:
            value = evaluate(extent, values)
        except GraftError:
            continue
        assert low <= value <= high
        assert evaluate(simple, values) == value


@pytest.mark.parametrize(
    ("extent", "wanted"),
    [
        (Operation("sub", S, least(S, 1)), (0, math.inf)),
        (Operation("sub", least(S, T), S), (-math.inf, 0)),
        (Operation("add", least(S, 4), Operation("max", Operation("sub", 4, S), 0)), (4, 4)),
        (Operation("sub", Operation("max", S, T), least(S, T)), (0, math.inf)),
        (S, (0, math.inf)),
        (5, (5, 5)),
    ],
)
def test_intervals_are_the_hull_of_all_cases(extent: Extent, wanted: Interval) -> None:
    assert interval(extent) == wanted


@pytest.mark.parametrize(
    ("text", "of_s", "of_t", "wanted", "simple"),
    [
        ("min(s, 3)", (0, 40), (0, None), (0, 3), None),
        ("min(-s + 4, -18)", (0, 9), (0, None), (-18, -18), None),
        ("max(s, 2) - 9", (0, 9), (0, None), (-7, 0), None),
        ("-min(s + t, 6)", (0, 40), (0, None), (-6, 0), None),
        ("min(t, 8)//max(t//3, 1)", (0, 9), (1, 3), (1, 3), "t"),
        ("min(s, t)//min(t, 4) - s//t", (0, 9), (1, 3), (-8, 0), None),
        ("min(max(s, 1), s)", (0, 9), (0, None), (0, 9), "s"),
        ("max(min(t, 2), s)", (0, 40), (0, None), (0, 40), None),
        ("min(t, 1) + s//2", (2, 6), (0, 5), (1, 4), None),
        ("min((t - 1)//s, max(s, 5), t)", (2, 6), (0, 5), (-1, 2), None),
        ("-2*t + (-2)//min(t, 4) - 2", (0, 9), (1, 3), (-9, -6), None),
        ("max(s, 4)*min(-s + 2, s)", (0, 40), (0, None), (-1520, 4), None),
        ("3*s*t + 12*t - max(s, 6)", (0, 9), (1, 3), (6, 108), None),
        ("s*min(s, 4) - max(s, 1)*min(s, 3) - min(s, 4)", (0, 9), (0, None), (-3, 5), None),
        ("-2*s + min(t//2, 3) + 4", (0, 40), (0, None), (-76, 7), None),
        ("min(max(min(s, 2), s*t), -s + t, 24)", (2, 6), (0, 5), (-6, 3), "min(max(min(s, 2), s*t), -s + t)"),
        ("-max(s, 2) + max(s, t)//(s*s)", (2, 6), (0, 5), (-6, -1), None),
        ("min(t//4, 1)", (0, 40), (0, None), (0, 1), None),
        ("-min(s, 3) + s//max(t, 1)", (0, 9), (0, 3), (-2, 6), None),
        ("-min(s//2 + s//max(t, 1) - 3, s*(s//2)) - s//2 + 1", (0, 40), (0, None), (-76, 4), None),
        ("min(-((s + 2)//3) - s//max(t, 1) + 3, max(min(s, t), s//2))", (0, 19), (0, 1), (-23, 1), None),
        ("max(-(s//3) + 1, -(s//2) + 3, min(s//2, 6))", (0, 16), (0, None), (2, 6), None),
        (
            "max(-((s + 2)//3) + 3, min(-((s + 2)//3) + 3, max(s//max(t, 1), 2)))",
            (0, 19),
            (0, 1),
            (-4, 3),
            "-((s + 2)//3) + 3",
        ),
        ("min(-(s//2) + 1, s//2, s//max(t, 1))", (0, 40), (0, None), (-19, 0), "min(-(s//2) + 1, s//2)"),
        ("min(s//3, 1) + s//max(t, 1)", (0, 40), (0, None), (0, 41), None),
        ("min(max(-(s//3) + 5, s//max(t, 1)), max(s - 2, s//max(t, 1)))", (0, 19), (0, 1), (0, 19), "s"),
        ("min(-s + t + s//3, max(-(s//4) + 1, -((s + 2)//3) + 3, s//max(t, 1)))", (0, 9), (0, 3), (-6, 3), None),
        ("max(-(s//2) + 2, s//2)", (0, 16), (0, None), (1, 8), None),
        ("max(-(s//4) + 4, min(-(s//4) + 4, s//2))", (0, 9), (0, 3), (2, 4), "-(s//4) + 4"),
        ("max(min(-(s//4) + 3, s//max(t, 1), 2), s)", (0, 19), (0, 1), (0, 19), "s"),
        ("min(-min(s//max(t, 1), 3) + s//4, max(s, 4))", (0, 9), (0, 3), (-3, 0), None),
        ("min(-(s//2) + 1, max(-((s + 2)//3) + 3, -1))", (0, 19), (0, None), (-8, 1), "-(s//2) + 1"),
        ("max(-(s//2) + 5, 2) - min(-(s//2) + 1, s - s//4)", (0, 9), (0, None), (4, 5), None),
        ("min(s//max(t, 1), t*(s//max(t, 1)))", (0, 19), (0, 1), (0, 19), None),
    ],
)
def test_cases_are_as_exact_as_the_ranges_let_them_be(
    text: str, of_s: tuple[int, int], of_t: tuple[int, int | None], wanted: Interval, simple: str | None
) -> None:
    ranges: dict[Extent, Range] = {S: Range(*of_s), T: Range(*of_t)}
    extent = read(text)
    assert interval(extent, ranges) == wanted
    assert simplified(extent, ranges) == read(simple or text)
    numbers = [
        evaluate(extent, {"s": s, "t": t})
        for s, t in product(range(of_s[0], of_s[1] + 1), range(of_t[0], 10 if of_t[1] is None else of_t[1] + 1))
    ]
    assert (min(numbers), max(numbers)) == wanted


def test_an_extent_becomes_the_case_that_it_is_equal_to_in_all() -> None:
    one = least(S, 1)
    nested = Operation("add", Operation("sub", S, least(Operation("add", S, one), 1)), one)
    assert simplified(Operation("max", nested, 0)) == S


def test_an_extent_of_one_extreme_or_too_many_stays_as_it_is() -> None:
    one = Operation("sub", least(S, 1), 1)
    assert simplified(one) is one
    many: Extent = S
    for number in range(MOST_EXTREMES + 1):
        many = Operation("add", many, Operation("sub", least(S, number + 2), least(S, number + 2)))
    assert simplified(many) is many


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("min(s, 8)", "s"),
        ("max(s, 8)", "8"),
        ("min(s, 3)", "min(s, 3)"),
        ("t*s", "2*s"),
        ("s//t", "s//2"),
        ("s + t - 2", "s"),
        ("7", "7"),
        ("u", "u"),
    ],
)
def test_ranges_decide_extremes_and_replace_symbols_of_one_number(text: str, shown: str) -> None:
    assert within(read(text), {S: Range(1, 8), T: Range(2, 2)}) == read(shown)


def test_a_rest_is_what_the_quotient_leaves() -> None:
    assert within(Operation("mod", S, 4), {}) == read("s - 4*(s//4)")
    assert within(Operation("mod", S, T), {S: Range(7, 7), T: Range(4, 4)}) == 3


def test_a_divisor_that_is_zero_is_an_error_alone_and_no_case_among_others() -> None:
    with pytest.raises(ModelError):
        within(Operation("floordiv", S, T), {T: Range(0, 0)})
    divided = Operation("floordiv", 8, least(T, 2))
    assert interval(divided, {T: Range(0, 4)}) == (4, 8)
