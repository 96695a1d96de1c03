"""Bounds of extents hold every value, and are as narrow as is said."""

from __future__ import annotations

import math
from itertools import product
from random import Random

import pytest

from graft.core.affine.expressions import canonical
from graft.core.affine.intervals import ANY, Interval, Range, bounds, relevant
from graft.core.affine.text import parsed
from graft.errors import GraftError, ModelError
from graft.runtime.extents import Extent, Operation, Symbol, evaluate

S, T = Symbol("s"), Symbol("t")
INF = math.inf


def read(text: str) -> Extent:
    extent = parsed(text)
    assert extent is not None
    return extent


def drawn(draw: Random, depth: int) -> Extent:
    if depth == 0:
        return draw.choice((S, T, draw.randint(-3, 4)))
    operator = draw.choice(("add", "sub", "mul", "floordiv", "mod", "min", "max"))
    return Operation(operator, drawn(draw, depth - 1), drawn(draw, depth - 1))


@pytest.mark.parametrize("seed", range(120))
def test_bounds_hold_every_value_within_the_ranges(seed: int) -> None:
    draw = Random(seed)
    try:
        extent = canonical(drawn(draw, draw.randint(1, 3)))
    except ModelError:
        return
    low, high = draw.randint(-3, 3), draw.randint(0, 4)
    ranges: dict[Extent, Range] = {S: Range(low, low + high), T: Range(1, 3)}
    least, most = bounds(extent, ranges)
    for s, t in product(range(low, low + high + 1), range(1, 4)):
        try:
            value = evaluate(extent, {"s": s, "t": t})
        except GraftError:  # a divisor is 0
            continue
        assert least <= value <= most


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("7", (7, 7)),
        ("s", (2, 5)),
        ("-s", (-5, -2)),
        ("3*s - 1", (5, 14)),
        ("s*t", (2, INF)),
        ("s - t", (-INF, 4)),
        ("s//2", (1, 2)),
        ("(s + 3)//4", (1, 2)),
        ("4*((s + 3)//4) - s", (0, 3)),
        ("s - 4*(s//4)", (0, 3)),
        ("min(s, t)", (1, 5)),
        ("max(s, t)", (2, INF)),
        ("t*s - 2*t", (0, INF)),
        ("5*t//t", (5, 5)),
        ("(t - 1)//t", (0, 0)),
        ("t*(s//t) - s", (-5, 0)),
        ("u", (0, INF)),
    ],
)
def test_bounds_of_sums_products_and_quotients(text: str, wanted: Interval) -> None:
    assert bounds(read(text), {S: Range(2, 5), T: Range(1)}) == wanted


@pytest.mark.parametrize(
    ("text", "ranges", "wanted"),
    [
        ("s//t", {S: Range(-7, 7), T: Range(2, 3)}, (-4, 3)),
        ("s//t", {S: Range(1, 7), T: Range(-2, 2)}, (-7, 7)),
        ("s//t", {S: Range(-7, 7), T: Range(0, 0)}, (-INF, INF)),
        ("s//t", {S: Range(-7, 7), T: Range(4)}, (-2, 1)),
        ("s//t", {S: Range(1), T: Range(1)}, (0, INF)),
        ("s*t", {S: Range(0, 0), T: Range(0)}, (0, 0)),
        ("s*t", {S: Range(-2, 3), T: Range(-1, 4)}, (-8, 12)),
    ],
)
def test_bounds_with_negative_and_open_ranges(text: str, ranges: dict[Extent, Range], wanted: Interval) -> None:
    assert bounds(read(text), ranges) == wanted


def test_the_range_of_a_sum_narrows_what_the_sum_stands_in() -> None:
    whole = read("s + t")
    ranges: dict[Extent, Range] = {whole: Range(1, 8), S: Range(1, 8)}
    assert bounds(whole, ranges) == (1, 8)
    assert bounds(read("2*s + 2*t"), ranges) == (2, 16)
    assert bounds(read("8 - s - t"), ranges) == (0, 7)
    assert bounds(read("s + t + 3"), ranges) == (4, 11)


def test_relevant_ranges_are_those_of_symbols_and_of_sums_that_share_one() -> None:
    u, v, w = Symbol("u"), Symbol("v"), Symbol("w")
    near, far, apart = read("s + t"), read("t + u"), read("v + w")
    ranges: dict[Extent, Range] = {one: Range(1, 9) for one in (S, T, u, v, w, near, far, apart)}
    assert {one for one, _ in relevant(S, ranges)} == {S, T, u, near, far}
    assert {one for one, _ in relevant(v, ranges)} == {v, w, apart}
    assert relevant(S, {}) == ()
    assert relevant(Symbol("x"), ranges) == ()


def test_a_range_prints_its_ends_and_is_open_above_without_one() -> None:
    assert (str(Range(1, 8)), str(Range(2)), str(ANY)) == ("1..8", "2..", "0..")
    assert (Range(1, 8).interval, Range(2).interval) == ((1, 8), (2, INF))
