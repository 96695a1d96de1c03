"""Recipes of backends: what they make fits, and what is wrong with one is said."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from graft.errors import PluginError, RecipeError
from graft.quantization import NAMED, left_by, quantize, recipe_for
from graft.quantization.preparation import in_floats
from tests.quantization.networks import convolutions, images, run, snr

X = images(24)
SHAPES = {"x": (1, 3, 12, 12)}


class Npu(graft.JsonBackend):
    """It takes products of codes and nothing else."""

    name = "npu"
    recipes: ClassVar[Any] = ({"name": "npu-int8", "base": "int8"}, {"name": "npu-products", "nodes": ["Conv", "Gemm"]})

    @graft.supports("Conv", "Gemm")
    def product(self, node):
        return True


def test_every_layer_of_a_network_is_on_the_backend_whose_recipe_quantised_it():
    found = quantize(convolutions(), recipe_for("accelerator"), {"x": X}, shapes=SHAPES)
    assert left_by("accelerator", found) == []
    placements = graft.plan(found, ["accelerator", "reference"]).placements
    rest = {row.op_type for row in placements if row.backend != "accelerator"}
    assert rest == {"QuantizeLinear", "DequantizeLinear"}  # of the model's input and output
    assert found.graph.outputs[0].name == "y"
    assert found.graph.outputs[0].producer().op_type == "DequantizeLinear"
    program = graft.compile(found, backends=["accelerator", "reference"])
    y = np.concatenate([np.asarray(program(X[row : row + 1])) for row in range(len(X))])
    assert snr(run(in_floats(convolutions()), x=X), y) > 28


def test_passes_that_a_backend_does_not_want_do_not_run_before_its_recipe():
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]> g (float[1,1,4,4] x) => (y)
    <float[1,1,2,2] w = {1, 2, 3, 4}> { y = ConvTranspose<strides = [2, 2]>(x, w) }""")
    data = {"x": np.ones((1, 1, 4, 4), np.float32)}

    class Transposing(Npu):
        unwanted_passes = frozenset({"interleave-convolutions"})

    kept = {backend: {node.op_type for node in quantize(model, recipe_for(backend()), data).graph} for backend in
            (Transposing, Npu)}  # fmt: skip
    assert "ConvTranspose" in kept[Transposing]
    assert "ConvTranspose" not in kept[Npu]


def test_a_plan_says_which_recipe_makes_an_operator_fit():
    why = graft.plan(convolutions(), ["accelerator", "reference"], shapes=SHAPES).placements[0].reasons["accelerator"]
    assert why.text == (
        "Conv is computed on bytes alone, between DequantizeLinear and QuantizeLinear; it is taken quantised: "
        "graft quantize --for accelerator"
    )


def test_what_a_backend_leaves_of_its_own_recipe_is_told():
    model = quantize(convolutions(), recipe_for(Npu()), {"x": X})
    left = left_by(Npu(), model)
    assert sorted(row.op_type for row in left) == ["Add", "Flatten", "GlobalAveragePool", "MaxPool"]


def test_the_first_recipe_is_taken_unless_another_is_named():
    assert recipe_for(Npu()).activations == NAMED["int8"].activations
    assert recipe_for(Npu(), "npu-products").nodes == ("Conv", "Gemm")


@pytest.mark.parametrize(
    ("recipes", "name", "message"),
    [
        ((), "", "backend 'npu' states no recipe; accelerator, llvm does"),
        (({"name": "a"},), "b", "backend 'npu' states no recipe 'b'; it has a"),
        (({"name": "a", "wieghts": {}},), "", "backend 'npu': recipe has no field 'wieghts'; did you mean 'weights'"),
        (({"name": "a", "base": "int9"},), "a",
         "backend 'npu': no recipe is called 'int9'; did you mean 'int8', or give a .toml file"),
    ],
)  # fmt: skip
def test_a_recipe_that_cannot_be_taken_is_said(recipes, name, message, monkeypatch):
    monkeypatch.setattr(Npu, "recipes", recipes)
    with pytest.raises(RecipeError) as caught:
        recipe_for(Npu(), name)
    assert str(caught.value).replace("llvm, accelerator", "accelerator, llvm") == message


@pytest.mark.parametrize("recipes", [{"name": "a"}, ({"base": "int8"},), [{"name": "a"}]])
def test_recipes_that_are_no_tuple_of_named_mappings_are_refused(recipes, monkeypatch):
    monkeypatch.setattr(Npu, "recipes", recipes)
    with pytest.raises(PluginError, match=r"set it to a tuple of mappings, each with a name"):
        recipe_for(Npu())


def test_a_vendor_may_name_operators_that_a_model_has_not():
    recipe = {"base": "int8", "keep": ["ConvTranspose"], "nodes": ["Conv", "MatMul"]}
    found = quantize(convolutions(), recipe, {"x": X})
    assert isinstance(found, ir.Model)
