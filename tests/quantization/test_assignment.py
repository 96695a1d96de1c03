"""Mixed precision: the path against all assignments, and what the search hands out against its bounds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import graft
from graft.datatypes.scaled.operators import DOMAIN
from graft.errors import AccuracyError, RecipeError
from graft.quantization import assign, compare, quantize, recipe_of
from graft.quantization.assignment import Sensitivity, Worth, bits_of, path_of, rank_of, single_steps, standard_error
from graft.quantization.preparation import in_floats
from tests.quantization.networks import convolutions, images, run, snr

X = images(48)
Y = run(in_floats(convolutions()), x=X)
RECIPES = ["int8-weights", "int4-weights", "int3-weights"]


def closeness(outputs, labels):
    return -float(np.sum((outputs["y"] - Y) ** 2) / np.sum(Y**2))


@pytest.mark.parametrize("seed", range(20))
def test_no_assignment_is_better_than_one_of_the_path(seed):
    random = np.random.default_rng(seed)
    rows = [
        Sensitivity(str(place), tuple(random.integers(1, 99, 4) * 1.0), tuple(random.random(4))) for place in range(4)
    ]
    path = path_of(rows)

    def error(choice):
        return sum(row.errors[one] for row, one in zip(rows, choice, strict=True))

    every = [(bits_of(rows, one), error(one)) for one in itertools.product(range(4), repeat=4)]
    for choice in path:
        bits, own = bits_of(rows, choice), error(choice)
        assert not [one for one in every if one[0] < bits and one[1] < own - 1e-12]
    assert error(path[0]) == pytest.approx(min(one for _, one in every))
    assert bits_of(rows, path[-1]) == min(one for one, _ in every)
    assert [bits_of(rows, one) for one in path] == sorted((bits_of(rows, one) for one in path), reverse=True)


def test_steps_come_by_the_error_that_a_saved_bit_costs():
    rows = [Sensitivity("a", (8.0, 4.0, 2.0), (0.0, 1.0, 5.0)), Sensitivity("b", (8.0, 4.0, 2.0), (0.0, 0.1, 0.2))]
    assert single_steps(rows, (0, 0)) == [(1, 1), (1, 2), (0, 1), (0, 2)]
    assert single_steps(rows, (2, 1), up=True) == [(0, 1), (0, 0), (1, 0)]


def test_at_equal_bits_it_has_more_signal_than_one_recipe_for_all():
    uniform = quantize(convolutions(), "int4-weights", {"x": X})
    bits = graft.sweep(convolutions(), data={"x": X[:2]}, shapes={"x": (1, 3, 12, 12)}, recipes=["int4-weights"],
                       calibration={"x": X}).rows[1].weight_bits  # fmt: skip
    found = assign(convolutions(), RECIPES, {"x": X}, bits=bits)
    assert found.bits <= bits
    assert snr(Y, run(found.model, x=X)) >= snr(Y, run(uniform, x=X))
    assert found.snr_db == pytest.approx(snr(Y, run(found.model, x=X)), abs=0.1)
    assert (found.metric, found.recipes) == (None, tuple(RECIPES))


def test_the_cheapest_within_a_bound_is_a_recipe_that_a_file_holds(tmp_path):
    found = assign(convolutions(), RECIPES, {"x": X}, within=0.003, metric=closeness)
    assert found.metric >= -0.003
    assert found.float_metric == pytest.approx(0, abs=1e-9)
    (tmp_path / "mixed.toml").write_text(found.recipe.to_toml())
    again = quantize(convolutions(), recipe_of(tmp_path / "mixed.toml"), {"x": X})
    np.testing.assert_array_equal(run(again, x=X), run(found.model, x=X))
    assert compare(convolutions(), again, {"x": X}, metric=closeness).metric == pytest.approx(found.metric)
    dearer = assign(convolutions(), RECIPES, {"x": X}, within=0.0003, metric=closeness)
    assert dearer.bits > found.bits


def test_a_layer_may_stay_in_floats():
    found = assign(convolutions(), ["float32", "int3-weights"], {"x": X}, within=0.002, metric=closeness)
    kinds = [node.op_type for node in found.model.graph].count("DequantizeLinear")
    assert 0 < kinds < 4
    assert found.bits > 4


def test_the_signal_decides_between_models_that_chance_may_part():
    chance = standard_error(0.94, 200)
    assert chance == pytest.approx(0.0168, abs=1e-4)
    luckier, nearer, worse = Worth(0.945, 19.0), Worth(0.935, 23.7), Worth(0.9, 40.0)
    assert sorted([nearer, worse, luckier], key=lambda one: rank_of(one, 0.94, chance)) == [worse, luckier, nearer]
    assert rank_of(luckier, 0.94, 0.0) > rank_of(nearer, 0.94, 0.0)  # a user's metric is taken at its word
    assert rank_of(nearer, None, 0.0) == (0.935, 23.7)


def test_layers_may_be_in_blocks(tmp_path):
    names = ["mxfp8e4m3", "mxfp4", "int4-weights"]
    found = assign(convolutions(), names, {"x": X}, bits=8)
    assert found.bits <= 8
    assert recipe_of("mxfp8e4m3") in dict(found.recipe.layers).values()
    (tmp_path / "mixed.toml").write_text(found.recipe.to_toml())
    again = quantize(convolutions(), recipe_of(tmp_path / "mixed.toml"), {"x": X})
    np.testing.assert_array_equal(graft.compile(again)(X), graft.compile(found.model)(X))
    assert any(node.domain == DOMAIN for node in again.graph)
    whole = assign(convolutions(), names[:1], {"x": X}, bits=40)
    taken = {name for name, one in whole.recipe.layers if one == recipe_of("mxfp8e4m3")}
    assert taken == {row.layer for row in whole.sensitivity}
    assert snr(graft.compile(whole.model)(X), Y) > 20


def test_the_best_comes_with_the_error_of_a_bound_that_cannot_be_met():
    with pytest.raises(AccuracyError, match="name recipes of more bits") as caught:
        assign(convolutions(), RECIPES[1:], {"x": X}, within=1e-9, metric=closeness)
    found = caught.value.facts["model"]
    assert compare(convolutions(), found, {"x": X}, metric=closeness).metric == pytest.approx(
        caught.value.facts["metric"]
    )
    with pytest.raises(AccuracyError):
        assign(convolutions(), RECIPES, {"x": X}, within=1e-4, bits=7, metric=closeness)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "say what bounds the search: within, how much of the metric may be lost, or bits a weight"),
        ({"bits": 2}, "at most 2 bits a weight are wanted; all recipes take 10.37 or more"),
        ({"within": 0.1}, "a bound on the metric needs labels in the data, or a metric"),
        ({"bits": 4, "data": None}, "the sensitivity of layers is measured on data; give some"),
        ({"bits": 4, "recipes": ["float32"]}, "there is no recipe to choose; give at least one beside 'float32'"),
        ({"bits": 4, "recipes": ["mxfp4"]}, "at most 4 bits a weight are wanted; all recipes take 5.87 or more"),
    ],
)
def test_what_cannot_be_searched_is_said(options, message):
    with pytest.raises(RecipeError) as caught:
        assign(convolutions(), **{"data": {"x": X}, "recipes": RECIPES[:1], **options})
    assert str(caught.value) == message
