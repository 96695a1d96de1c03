"""Linear forms against the numbers that they stand for, lane by lane, and division with remainder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graft.core.affine.linear import Division, Linear, divide

Values = dict[str, int]
NAMES = "abc"
numbers = st.integers(-6, 6)
values = st.fixed_dictionaries(dict.fromkeys(NAMES, numbers))


@st.composite
def forms(draw: st.DrawFn, lanes: int = 4) -> Linear[str]:
    terms = draw(st.dictionaries(st.sampled_from(NAMES), numbers.filter(bool), max_size=3))
    return Linear(draw(numbers), terms, draw(numbers), lanes)


def lanes_of(form: Linear[str], at: Values) -> list[int]:
    fixed = form.constant + sum(factor * at[name] for name, factor in form.terms.items())
    return [fixed + form.lane * lane for lane in range(form.lanes)]


@given(forms(), forms(), numbers, values)
def test_a_sum_of_forms_is_the_sum_of_their_numbers(
    one: Linear[str], other: Linear[str], factor: int, at: Values
) -> None:
    found = one.plus(other, factor)
    assert lanes_of(found, at) == [a + factor * b for a, b in zip(lanes_of(one, at), lanes_of(other, at), strict=True)]
    assert 0 not in found.terms.values()


@given(forms(), numbers, values)
def test_a_multiple_of_a_form_is_that_of_its_numbers(form: Linear[str], factor: int, at: Values) -> None:
    assert lanes_of(form.times(factor), at) == [factor * number for number in lanes_of(form, at)]
    assert form.times(factor).lanes == form.lanes


def test_a_scalar_stands_for_its_broadcast_in_a_vector() -> None:
    vector = Linear(1, {"a": 2}).plus(Linear(0, {}, 3, 8))
    assert (vector.lane, vector.lanes) == (3, 8)
    assert lanes_of(vector, {"a": 5}) == [11 + 3 * lane for lane in range(8)]


@given(forms())
def test_a_form_is_constant_where_all_its_lanes_are_one_number(form: Linear[str]) -> None:
    seen = {tuple(lanes_of(form, dict.fromkeys(NAMES, value))) for value in (0, 1, 5)}
    same = len(seen) == 1 and len(set(next(iter(seen)))) == 1
    assert not form.is_constant or same
    assert form.is_constant == (not form.terms and form.lane == 0)


@given(forms(), st.fixed_dictionaries({name: st.tuples(numbers, numbers).map(sorted) for name in NAMES}), st.data())
def test_an_interval_holds_all_numbers_and_both_its_ends(
    form: Linear[str], bounds: dict[str, list[int]], data: st.DataObject
) -> None:
    found = form.interval(lambda name: (bounds[name][0], bounds[name][1]))
    assert found is not None
    at = {name: data.draw(st.integers(*bounds[name])) for name in NAMES}
    assert all(found[0] <= number <= found[1] for number in lanes_of(form, at))
    ends = [
        number
        for a in bounds["a"] for b in bounds["b"] for c in bounds["c"]
        for number in lanes_of(form, {"a": a, "b": b, "c": c})
    ]  # fmt: skip
    assert found == (min(ends), max(ends))


def test_an_atom_without_bounds_leaves_none() -> None:
    assert Linear(1, {"a": 1}).interval(lambda name: None) is None
    assert Linear[str](1).interval(lambda name: None) == (1, 1)


@given(forms(), st.integers(1, 6), values)
def test_quotient_and_rest_give_the_form_back(form: Linear[str], divisor: int, at: Values) -> None:
    quotient, rest = form.split(divisor)
    parts = zip(lanes_of(quotient, at), lanes_of(rest, at), strict=True)
    assert lanes_of(form, at) == [divisor * one + other for one, other in parts]
    assert 0 <= rest.constant < divisor
    assert all(factor % divisor for factor in rest.terms.values())


def divided(found: Division[str], at: Values) -> list[tuple[int, int]]:
    rows = zip(*(lanes_of(one, at) for one in (found.quotient, found.rest, found.pending)), strict=True)
    return [
        (quotient + pending // found.pending_divisor, rest + found.scale * (pending % found.pending_divisor))
        for quotient, rest, pending in rows
    ]


@given(forms(), st.integers(1, 24), st.fixed_dictionaries({name: st.integers(0, 12) for name in NAMES}), st.data())
def test_a_division_gives_quotient_and_remainder(
    form: Linear[str], divisor: int, most: Values, data: st.DataObject
) -> None:
    found = divide(form, divisor, lambda name: (0, most[name]))
    at = {name: data.draw(st.integers(0, most[name])) for name in NAMES}
    if found is not None:
        assert divided(found, at) == [divmod(number, divisor) for number in lanes_of(form, at)]


def test_what_may_be_negative_or_is_bounded_by_nothing_is_not_divided() -> None:
    assert divide(Linear(-1, {"a": 1}), 4, lambda name: (0, 8)) is None
    assert divide(Linear(0, {"a": 1}), 4, lambda name: None) is None


NONE, A, B = Linear[str](), Linear(0, {"a": 1}), Linear(0, {"b": 1})


@pytest.mark.parametrize(
    ("form", "wanted"),
    [
        (Linear(1, {"a": 1}), Division(NONE, Linear(1, {"a": 1}), NONE, 1, 1)),
        (Linear(2, {"a": 8}), Division(A, Linear(2), NONE, 1, 1)),
        (Linear(0, {"a": 8}), Division(A, NONE, NONE, 1, 1)),
        (Linear(1, {"a": 4}), Division(NONE, Linear(1), A, 2, 4)),
        (Linear(0, {"a": 8, "b": 1}), Division(A, NONE, B, 8, 1)),
        (Linear(8, {"b": 1}), Division(Linear(1), NONE, B, 8, 1)),
        (Linear(24, {"b": -1}), None),
        (Linear(0, {"a": -8, "c": 1}), None),
        (Linear(0, {"b": 1}), None),
    ],
)
def test_divisions_by_8_are_taken_apart_by_what_divides_the_coefficients(
    form: Linear[str], wanted: Division[str] | None
) -> None:
    assert divide(form, 8, lambda name: {"a": (0, 6), "b": (0, 20), "c": (50, 60)}[name]) == wanted
