"""`graft.quantize`: from a float model to a QDQ model, by a recipe and data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from graft.core.importer.source import SOURCE, Source
from graft.core.passes.eliminate_dead_code import EliminateDeadCode
from graft.core.passes.pipeline import RECORD, verify_model
from graft.errors import RecipeError
from graft.plugins.registry.manager import MANAGER
from graft.quantization.awq import favour_large_inputs
from graft.quantization.calibration import calibrated
from graft.quantization.comparison import compare
from graft.quantization.data import Batches, Given
from graft.quantization.equalize import equalize, smooth
from graft.quantization.facts import Facts
from graft.quantization.grids import GRIDS
from graft.quantization.metrics import Metric, score
from graft.quantization.observation import Progress, Running
from graft.quantization.preparation import MOVED, NOTES, in_floats
from graft.quantization.recipe import RECIPE, Recipe, recipe_of
from graft.quantization.rewriting import Point, QdqWriter, bits_of_weights
from graft.quantization.search import Bound
from graft.quantization.sites import Sites, sites_of
from graft.quantization.weights import bias_shift, scaled_weights
from graft.runtime.arguments import FUNCTION, NUMBER, SHAPES, TEXTS, WHOLE, instance, optional, takes

if TYPE_CHECKING:
    from graft.plugins.registry.manager import PluginManager


@takes(
    model=SOURCE, recipe=RECIPE, keep=TEXTS, within=optional(NUMBER), metric=optional(FUNCTION),
    shapes=optional(SHAPES), threads=optional(WHOLE), progress=optional(FUNCTION), manager=optional(MANAGER),
)  # fmt: skip
def quantize(
    model: Source,
    recipe: str | os.PathLike[str] | Recipe | Mapping[str, Any] = "int8",
    data: Given | None = None,
    *,
    keep: Sequence[str] = (),
    within: float | None = None,
    metric: Metric | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    manager: PluginManager | None = None,
) -> ir.Model:
    """Return a float model in QDQ form: ONNX's QuantizeLinear and DequantizeLinear around what computes in floats.

    ``recipe`` is a name (``int8``, ``int8-channel``, ``int8-weights``, ``int4-weights``, ``float8``), a TOML file, a
    mapping as such a file has it, or a `Recipe`. ``data`` are what activations are calibrated with: arrays by input
    name, stacked along the first axis, and ``labels``; the path of an ``.npz`` file or of a folder of such; or an
    iterable of batches (a mapping, an array, or a pair of inputs and labels each), which is never held whole. ``keep``
    are patterns of names or operators of nodes that stay in floats. `notes_of` the result says what was done.

    ``within`` is how much of the metric (accuracy by the labels, or ``metric`` as for `compare`) may be lost on the
    data: where more is, the layers of the largest errors stay in floats, as few as will do.

    Raises RecipeError for a wrong recipe, and for data that are missing or do not fit the model; AccuracyError, whose
    ``model`` is the best that was found, if nothing is within the bound.
    """
    wanted = recipe_of(recipe)
    wanted = replace(wanted, keep=(*wanted.keep, *keep))
    original, running = in_floats(model, shapes), Running(threads, manager)
    if data is None and (wanted.needs_data or within is not None):
        raise RecipeError(
            f"recipe '{wanted.name}' is calibrated with data; give some, or a recipe of weights alone that rounds to "
            "'nearest' and corrects no bias"
        )
    batches = Batches(data, original)
    floats, facts = _measured(original, wanted, batches, running, progress)
    write = partial(written, floats, facts=facts)
    if within is None:
        return write(wanted)
    metric_of = partial(_metric_of, batches, metric, running)

    def worst(one: ir.Model) -> list[str]:
        rows = compare(original, one, data, threads=threads, manager=manager).layers
        return [row.layer for row in sorted(rows, key=lambda row: row.snr_db)]

    return Bound(metric_of(original) - within, write, metric_of, worst).best(wanted)


def _measured(
    original: ir.Model, recipe: Recipe, batches: Batches, running: Running, progress: Progress | None
) -> tuple[ir.Model, Facts]:
    """Return the float model with factors moved as a recipe says, and what the recipe needs to know of it."""
    floats = original.clone()
    moved = equalize(floats) if recipe.equalize else []
    if recipe.smooth:
        moved += smooth(floats, recipe.smooth, batches, running)
    if recipe.awq and recipe.weights is not None:
        moved += favour_large_inputs(floats, recipe.weights, batches, running)
    sites = sites_of(floats, recipe)
    if not sites.products and not sites.groups:
        raise RecipeError(f"recipe '{recipe.name}' quantises nothing of this model: no node takes what it scales")
    facts = Facts.wanted(sites, recipe)
    observers = facts.observers(sites)
    if observers:
        running.observe(floats, observers, batches, progress)
    if moved:
        floats.metadata_props[MOVED] = "\n".join(dict.fromkeys(moved))
    return floats, facts


def _metric_of(batches: Batches, metric: Metric | None, running: Running, model: ir.Model) -> float:
    names = [value.name or "" for value in model.graph.outputs]
    found = score(running.runner(model), names, batches, metric)
    if found is None:
        raise RecipeError("a bound on the metric needs labels in the data, or a metric")
    return found


def written(floats: ir.Model, recipe: Recipe, *, facts: Facts) -> ir.Model:
    """Return a float model quantised by a recipe and the facts of its activations."""
    model = floats.clone()
    sites = sites_of(model, recipe)
    writer = QdqWriter(model)
    weights = scaled_weights(sites, recipe.weights, facts, writer.notes)
    _write_activations(writer, sites, recipe, facts)
    for product in sites.products:
        one, means = weights[product.weights.name or ""], facts.means.get(product.node.name or "")
        if means is not None:
            writer.shift_bias(product, bias_shift(product, one, means.means))
        writer.bias(product, one, added=recipe.results)
        writer.weights(product, one)
    EliminateDeadCode().run(model)
    verify_model(model, "quantize")
    summary = f"recipe '{recipe.name}': {len(sites.groups)} scales of activations, {len(sites.products)} products"
    if weights:
        summary += f", {bits_of_weights(weights):.2f} bits a weight"
    if recipe.keep:
        summary += f", in floats: {', '.join(recipe.keep)}"
    model.metadata_props[NOTES] = "\n".join((summary, *writer.all_notes()))
    model.meta.pop(RECORD, None)  # it is as it would be in a file: 4-bit constants are widened when it is loaded
    return model


def _write_activations(writer: QdqWriter, sites: Sites, recipe: Recipe, facts: Facts) -> None:
    if recipe.activations is None:
        return
    grid = GRIDS[recipe.activations.type]
    for group in sites.groups:
        point = Point(grid, *calibrated(facts.histogram(group), recipe.activations, grid))
        writer.activations(group, point, results=recipe.results)


@takes(model=instance(ir.Model, wanted="an onnx_ir.Model"))
def notes_of(model: ir.Model) -> list[str]:
    """Return what was done to a quantised model, a line each; it is kept in the file."""
    return model.metadata_props.get(NOTES, "").splitlines()
