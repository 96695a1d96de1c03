"""Floor divisions, minima and maxima become sums where they can."""

from __future__ import annotations

from random import Random

import pytest

from graft.core.affine.atoms import extreme, flat, floordiv, operands
from graft.core.affine.intervals import Range
from graft.core.affine.polynomials import MOST_TERMS, TooLargeError, add, multiply
from graft.core.affine.text import parsed, text
from graft.errors import GraftError, ModelError
from graft.runtime.extents import Extent, Operation, Symbol, evaluate

A, B = Symbol("a"), Symbol("b")


def read(source: str) -> Extent:
    extent = parsed(source)
    assert extent is not None
    return extent


@pytest.mark.parametrize(
    ("left", "right", "shown"),
    [
        ("7", "2", "3"),
        ("-7", "2", "-4"),
        ("batch*seq*64", "batch*8", "8*seq"),
        ("4*a + 8", "4", "a + 2"),
        ("4*a + 9", "4", "a + 2"),
        ("5*a", "4", "a + a//4"),
        ("3*h", "4", "h - (h + 3)//4"),
        ("2*a + 3", "4", "(a + 1)//2"),
        ("a", "-2", "a//2 - a"),
        ("a//3 + 2", "5", "(a + 6)//15"),
        ("b*s + s - 1", "s", "b + 1 - 1"),
        ("6*a", "4*b", "(3*a)//(2*b)"),
        ("a*b + a", "a*c", "(b + 1)//c"),
        ("a", "b", "a//b"),
    ],
)
def test_quotients_take_out_what_divides(left: str, right: str, shown: str) -> None:
    assert text(floordiv(read(left), read(right))) == text(read(shown))


@pytest.mark.parametrize("seed", range(60))
def test_a_quotient_has_the_value_of_the_division(seed: int) -> None:
    draw = Random(seed)

    def linear() -> Extent:
        return add(add(multiply(draw.randint(-4, 6), A), multiply(draw.randint(-2, 3), B)), draw.randint(-9, 9))

    left, right = linear(), draw.choice((draw.choice((-5, -2, 2, 3, 4, 6, 8)), linear(), multiply(3, A)))
    if right == 0:
        right = A
    found = floordiv(left, right)
    for _ in range(30):
        values = {"a": draw.randint(0, 12), "b": draw.randint(0, 12)}
        divisor = evaluate(right, values)
        if divisor:
            try:
                value = evaluate(found, values)
            except GraftError:
                continue
            assert value == evaluate(left, values) // divisor


def test_a_division_by_zero_is_an_error() -> None:
    with pytest.raises(ModelError) as caught:
        floordiv(A, 0)
    assert str(caught.value) == "extent 'a' is divided by zero"


def test_operands_that_are_never_the_least_or_greatest_are_left_out() -> None:
    assert extreme("min", (A, add(A, 1)), {}) == A
    assert extreme("max", (A, add(A, 1)), {}) == add(A, 1)
    assert extreme("min", (add(A, 1), A, 3, 5), {}) == Operation("min", A, 3)
    assert extreme("max", (A, -1), {}) == A
    assert extreme("min", (A, A), {}) == A


def test_ranges_decide_and_symbols_without_them_are_kept() -> None:
    assert extreme("min", (A, 8), {A: Range(1, 8)}) == A
    assert extreme("max", (A, 8), {A: Range(1, 8)}) == 8
    assert extreme("min", (A, 8), {A: Range(1, 9)}) == Operation("min", A, 8)
    assert extreme("min", (A, B), {A: Range(0, 2), B: Range(2, 4)}) == A
    assert extreme("min", (B, A), {}) == Operation("min", A, B)


def test_nested_extremes_of_one_kind_are_flat_and_numbers_come_last() -> None:
    nested = extreme("min", (3, Operation("min", B, A)), {})
    assert operands(nested) == (A, B, 3)  # type: ignore[arg-type]
    assert list(flat("min", nested)) == [A, B, 3]
    assert list(flat("max", nested)) == [nested]
    assert operands(Operation("floordiv", A, 2)) == (A, 2)


def test_too_many_operands_are_given_up() -> None:
    names = [Symbol(f"s{number:02}") for number in range(MOST_TERMS + 1)]
    assert len(list(flat("min", extreme("min", names[:-1], {})))) == MOST_TERMS
    with pytest.raises(TooLargeError) as caught:
        extreme("min", names, {})
    assert str(caught.value) == "an extent is the min of 65 others, more than 64"
