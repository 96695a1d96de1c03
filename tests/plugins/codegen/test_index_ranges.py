"""Ranges of indices against every number that they are, loop by loop."""

from __future__ import annotations

import itertools
import random

import pytest

from graft.core.operators.definition import build as b
from graft.core.tensor_ir import ir
from graft.core.types import INT64
from graft.plugins.c_source.functions import function_source
from graft.plugins.codegen.index_ranges import IndexRanges

ROW, COLUMN = ir.Variable("i"), ir.Variable("j")


def function(index: ir.Expression, *, extent: int = 5, size: int = 40) -> ir.Function:
    x = ir.Buffer("x", "float32", (b.index(size),))
    y = ir.Buffer("y", "float32", (b.index(size),))
    store = ir.Store(y, (index,), ir.Load(x, (index,)))
    return ir.Function(
        "f", (x, y), 1, ir.For(ROW, b.index(extent), "serial", ir.For(COLUMN, b.index(3), "serial", store))
    )


def drawn(draw: random.Random, depth: int) -> ir.Expression:
    if depth == 0:
        return draw.choice([ROW, COLUMN, b.index(draw.randrange(-4, 9))])
    left, right = drawn(draw, depth - 1), drawn(draw, draw.randrange(depth))
    operator = draw.choice(["add", "sub", "mul", "div", "mod", "min", "max"])
    right = b.index(draw.randrange(1, 7)) if operator in ("div", "mod") else right
    return ir.Binary(operator, left, right)


def valued(node: ir.Expression, i: int, j: int) -> int:
    match node:
        case ir.Constant(value, _):
            return int(value)
        case ir.Variable():
            return i if node is ROW else j
        case ir.Binary(operator, left, right):
            one, other = valued(left, i, j), valued(right, i, j)
            sign = 1 if one >= 0 else -1
            return {"add": one + other, "sub": one - other, "mul": one * other, "min": min(one, other),
                    "max": max(one, other), "div": sign * (abs(one) // (other or 1)),
                    "mod": sign * (abs(one) % (other or 1))}[operator]  # fmt: skip
    raise AssertionError(node)


def test_no_number_is_outside_of_its_range() -> None:
    draw = random.Random(2)
    for _ in range(300):
        index = drawn(draw, draw.randrange(1, 4))
        low, high = IndexRanges(function(index)).of(index) or (0, -1)
        numbers = [valued(index, i, j) for i, j in itertools.product(range(5), range(3))]
        assert low <= min(numbers) and max(numbers) <= high, index


@pytest.mark.parametrize("index", [ir.Variable("n"), ir.Load(ir.Buffer("k", "int64", (b.index(1),)), (b.index(0),))])
def test_what_data_decide_has_no_range_and_neither_has_what_is_computed_from_it(index: ir.Expression) -> None:
    ranges = IndexRanges(function(ROW))
    assert ranges.of(index) is None
    assert ranges.of(ir.Binary("add", index, b.index(1))) is None


def test_what_int64_does_not_hold_has_no_range() -> None:
    large = ir.Binary("mul", ir.Constant(1 << 40, INT64), ir.Constant(1 << 40, INT64))
    assert IndexRanges(function(ROW)).of(ir.Binary("mod", large, b.index(5))) is None


@pytest.mark.parametrize(("size", "is_narrow"), [(40, True), (1 << 20, True), ((1 << 31) + 1, True), (1 << 30, True)])
def test_a_place_counts_not_the_size_of_a_buffer(size: int, is_narrow: bool) -> None:
    assert IndexRanges(function(ROW, size=size)).in_32_bits == is_narrow


def test_indices_have_32_bits_where_that_is_wanted_and_enough() -> None:
    far = ir.Binary("mul", ROW, b.index(1 << 30))
    assert IndexRanges(function(far, size=1 << 33)).in_32_bits is False
    assert "for (int32_t i = 0; i < 5; ++i)" in function_source(function(ROW), narrow=True).text
    for one in (function_source(function(ROW)), function_source(function(far, size=1 << 33), narrow=True)):
        assert "int64_t i = 0; i < 5; ++i" in one.text and "int32_t i" not in one.text
