"""Sites: which tensors are quantised, and which share a scale."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import numpy_helper

import graft
from graft.errors import RecipeError
from graft.quantization.recipe import FLOATS, NAMED, Recipe, Scaling
from graft.quantization.sites import product_of, sites_of
from tests.quantization.networks import convolutions, model

INT8 = NAMED["int8"]


def groups(one, recipe: Recipe = INT8) -> list[dict[str, list[str]]]:
    sites = sites_of(graft.load(one).clone(), recipe)
    return [
        {value.name: sorted(node.name for node, _ in readers) for value, readers in group.readers.items()}
        for group in sites.groups
    ]


def test_a_network_is_quantised_where_its_products_and_sums_read():
    assert groups(convolutions()) == [
        {"x": ["c1"]},
        {"c": ["add", "c2"], "b": ["p1"]},
        {"e": ["c3"]},
        {"f": ["add"]},
        {"g": ["mean"]},
        {"i": ["fc"], "h": ["flat"]},
    ]


def test_what_is_joined_shares_a_scale():
    text = """g (float[2,4] x, float[2,4] z) => (float[2,8] y) {
        [r] a = Relu (x) [s] b = Sigmoid (z) [j] c = Concat <axis = 1> (a, b) [m] y = MatMul (c, w) }"""
    found = groups(model(text, w=(8, 8)))
    assert found == [{"c": ["m"], "a": ["j"], "b": ["j"]}]


def test_readers_that_take_no_codes_read_floats():
    text = "g (float[2,4] x) => (float[2,8] y, float[2,4] z) { [m] y = MatMul (x, w) [e] z = Exp (x) }"
    assert groups(model(text, w=(4, 8))) == [{"x": ["m"]}]


def test_two_activations_are_both_quantised_and_a_constant_sum_is_not():
    text = "g (float[2,4] x, float[4,2] z) => (float[2,2] y) { [m] a = MatMul (x, z) [b] y = Add (a, c) }"
    assert groups(model(text, c=(2,))) == [{"x": ["m"]}, {"z": ["m"]}]


def test_patterns_choose_nodes_by_name_and_operator():
    assert groups(convolutions(), Recipe(activations=Scaling(), nodes=("Conv",), keep=("c3",))) == [
        {"x": ["c1"]},
        {"c": ["c2"], "b": ["p1"]},
    ]


def test_a_kept_operator_hands_no_codes_on():
    assert {"c": ["add", "c2"]} in groups(convolutions(), Recipe(activations=Scaling(), keep=("MaxPool",)))


def test_the_axes_of_weights_are_those_of_channels_and_sums():
    nodes = {node.name: node for node in graft.load(convolutions()).graph}
    axes = {name: (found.channels, found.terms) for name, node in nodes.items() if (found := product_of(node))}
    assert axes == {"c1": (0, 1), "c2": (0, 1), "c3": (0, 1), "fc": (0, 1)}
    text = "g (float[2,4] x) => (float[2,8] y) { [m] y = MatMul (x, w) }"
    node = next(iter(graft.load(model(text, w=(4, 8))).graph))
    found = product_of(node)
    assert found is not None
    assert (found.channels, found.terms, found.channels_have_bias) == (1, 0, False)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (Recipe(keep=("Convo",)), "no node's name or operator matches 'Convo'; did you mean 'Conv'"),
        (Recipe(keep=("zzz",)), "no node's name or operator matches 'zzz'; graft plan lists the nodes"),
        (
            Recipe(nodes=("Relu",)),
            "'Relu' matches Relu (node 'r1'), which has no form with scaled inputs; name products, Add or average "
            "pooling",
        ),
    ],
)
def test_patterns_that_fit_nothing_are_named(recipe, message):
    with pytest.raises(RecipeError) as caught:
        sites_of(graft.load(convolutions()).clone(), recipe)
    assert str(caught.value) == message


def test_results_are_codes_behind_bias_and_limits_and_where_they_are_handed_on():
    text = """g (float[2,4] x) => (float[2,8] y, float[4,4] z) {
        [m] a = MatMul (x, w) [b] b = Add (c, a) [r] d = Relu (b) [s] y = Softmax (d)
        [f] z = Reshape (d, shape) }"""
    one = model(text, w=(4, 8), c=(8,))
    one.graph.initializer.append(numpy_helper.from_array(np.array([4, 4]), "shape"))
    assert groups(one) == [{"x": ["m"]}]
    assert groups(one, replace(INT8, results=True)) == [{"x": ["m"]}, {"d": ["f", "s"], "z": []}]


def test_a_result_that_several_read_is_quantised_before_its_limit():
    text = "g (float[2,4] x) => (float[2,8] y, float[2,8] z) { [m] a = MatMul (x, w) [r] y = Relu (a) [e] z = Exp (a) }"
    assert groups(model(text, w=(4, 8)), replace(INT8, results=True)) == [{"x": ["m"]}, {"a": ["e", "r"]}]


def test_operands_and_result_of_a_shared_node_have_one_scale():
    text = """g (float[2,4] x, float[2,4] z) => (float[2,8] y) {
        [a] b = Add (x, z) [r] c = Relu (b) [m] y = MatMul (c, w) }"""
    assert groups(model(text, w=(4, 8))) == [{"x": ["a"]}, {"z": ["a"]}, {"c": ["m"]}]
    recipe = replace(INT8, shared=("Add",))
    sites = sites_of(graft.load(model(text, w=(4, 8))).clone(), recipe)
    assert [sorted(value.name for value in group.sources) for group in sites.groups] == [["c", "x", "z"]]


def test_layers_are_scaled_by_the_last_recipe_that_fits():
    layers = (("c*", NAMED["int8-weights"]), ("c3", FLOATS), ("add", NAMED["float8"]))
    sites = sites_of(graft.load(convolutions()).clone(), replace(INT8, layers=layers))
    assert {one.node.name: one.scaling for one in sites.products} == {
        "c1": NAMED["int8-weights"].weights, "c2": NAMED["int8-weights"].weights, "fc": INT8.weights,
    }  # fmt: skip
    found = {next(iter(group.readers)).name: group.scaling.type for group in sites.groups}
    assert found == {"g": "int8", "i": "int8", "f": "float8e4m3fn", "c": "float8e4m3fn"}


def test_a_pattern_of_layers_fits_something_that_takes_scales():
    for pattern, message in (("c9", "no node's name or operator matches 'c9'"), ("flat", "has no form with scaled")):
        with pytest.raises(RecipeError, match=message):
            sites_of(graft.load(convolutions()).clone(), replace(INT8, layers=((pattern, INT8),)))


def test_a_recipe_adds_operators_and_functions_of_one_tensor_stay_whole():
    text = """g (float[2,4] x, float[2,4] z) => (float[2,4] y) {
        s = Sigmoid(x) a = Mul(x, s) b = Mul(a, z) c = Mul(b, two) y = Exp(c) }"""
    one = model(text, two=np.full(4, 2, np.float32))
    assert groups(one) == []
    found = groups(one, replace(INT8, operators=("Mul",)))
    names = {node.outputs[0].name: node.name for node in graft.load(one).graph}
    assert found == [{"a": [names["b"]]}, {"z": [names["b"]]}, {"b": [names["c"]]}]
