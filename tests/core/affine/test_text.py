"""The text of a dimension is read back as the extent that it was."""

from __future__ import annotations

from random import Random

import pytest

from graft.core.affine.expressions import canonical
from graft.core.affine.text import MOST_DIGITS, MOST_TOKENS, parsed, text
from graft.errors import ModelError
from graft.runtime.extents import Extent, Operation, Symbol

A, B = Symbol("a"), Symbol("b")


def drawn(draw: Random, depth: int) -> Extent:
    if depth == 0:
        return draw.choice((A, B, draw.randint(-3, 9)))
    operator = draw.choice(("add", "sub", "mul", "floordiv", "mod", "min", "max"))
    return Operation(operator, drawn(draw, depth - 1), drawn(draw, depth - 1))


@pytest.mark.parametrize("seed", range(80))
def test_a_canonical_extent_is_read_back(seed: int) -> None:
    try:
        extent = canonical(drawn(Random(seed), 3))
    except ModelError:
        return
    assert parsed(text(extent)) == extent


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("7", "7"),
        ("-7", "-7"),
        ("seq", "seq"),
        ("min", None),
        ("batch.size + 1", "batch.size + 1"),
        ("2*seq + past - 1", "past + 2*seq - 1"),
        ("(w - 1)//2 + 1", "(w - 1)//2 + 1"),
        ("1 - a", "-a + 1"),
        ("- a*b", "-a*b"),
        ("3 - 2*a", "-2*a + 3"),
        ("2 * ((a+1)//b)", "2*((a + 1)//b)"),
        ("a % 4", "a - 4*(a//4)"),
        ("min(a, b, 3)", "min(a, b, 3)"),
        ("max(a//2, b)", "max(b, a//2)"),
        ("min(a, b)//2", "min(a, b)//2"),
        ("a//b//2", "a//b//2"),
        ("a//(-3)", "-a + (2*a)//3"),
        ("(a)", "a"),
        ("-(a - b)", "-a + b"),
        ("  a +  b  ", "a + b"),
        ("7//2*3", "9"),
        ("7 - 2 - 1", "4"),
        ("a b", None),
        ("a +", None),
        ("(a", None),
        ("a)", None),
        ("min()", None),
        ("min(a", None),
        ("a/b", None),
        ("_a + 1", "1 + _a"),
        ("a//0", None),
        ("", None),
        ("1.5", None),
        ("a, b", None),
        ("3a", None),
    ],
)
def test_what_a_text_says_and_what_says_nothing(source: str, shown: str | None) -> None:
    found = parsed(source)
    assert (found is None) == (shown is None)
    if shown is not None:
        assert found == parsed(shown)


@pytest.mark.parametrize(
    ("extent", "shown"),
    [
        (-3, "-3"),
        (A, "a"),
        (Operation("mul", -1, A), "-a"),
        (Operation("sub", 1, A), "-a + 1"),
        (Operation("mul", 2, Operation("floordiv", A, 2)), "2*(a//2)"),
        (Operation("mul", -1, Operation("floordiv", A, 2)), "-(a//2)"),
        (Operation("floordiv", Operation("add", A, 1), 2), "(a + 1)//2"),
        (Operation("floordiv", Operation("min", A, B), B), "min(a, b)//b"),
        (Operation("floordiv", -1, A), "(-1)//a"),
        (Operation("mod", Operation("mod", A, B), 3), "(a%b)%3"),
        (Operation("min", A, Operation("min", B, 3)), "min(a, b, 3)"),
        (Operation("floordiv", A, Operation("mul", A, B)), "a//(a*b)"),
        (Operation("mul", A, Operation("floordiv", B, 2)), "a*(b//2)"),
    ],
)
def test_an_extent_is_written_with_the_brackets_that_it_needs(extent: Extent, shown: str) -> None:
    assert text(extent) == shown


def test_numbers_and_texts_are_read_up_to_a_length() -> None:
    assert parsed("9" * MOST_DIGITS) == int("9" * MOST_DIGITS)
    assert parsed("9" * (MOST_DIGITS + 1)) is None
    assert parsed("1" + "+1" * (MOST_TOKENS // 2 - 1)) == MOST_TOKENS // 2
    assert parsed("1" + "+1" * (MOST_TOKENS // 2)) is None
    assert parsed("(" * 5000) is None
