"""The search for a bound: the fewest layers in floats, the worst first, twice as many each time."""

from __future__ import annotations

import pytest

from graft.errors import AccuracyError
from graft.quantization.recipe import Recipe
from graft.quantization.search import Bound

LAYERS = [f"layer[{number}]*" for number in range(9)]


def bound(least: float, values: dict[int, float], asked: list[int]) -> Bound:
    """Models are recipes; their metric is told by how many layers they keep."""

    def metric(recipe):
        asked.append(len(recipe.keep))
        return values[len(recipe.keep)]

    return Bound(least, lambda recipe: recipe, metric, lambda recipe: LAYERS)


VALUES = {0: 0.5, 1: 0.6, 2: 0.55, 4: 0.8, 8: 0.9}


def test_the_first_model_within_the_bound_is_taken():
    asked: list[int] = []
    assert bound(0.5, VALUES, asked).best(Recipe()).keep == ()
    assert asked == [0]
    asked.clear()
    assert len(bound(0.75, VALUES, asked).best(Recipe()).keep) == 4
    assert asked == [0, 1, 2, 4]
    assert len(bound(0.9, VALUES, []).best(Recipe()).keep) == 8


def test_names_are_kept_literally():
    assert bound(0.6, VALUES, []).best(Recipe(keep=())).keep == ("layer[[]0][*]",)


def test_the_best_model_comes_with_the_error():
    with pytest.raises(AccuracyError) as caught:
        bound(0.95, {**VALUES, 8: 0.7}, []).best(Recipe())
    assert str(caught.value) == (
        "the metric is 0.8 at best, with the layers of the largest errors in floats, where at least 0.95 is wanted; "
        "allow more, or take a recipe of more bits"
    )
    assert len(caught.value.model.keep) == 4
    assert caught.value.metric == 0.8
