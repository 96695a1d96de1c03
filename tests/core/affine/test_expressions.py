"""The algebra of extents: canonical forms keep the value, equality is decided or open, texts are read back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.affine.expressions import (
    Range,
    TooLargeError,
    add,
    canonical,
    ceildiv,
    equal,
    floordiv,
    interval,
    maximum,
    minimum,
    modulo,
    multiply,
    narrowed,
    substituted,
    subtract,
)
from graft.core.affine.text import parsed, text
from graft.errors import GraftError, ModelError
from graft.runtime.extents import Extent, Operation, Symbol, evaluate

A, B, C = Symbol("a"), Symbol("b"), Symbol("c")
OPERATORS = ("add", "sub", "mul", "floordiv", "mod", "min", "max")
ATOMS = st.one_of(st.integers(-7, 7), st.sampled_from([A, B, C]))
EXTENTS: st.SearchStrategy[Extent] = st.recursive(
    ATOMS, lambda inner: st.builds(Operation, st.sampled_from(OPERATORS), inner, inner), max_leaves=7
)
VALUES = st.fixed_dictionaries({name: st.sampled_from([0, 1, 2, 3, 5, 8, 64]) for name in "abc"})


def value_of(extent: Extent, values: dict[str, int]) -> int | None:
    try:
        return evaluate(extent, values)
    except GraftError:
        return None


@settings(max_examples=400, deadline=None)
@given(EXTENTS, st.lists(VALUES, min_size=1, max_size=4))
def test_the_canonical_form_has_the_value_of_the_expression_wherever_that_has_one(
    extent: Extent, bindings: list[dict[str, int]]
) -> None:
    try:
        form = canonical(extent)
    except (TooLargeError, ModelError):
        return
    for values in bindings:
        expected = value_of(extent, values)
        assert expected is None or value_of(form, values) == expected, (text(form), values)


@settings(max_examples=300, deadline=None)
@given(EXTENTS)
def test_a_text_is_read_back_as_the_same_extent(extent: Extent) -> None:
    try:
        form = canonical(extent)
    except (TooLargeError, ModelError):
        return
    assert parsed(text(form)) == form


@settings(max_examples=300, deadline=None)
@given(EXTENTS, VALUES)
def test_a_value_lies_in_the_interval(extent: Extent, values: dict[str, int]) -> None:
    try:
        form = canonical(extent)
    except (TooLargeError, ModelError):
        return
    found = value_of(form, values)
    low, high = interval(form, {A: Range(0, 64), B: Range(0), C: Range(0, 64)})
    assert found is None or low <= found <= high


@settings(max_examples=300, deadline=None)
@given(EXTENTS, EXTENTS, VALUES)
def test_what_is_said_to_be_equal_is_and_what_is_said_to_differ_does(
    left: Extent, right: Extent, values: dict[str, int]
) -> None:
    try:
        one, other = canonical(left), canonical(right)
        answer = equal(one, other)
    except (TooLargeError, ModelError):
        return
    pair = value_of(one, values), value_of(other, values)
    if answer is not None and None not in pair:
        assert (pair[0] == pair[1]) is answer


@settings(max_examples=200, deadline=None)
@given(EXTENTS, VALUES)
def test_ranges_narrow_an_extent_without_changing_it(extent: Extent, values: dict[str, int]) -> None:
    ranges = {Symbol(name): Range(max(0, value - 1), value + 2) for name, value in values.items()}
    try:
        form = canonical(extent)
        narrow = narrowed(form, ranges)
    except (TooLargeError, ModelError):
        return
    expected = value_of(form, values)
    assert expected is None or value_of(narrow, values) == expected


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("(w - 1)//2 + 1", "(w + 1)//2"),
        ("batch*seq*768//(batch*12)", "64*seq"),
        ("(seq + past)*64*b//(past + seq)", "64*b"),
        ("min(seq, 5, seq + 1)", "min(seq, 5)"),
        ("max(0, 2*h)", "2*h"),
        ("(2*x + 1)//4", "x//2"),
        ("x//2//3", "x//6"),
        ("((x + 1)//2 + 1)//2", "(x + 3)//4"),
        ("(3*h)//4", "h - (h + 3)//4"),
        ("h + (4 - h%4)%4", "4*((h + 3)//4)"),
        ("x%1", "0"),
        ("(b*seq + seq - 1)//seq", "b"),
        ("(5*b*seq + 3)//(2*seq)", "2*b + (b*seq + 3)//(2*seq)"),
        ("seq - seq", "0"),
        ("2*(seq//2)", "2*(seq//2)"),
        ("b*(h*w)", "b*h*w"),
    ],
)
def test_expressions_are_simplified_as_shapes_need_it(source: str, shown: str) -> None:
    extent = parsed(source)
    assert extent is not None
    assert text(extent) == shown


@pytest.mark.parametrize("source", ["", "a b", "batch size", "a +", "(a", "a.b c", "f(a)", "1a", "a//0", "é-"])
def test_what_is_no_expression_is_not_read(source: str) -> None:
    assert parsed(source) is None


def test_equality_is_open_where_it_depends_on_the_symbols() -> None:
    assert equal(A, multiply(2, A)) is None  # true at 0
    assert equal(A, add(A, 1)) is False
    assert equal(add(A, B), add(B, A)) is True
    assert equal(A, -1) is False
    assert equal(A, 0) is None
    assert equal(A, 0, {A: Range(1, 5)}) is False


def test_substitution_gives_numbers_where_all_symbols_have_one() -> None:
    extent = maximum(subtract(floordiv(A, 2), B), modulo(A, 3), 1)
    assert substituted(extent, {"a": 9, "b": 1}) == 3
    assert substituted(minimum(A, B), {"a": 4}) == minimum(4, B)


def test_rounding_up_is_rounding_down_of_the_sum() -> None:
    assert text(ceildiv(A, 2)) == "(a + 1)//2"


def test_a_sum_of_too_many_products_is_given_up() -> None:
    wide = add(*(Symbol(f"s{number}") for number in range(12)))
    with pytest.raises(TooLargeError) as caught:
        multiply(wide, wide)
    assert str(caught.value) == "an extent has 78 terms, more than 64"


def test_division_by_zero_is_an_error() -> None:
    with pytest.raises(ModelError) as caught:
        floordiv(A, 0)
    assert str(caught.value) == "extent 'a' is divided by zero"
