"""`graft.quantize`: from a float model to a QDQ model, by a recipe and data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from graft.core.importer.load import load
from graft.core.importer.source import SOURCE, Source
from graft.core.passes.eliminate_dead_code import EliminateDeadCode
from graft.core.passes.normalize import normalize
from graft.core.passes.pipeline import RECORD, verify_model
from graft.core.rewriting.node_rewrite import constant_of
from graft.errors import RecipeError
from graft.plugins.registry.manager import MANAGER
from graft.quantization.calibration import calibrated
from graft.quantization.data import Batches, Given
from graft.quantization.grids import GRIDS
from graft.quantization.histogram import Histogram
from graft.quantization.observation import Observer, Progress, observe
from graft.quantization.recipe import RECIPE, Recipe, Scaling, recipe_of
from graft.quantization.rewriting import Point, QdqWriter, bits_of_weights
from graft.quantization.scales import Layout, Scaled, scaled
from graft.quantization.sites import Group, Product, Sites, sites_of
from graft.runtime.arguments import FUNCTION, SHAPES, TEXTS, WHOLE, optional, takes

if TYPE_CHECKING:
    from graft.plugins.registry.manager import PluginManager

NOTES = "graft.quantize"
"""The key of a quantised model's metadata for what was done."""


@takes(
    model=SOURCE, recipe=RECIPE, keep=TEXTS, shapes=optional(SHAPES), threads=optional(WHOLE),
    progress=optional(FUNCTION), manager=optional(MANAGER),
)  # fmt: skip
def quantize(
    model: Source,
    recipe: str | os.PathLike[str] | Recipe | Mapping[str, Any] = "int8",
    data: Given | None = None,
    *,
    keep: Sequence[str] = (),
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    manager: PluginManager | None = None,
) -> ir.Model:
    """Return a float model in QDQ form: ONNX's QuantizeLinear and DequantizeLinear around what computes in floats.

    ``recipe`` is a name (``int8``, ``int8-channel``, ``int8-weights``, ``int4-weights``, ``float8``), a TOML file, a
    mapping as such a file has it, or a `Recipe`. ``data`` are what activations are calibrated with: arrays by input
    name, stacked along the first axis; the path of an ``.npz`` file or of a folder of such; or an iterable of batches
    (a mapping, an array, or a pair of inputs and labels each), which is read once and never held whole. ``keep`` are
    patterns of names or operators of nodes that stay in floats. `notes_of` the result says what was done.
    Raises RecipeError for a wrong recipe, and for data that are missing or do not fit the model.
    """
    wanted = recipe_of(recipe)
    wanted = replace(wanted, keep=(*wanted.keep, *keep))
    quantized = in_floats(model, shapes)
    if wanted.needs_data and data is None:
        raise RecipeError(f"recipe '{wanted.name}' is calibrated with data; give some, or a recipe of weights alone")
    batches = None if data is None else Batches(data, quantized)
    sites = sites_of(quantized, wanted)
    if not sites.products and not sites.groups:
        raise RecipeError(f"recipe '{wanted.name}' quantises nothing of this model: no node takes what it scales")
    histograms: dict[str, Histogram] = {}
    if batches is not None and sites.groups:
        histograms = {source.name or "": Histogram() for group in sites.groups for source in group.sources}
        observers: dict[str, list[Observer]] = {name: [one] for name, one in histograms.items()}
        observe(quantized, observers, batches, threads=threads, manager=manager, progress=progress)
    write(quantized, wanted, sites, histograms)
    return quantized


def in_floats(model: Source, shapes: Mapping[str, Sequence[int]] | None = None) -> ir.Model:
    """Return a model of its own as it is before it is quantised: simplified, BatchNormalization folded."""
    loaded = load(model, shapes=shapes).clone()
    normalize(loaded)
    return loaded


def write(model: ir.Model, recipe: Recipe, sites: Sites, histograms: Mapping[str, Histogram]) -> None:
    """Quantise what sites say of a model, in place."""
    writer = QdqWriter(model)
    weights = _scaled_weights(sites, recipe.weights, writer.notes)
    if recipe.activations is not None:
        for group in sites.groups:
            writer.activations(group, _point(group, recipe.activations, histograms))
    for product in sites.products:
        one = weights[product.weights.name or ""]
        writer.bias(product, one)
        writer.weights(product, one)
    EliminateDeadCode().run(model)
    verify_model(model, "quantize")
    summary = f"recipe '{recipe.name}': {len(sites.groups)} scales of activations, {len(sites.products)} products"
    if weights:
        summary += f", {bits_of_weights(weights):.2f} bits a weight"
    model.metadata_props[NOTES] = "\n".join((summary, *writer.notes))
    model.meta.pop(RECORD, None)  # it is as it would be in a file: 4-bit constants are widened when it is loaded


def notes_of(model: ir.Model) -> list[str]:
    """Return what was done to a quantised model, a line each; it is kept in the file."""
    return model.metadata_props.get(NOTES, "").splitlines()


def _scaled_weights(sites: Sites, scaling: Scaling | None, notes: list[str]) -> dict[str, Scaled]:
    found: dict[str, Scaled] = {}
    for product in sites.products:
        array, name = constant_of(product.weights), product.weights.name or ""
        if name in found or array is None or scaling is None:
            continue
        layout = layout_of(product, array.shape, scaling)
        if layout.block and array.shape[product.terms] % layout.block:
            short = array.shape[product.terms] % layout.block
            notes.append(f"weights '{name}': the last group along axis {product.terms} has {short} of {layout.block}")
        found[name] = scaled(array, layout, scaling, GRIDS[scaling.type], name)
    return found


def layout_of(product: Product, shape: tuple[int, ...], scaling: Scaling) -> Layout:
    """Return which weights share a scale; a group that is longer than the axis is the whole channel."""
    if scaling.granularity == "tensor":
        return Layout(shape)
    if scaling.granularity == "group" and scaling.group < shape[product.terms]:
        return Layout(shape, product.terms, scaling.group)
    return Layout(shape, product.channels)


def _point(group: Group, scaling: Scaling, histograms: Mapping[str, Histogram]) -> Point:
    whole = Histogram()
    for source in group.sources:
        one = histograms[source.name or ""]
        if one.invalid:
            raise RecipeError(
                f"value '{source.name}' has {one.invalid} elements that are NaN or infinite on the data; mend the data, "
                "or keep the node that makes it",
                value=source.name,
            )
        whole.merge(one)
    grid = GRIDS[scaling.type]
    return Point(grid, *calibrated(whole, scaling, grid))
