"""The algebra against brute force: what it says of an extent holds for every binding, negative numbers among them."""

import itertools
import math
from random import Random

import pytest

from graft.core.affine.expressions import Range, canonical, equal, interval, narrowed
from graft.core.affine.text import parsed, text
from graft.errors import GraftError, ModelError
from graft.runtime.extents import Extent, ExtentOperator, Operation, Symbol, evaluate, limits

NAMES = "abc"
OPERATORS: tuple[ExtentOperator, ...] = ("add", "sub", "mul", "floordiv", "mod", "min", "max")
WEIGHTS = (3, 3, 1, 2, 1, 3, 3)
VALUES = (0, 1, 2, 3, 5, 9)


def drawn(random: Random, depth: int) -> Extent:
    """Return a random extent: numbers are negative at times, divisors anything."""
    if depth == 0 or random.random() < 0.15:
        return random.choice([*map(Symbol, NAMES), *map(Symbol, NAMES), random.randint(-4, 8), random.randint(0, 4)])
    operator = random.choices(OPERATORS, WEIGHTS)[0]
    return Operation(operator, drawn(random, depth - 1), drawn(random, depth - 1))


def value_of(extent: Extent, binding: dict[str, int]) -> int | None:
    try:
        return evaluate(extent, binding)
    except GraftError:
        return None


def check(extent: Extent, bounds: dict[str, tuple[int, int]]) -> None:
    """Compare all that is said of an extent, anywhere and within bounds, with its values."""
    try:
        form = canonical(extent)
    except ModelError:
        return
    ranges = {Symbol(name): Range(*pair) for name, pair in bounds.items()}
    said = {
        "interval": interval(form), "interval within": interval(form, ranges),
        "limits": limits(form, dict(bounds)),
    }  # fmt: skip
    narrow, is_defined = narrowed(form, ranges), False
    for numbers in itertools.product(VALUES, repeat=len(NAMES)):
        binding = dict(zip(NAMES, numbers, strict=True))
        expected = value_of(extent, binding)
        if expected is None:
            continue
        is_defined = True
        inside = all(low <= binding[name] <= high for name, (low, high) in bounds.items())
        assert value_of(form, binding) == expected, (text(form), binding)
        assert not inside or value_of(narrow, binding) == expected, (text(form), text(narrow), binding)
        for what, (low, high) in said.items():
            assert low <= expected <= high or not (inside or what == "interval"), (what, text(form), binding)
    assert equal(extent, form) in (True, None) or not is_defined  # nowhere defined, it is whatever one says of it


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 200))])
def test_what_is_said_of_random_extents_holds_for_every_binding(seed: int) -> None:
    random = Random(seed)
    for _ in range(50):
        bounds = {name: (low := random.choice([0, 0, 1, 2]), low + random.choice([0, 1, 4])) for name in NAMES}
        check(drawn(random, random.choice([2, 3, 3, 4])), bounds)


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("max(s - min(s + min(s, 1), 1) + min(s, 1), 0)", "s"),
        ("min(s, 4*((s + 3)//4))", "s"),
        ("min(s + min(s, 1), 1)", "min(s, 1)"),
        ("max(s - 4, 0) + min(s, 4)", "s"),
        ("min(a, b) + max(a, b)", "a + b"),
        ("max(s - min(s, 4), 0)", "s - min(s, 4)"),
        ("512*b*((s + 7)//8)//(b*s)", "(512*((s + 7)//8))//s"),
        ("(0 - a)//(0 - 3)", "a//3"),
        ("min(a, max(a, b))", "a"),
        ("max(min(2*a, a), a)", "a"),
    ],
)
def test_minima_and_maxima_are_decided_by_cases(source: str, shown: str) -> None:
    found = parsed(source)
    assert found is not None and text(found) == shown


@pytest.mark.parametrize(
    ("source", "ranges", "expected"),
    [
        ("min(2 - b, -1 - a)%5", {}, (0, 4)),
        ("(-a)%8", {"a": Range(1, 9)}, (0, 7)),
        ("(-a)//8", {"a": Range(1, 9)}, (-2, -1)),
        ("a%(0 - 5)", {}, (-4, 0)),
        ("a%b", {"b": Range(1, 6)}, (0, 5)),
        ("4*((s + 3)//4) - s", {}, (0, 3)),
        ("b*s - b*min(s, 8)", {}, (0, math.inf)),
        ("12//(a - 3)", {"a": Range(2, 4)}, (-12, 12)),
        ("s - min(s, 1)", {}, (0, math.inf)),
        ("min(s, 16) - 4*(min(s, 16)//4)", {}, (0, 3)),
    ],
)
def test_intervals_know_what_divisions_leave_and_what_cases_assume(
    source: str, ranges: dict[str, Range], expected: tuple[float, float]
) -> None:
    extent = parsed(source)
    assert extent is not None
    assert interval(extent, {Symbol(name): known for name, known in ranges.items()}) == expected


def test_a_case_that_divides_by_zero_in_others_is_no_form_of_all() -> None:
    extent = parsed("min(a, b, 4) - min(a, b)//max(a, c)")
    assert extent is not None
    assert (
        evaluate(narrowed(extent, {Symbol("b"): Range(1, 1), Symbol("c"): Range(1, 1)}), {"a": 0, "b": 1, "c": 1}) == 0
    )


def test_the_limits_of_a_sum_of_open_quotients_are_open() -> None:
    extent = Operation("sub", Operation("floordiv", 8, Symbol("a")), Operation("floordiv", 8, Symbol("a")))
    assert limits(extent, {"a": (-1, 1)}) == (-math.inf, math.inf)
