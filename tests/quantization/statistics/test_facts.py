"""Facts: what a recipe asks for, of which activations."""

from __future__ import annotations

import numpy as np
import pytest

import graft
from graft.errors import RecipeError
from graft.quantization.gptq import Gram
from graft.quantization.recipe import NAMED, Recipe, Scaling
from graft.quantization.sites import Sites, sites_of
from graft.quantization.statistics.facts import Facts
from graft.quantization.statistics.histogram import Histogram
from graft.quantization.statistics.observation import Mean
from tests.quantization.networks import convolutions


def kinds(recipe: Recipe) -> dict[str, list[type]]:
    sites = sites_of(graft.load(convolutions()).clone(), recipe)
    return {name: [type(one) for one in seen] for name, seen in wanted(sites, recipe).observers.items()}


def wanted(sites: Sites, *recipes: Recipe) -> Facts:
    facts = Facts()
    for recipe in recipes:
        facts.want(sites, recipe)
    return facts


def test_what_two_recipes_need_is_observed_once():
    recipe = Recipe(activations=Scaling(), correct_bias=True)
    sites = sites_of(graft.load(convolutions()).clone(), recipe)
    once, twice = wanted(sites, recipe), wanted(sites, recipe, recipe)
    assert {name: len(seen) for name, seen in once.observers.items()} == {
        name: len(seen) for name, seen in twice.observers.items()
    }


def test_activations_are_observed_where_they_are_computed():
    assert kinds(Recipe(activations=Scaling())) == {name: [Histogram] for name in ("x", "b", "e", "f", "g", "h")}


def test_products_are_observed_at_their_inputs():
    assert kinds(NAMED["int8-weights"]) == {}
    wanted = kinds(NAMED["int4-weights"])
    assert wanted == {name: [Mean, Gram] for name in ("x", "c", "e", "i")}


def test_a_group_has_all_elements_of_its_sources():
    recipe = Recipe(activations=Scaling())
    sites = sites_of(graft.load(convolutions()).clone(), recipe)
    facts, group = wanted(sites, recipe), sites.groups[0]
    facts.histograms["x"].add(np.array([1.0, -3.0], np.float32))
    found = facts.histogram(group)
    assert (found.low, found.high, found.counts.sum()) == (-3.0, 1.0, 2)
    facts.histograms["x"].add(np.array([np.inf], np.float32))
    with pytest.raises(RecipeError, match="value 'x' has 1 elements that are NaN or infinite on the data"):
        facts.histogram(group)
