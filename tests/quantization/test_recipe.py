"""Recipes: as text and back, changed field by field, and what is wrong with them."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from graft.errors import RecipeError
from graft.quantization.recipe import NAMED, Recipe, Scaling, recipe_of


@pytest.mark.parametrize("name", NAMED)
def test_a_recipe_is_read_back_from_its_text(name, tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(NAMED[name].to_toml())
    assert recipe_of(path) == NAMED[name]
    assert recipe_of(str(path)) == recipe_of(tomllib.loads(path.read_text()))


def test_a_base_is_changed_field_by_field(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "int8-channel"\nkeep = ["Gemm"]\n[weights]\ntype = "int4"\n')
    found = recipe_of(path)
    base = NAMED["int8-channel"]
    assert (found.name, found.keep, found.activations) == ("mine", ("Gemm",), base.activations)
    assert found.weights == Scaling(type="int4", granularity="channel")


LAYERS = """base = "int4-weights"
[layers]
"conv*" = "int8-channel"
conv_0 = {base = "int8", weights = {type = "int4"}}
"logits" = "float32"
"""


def test_layers_have_recipes_of_their_own_and_are_read_back(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(LAYERS)
    found = recipe_of(path)
    assert [(pattern, one.name) for pattern, one in found.layers] == [
        ("conv*", "int8-channel"), ("conv_0", "int8"), ("logits", "float32"),
    ]  # fmt: skip
    assert found.layers[1][1].weights == Scaling(type="int4")
    path.write_text(found.to_toml())
    again = recipe_of(path)
    assert replace(again, layers=()) == replace(found, layers=())
    own = [[(one.weights, one.activations) for _, one in recipe.layers] for recipe in (again, found)]
    assert own[0] == own[1]
    assert '"conv*" = "int8-channel"\n' in found.to_toml()
    more = recipe_of({"base": found, "layers": {"conv_3": "int8"}})
    assert [pattern for pattern, _ in more.layers] == ["conv*", "conv_0", "logits", "conv_3"]


def test_float32_stands_for_what_is_not_quantised():
    assert recipe_of({"base": "int8", "activations": "float32"}).activations is None
    assert recipe_of({"activations": {"type": "uint8"}}).activations == Scaling(type="uint8")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("int9", "no recipe is called 'int9'; did you mean 'int8', or give a .toml file"),
        ({"wieghts": {}}, "recipe has no field 'wieghts'; did you mean 'weights'"),
        ({"weights": {"groups": 4}}, "recipe: table 'weights' has no field 'groups'; did you mean 'group'"),
        ({"weights": {"type": "int5"}}, "recipe: table 'weights': type is 'int5'; did you mean 'int8'"),
        ({"weights": {"group": 0}}, "recipe: table 'weights': group is 0; give at least 1"),
        ({"weights": {"group": True}}, "recipe: table 'weights': group is True; give a whole number"),
        ({"weights": {"percentile": 0}}, "recipe: table 'weights': percentile is 0; give one above 0, up to 100"),
        ({"weights": 3}, "recipe: weights is 3; give a table, or 'float32'"),
        ({"keep": "Conv"}, "recipe: keep is 'Conv'; give texts"),
        ({"keep": {"a": 1}}, "recipe: 'keep' is a table; give texts"),
        ({"layers": {"a": "int9"}}, "no recipe is called 'int9'; did you mean 'int8', or give a .toml file"),
        ({"layers": 3}, "recipe: layers is 3; give a table of recipes by pattern"),
        ({"layers": {"a": {"layers": {"b": "int8"}}}}, "recipe: the layers 'a' have layers of their own"),
        ({"smooth": 2}, "recipe: smooth is 2; give a number from 0 to 1"),
        ({"operators": ["Sob"]}, "recipe: operators has 'Sob', which is no operator; did you mean 'Sub'"),
        (
            {"without": ["interleave-convolution"]},
            "recipe: without has 'interleave-convolution', which is no pass; did you mean 'interleave-convolutions'",
        ),
        ({"decompose": ["Conv"]}, "recipe: Conv cannot be decomposed: it is no function of others"),
        (
            {"activations": {"granularity": "channel"}},
            "recipe: activations are of granularity 'channel'; ONNX scales them as a 'tensor'",
        ),
        (
            {"activations": {"rounding": "gptq"}},
            "recipe: activations are rounded 'gptq'; ONNX rounds them to 'nearest'",
        ),
        (
            {"activations": {"type": "float6e2m3"}},
            "recipe: activations are of 'float6e2m3', which ONNX has no type for; weights may be",
        ),
        (
            {"base": "mxfp4", "weights": {"type": "int4"}},
            "recipe: products in blocks have no use for weights; leave it out beside blocks of mxfp4",
        ),
        (
            {"blocks": {"elment": "mxint8"}},
            "recipe: table 'blocks' has no field 'elment'; did you mean 'element'",
        ),
        (
            {"blocks": {"block": 16}},
            "recipe: table 'blocks' has no element; give a type, such as float4e2m1",
        ),
        (
            {"base": "mxfp4", "blocks": {"rule": "up"}},
            "recipe: table 'blocks': a scale's rule is one of floor, even, ceil, rceil, nearest, not 'up'",
        ),
        (
            {"blocks": {"element": "mxint8", "block": "all"}},
            "recipe: table 'blocks': block is 'all'; give a whole number",
        ),
        (
            {"blocks": {"element": 7}},
            "recipe: table 'blocks': element is 7; give a text",
        ),
        (
            {"weights": {"type": "posit8"}},
            "recipe: table 'weights': type is 'posit8', which QDQ has not; give it as blocks = {element = 'posit8'}",
        ),
        (
            {"blocks": "mxfp5"},
            "recipe: blocks are of a scaled type: no scaled type is called 'mxfp5'; did you mean 'mxfp4'",
        ),
        (
            {"base": "mxfp4", "layers": {"a": "int8"}, "activations": {"type": "int8"}},
            "recipe: products in blocks have no use for activations; leave it out beside blocks of mxfp4",
        ),
        ("mxfp4-wieghts", "no recipe is called 'mxfp4-wieghts'; did you mean 'mxfp4-weights', or give a .toml file"),
        (Recipe(weights=Scaling(rounding="up")), None),
    ],
)
def test_what_is_wrong_with_a_recipe_is_said(given, message):
    with pytest.raises(RecipeError) as caught:
        recipe_of(given)
    assert message is None or str(caught.value) == message


@pytest.mark.parametrize("name", ["mxfp8e4m3", "mxfp4-even", "nvfp4"])
def test_a_scaled_type_is_a_recipe_of_products_in_its_blocks(name, tmp_path):
    found = recipe_of(name)
    assert (found.blocks, found.weights, found.activations, found.needs_data) == (name, None, None, False)
    path = tmp_path / "own.toml"
    path.write_text(found.to_toml())
    assert recipe_of(path) == found


def test_a_file_that_is_no_recipe_is_named(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text("weights = [")
    for one in (path, tmp_path / "missing.toml"):
        with pytest.raises(RecipeError, match=f"recipe '{one}' cannot be read"):
            recipe_of(one)


def test_recipes_of_weights_alone_need_no_data():
    needs = {name: recipe.needs_data for name, recipe in NAMED.items()}
    assert [name for name, needed in needs.items() if not needed] == ["int8-weights"]


def test_layers_in_blocks_are_kept_by_a_file(tmp_path):
    layers = {"a": "mxfp4-even", "b": {"blocks": {"element": "mxint8", "block": 16}, "accumulators": "float16"}}
    for base in ("int8-channel", "mxfp6e2m3"):
        recipe = recipe_of({"base": base, "layers": {**layers, "c": "int4-weights"}})
        (tmp_path / "one.toml").write_text(recipe.to_toml())
        assert replace(recipe_of(tmp_path / "one.toml"), name=recipe.name) == recipe


def test_a_file_that_is_made_of_itself_is_refused(tmp_path):
    (tmp_path / "one.toml").write_text(f'base = "{tmp_path}/two.toml"')
    (tmp_path / "two.toml").write_text(f'[layers]\na = "{tmp_path}/one.toml"')
    with pytest.raises(RecipeError) as caught:
        recipe_of(tmp_path / "two.toml")
    chain = "two.toml -> one.toml -> two.toml"
    assert str(caught.value) == f"recipe '{tmp_path}/two.toml' is made of itself: {chain}; name another base or layer"
