"""Sums of products in canonical form, and the operations of their ring."""

from __future__ import annotations

from random import Random

import pytest

from graft.core.affine.polynomials import (
    MOST_TERMS,
    Monomial,
    TooLargeError,
    add,
    divided,
    multiply,
    of_terms,
    shared,
    subtract,
    terms,
    without,
)
from graft.runtime.extents import Extent, Operation, Symbol, evaluate

A, B, C = Symbol("a"), Symbol("b"), Symbol("c")


def drawn(draw: Random) -> dict[Monomial, int]:
    """Return a sum of a few products."""
    monomials = [tuple(sorted(draw.choices((A, B, C), k=draw.randint(0, 3)), key=str)) for _ in range(4)]
    return {monomial: draw.randint(-4, 4) for monomial in monomials}


def number(polynomial: dict[Monomial, int], values: dict[str, int]) -> int:
    total = 0
    for monomial, factor in polynomial.items():
        for atom in monomial:
            factor *= values[str(atom)]
        total += factor
    return total


@pytest.mark.parametrize("seed", range(40))
def test_sums_differences_and_products_have_the_value_of_their_parts(seed: int) -> None:
    draw = Random(seed)
    left, right = drawn(draw), drawn(draw)
    values = {name: draw.randint(-5, 5) for name in "abc"}
    one, other = number(left, values), number(right, values)
    first, second = of_terms(left.items()), of_terms(right.items())
    assert evaluate(first, values) == one
    assert evaluate(add(first, second), values) == one + other
    assert evaluate(subtract(first, second), values) == one - other
    assert evaluate(multiply(first, second), values) == one * other


@pytest.mark.parametrize("seed", range(40))
def test_terms_and_extents_are_two_forms_of_one_sum(seed: int) -> None:
    polynomial = drawn(Random(seed))
    extent = of_terms(polynomial.items())
    assert dict(terms(extent)) == {monomial: factor for monomial, factor in polynomial.items() if factor}
    assert of_terms(terms(extent)) == extent


def test_terms_stand_highest_degree_first_and_then_by_name() -> None:
    extent = of_terms([((), 7), ((B,), 1), ((A, B), 2), ((A,), 3)])
    assert terms(extent) == (((A, B), 2), ((A,), 3), ((B,), 1), ((), 7))
    assert str(extent) == "(((2 * (a * b)) + (3 * a)) + b) + 7"


def test_numbers_are_computed_with_as_they_are() -> None:
    assert (add(2, 3), subtract(2, 3), multiply(2, 3)) == (5, -1, 6)


def test_what_is_added_stands_before_what_is_taken_away() -> None:
    assert str(of_terms([((A,), -2), ((), 1)])) == "1 - (2 * a)"
    assert str(of_terms([((A,), -1), ((B,), -3)])) == "(-1 * a) - (3 * b)"
    assert of_terms([((A,), 0)]) == of_terms([]) == 0
    assert of_terms([((), -5)]) == -5
    assert of_terms([((A,), 1)]) == A


def test_terms_of_operations_that_are_not_canonical() -> None:
    product = Operation("mul", Operation("add", A, 1), Operation("sub", A, 1))
    assert terms(product) == (((A, A), 1), ((), -1))
    quotient = Operation("floordiv", A, 2)
    assert terms(quotient) == (((quotient,), 1),)
    assert terms(0) == ()
    assert terms(3) == (((), 3),)


@pytest.mark.parametrize("seed", range(40))
def test_a_product_is_divided_by_a_factor_and_by_nothing_that_leaves_a_rest(seed: int) -> None:
    draw = Random(seed)
    left, right = of_terms(drawn(draw).items()), of_terms(drawn(draw).items())
    if right == 0:
        right = A
    assert divided(terms(multiply(left, right)), terms(right)) == left
    found = divided(terms(left), terms(right))
    assert found is None or multiply(found, right) == left


@pytest.mark.parametrize(
    ("left", "right", "quotient"),
    [
        (multiply(6, A), 4, None),
        (multiply(6, A), 3, multiply(2, A)),
        (multiply(6, A), -3, multiply(-2, A)),
        (A, B, None),
        (add(multiply(A, A), -1), add(A, 1), subtract(A, 1)),
        (0, A, 0),
    ],
)
def test_division_is_exact_or_none(left: Extent, right: Extent, quotient: Extent | None) -> None:
    assert divided(terms(left), terms(right)) == quotient


def test_factors_are_taken_out_as_often_as_they_stand_there() -> None:
    assert without((A, A, B), (A,)) == (A, B)
    assert without((A, A, B), (A, A)) == (B,)
    assert without((A, B), (A, A)) is None
    assert without((A,), ()) == (A,)
    assert shared((A, A, B), (A, B, B)) == (A, B)
    assert shared((A,), (B,)) == ()


def test_a_sum_of_more_than_the_most_terms_is_given_up() -> None:
    symbols = [((Symbol(f"s{number}"),), 1) for number in range(MOST_TERMS + 1)]
    assert len(terms(of_terms(symbols[:-1]))) == MOST_TERMS
    with pytest.raises(TooLargeError) as caught:
        of_terms(symbols)
    assert str(caught.value) == "an extent has 65 terms, more than 64"
