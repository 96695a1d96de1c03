"""Typical values of symbols lie within their ranges and fit the equations."""

from __future__ import annotations

import pytest

from graft.errors import GraftError
from graft.runtime.extents import ExtentEquation, Operation, Symbol
from graft.runtime.typical_shapes import LENGTH, PIXELS, ROWS, shape_at, typical_value, typical_values

N, C, H, W, S = (Symbol(name) for name in "nchws")
SAYS = ("", "", "")


def test_each_axis_has_its_usual_number() -> None:
    values = typical_values({"image": (N, C, H, W), "text": (N, S), "any": None, "scalar": ()}, {}, {})
    assert values == {"n": ROWS, "c": LENGTH, "h": PIXELS, "w": PIXELS, "s": LENGTH}


def test_the_first_place_that_a_symbol_stands_alone_decides() -> None:
    assert typical_values({"a": (S, N), "b": (N, S)}, {}, {}) == {"s": ROWS, "n": LENGTH}
    assert typical_values({"a": (Operation("add", S, 1), S)}, {}, {}) == {"s": LENGTH}


def test_values_that_are_given_stand_and_other_names_are_refused() -> None:
    assert typical_values({"x": (N, Operation("mul", 2, S))}, {}, {"s": 5}) == {"n": ROWS, "s": 5}
    with pytest.raises(GraftError) as caught:
        typical_values({"x": (N, S)}, {}, {"seq": 5})
    assert str(caught.value) == "no input has a dimension 'seq'; there is 'n', 's'"
    with pytest.raises(GraftError) as caught:
        typical_values({"x": (3,)}, {}, {"seq": 5})
    assert str(caught.value) == "no input has a dimension 'seq'; there is none"


@pytest.mark.parametrize(
    ("bounds", "usual", "value"),
    [
        ((0, None), 16, 16),
        ((1, 1), 16, 1),
        ((0, 0), 16, 0),
        ((1, 8), 16, 5),
        ((8, 32), 16, 16),
        ((1, 4096), 16, 16),
        ((100, None), 16, 100),
        ((100, 400), 16, 200),
        ((1, 2), 16, 1),
        ((64, 64), 16, 64),
        ((32, None), 16, 45),
        ((0, None), 2, 2),
        ((0, 1), 2, 0),
    ],
)
def test_a_range_has_the_geometric_mean_of_what_is_usual_in_it(
    bounds: tuple[int, int | None], usual: int, value: int
) -> None:
    assert typical_value(bounds, usual) == value


@pytest.mark.parametrize("low", range(0, 70, 3))
@pytest.mark.parametrize("width", [0, 1, 7, 100, None])
def test_a_typical_value_lies_within_its_range(low: int, width: int | None) -> None:
    high = None if width is None else low + width
    value = typical_value((low, high))
    assert low <= value
    assert high is None or value <= high


def test_equations_give_symbols_the_values_of_others() -> None:
    shapes = {"x": (N, S), "y": (H, W)}
    same = ExtentEquation(H, N, "equal", SAYS)
    assert typical_values(shapes, {}, {"n": 7}, [same])["h"] == 7
    assert typical_values(shapes, {}, {"h": 7}, [same])["n"] == 7
    chain = [ExtentEquation(W, H, "equal", SAYS), ExtentEquation(S, W, "equal", SAYS), same]
    assert set(typical_values(shapes, {}, {"n": 7}, chain).values()) == {7}


def test_what_is_given_is_not_mended_and_what_agrees_is_kept() -> None:
    equation = ExtentEquation(N, S, "equal", SAYS)
    assert typical_values({"x": (N, S)}, {}, {"n": 3, "s": 4}, [equation]) == {"n": 3, "s": 4}
    assert typical_values({"x": (N, S)}, {}, {}, [ExtentEquation(N, S, "at most", SAYS)]) == {"n": ROWS, "s": LENGTH}
    assert typical_values({"x": (N,)}, {}, {}, [ExtentEquation(N, S, "equal", SAYS)]) == {"n": ROWS}


def test_a_shape_is_counted_with_values() -> None:
    assert shape_at((N, Operation("mul", 2, S), 3), {"n": 1, "s": 4}) == (1, 8, 3)
