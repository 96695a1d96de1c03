"""`graft.quantize`: from a float model to a QDQ model, by a recipe and data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from graft.core.importer.source import SOURCE, Source
from graft.errors import RecipeError
from graft.plugins.registry.manager import MANAGER
from graft.quantization.metrics import Metric
from graft.quantization.preparation import NOTES, in_floats
from graft.quantization.quantizer import Quantizer
from graft.quantization.recipe import RECIPE, Recipe, recipe_of
from graft.quantization.search import Bound
from graft.quantization.statistics.data import Given
from graft.quantization.statistics.observation import Progress, Running
from graft.runtime.arguments import FUNCTION, NUMBER, PATH, SHAPES, TEXTS, WHOLE, instance, optional, takes
from graft.runtime.system.displayed import notebook_bar

if TYPE_CHECKING:
    from graft.plugins.registry.manager import PluginManager


@takes(
    model=SOURCE, recipe=RECIPE, keep=TEXTS, within=optional(NUMBER), metric=optional(FUNCTION),
    shapes=optional(SHAPES), threads=optional(WHOLE), progress=optional(FUNCTION), resume=optional(PATH),
    manager=optional(MANAGER),
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
    resume: str | os.PathLike[str] | None = None,
    manager: PluginManager | None = None,
) -> ir.Model:
    """Return a float model in QDQ form: ONNX's QuantizeLinear and DequantizeLinear around what computes in floats.

    ``recipe`` is a name (``int8``, ``int8-channel``, ``int8-weights``, ``int4-weights``, ``float8``), a TOML file, a
    mapping as such a file has it, a `Recipe`, or a scaled type (``mxfp8e4m3``), whose products are those of
    `graft.datatypes.convert_scaled`. ``data`` are what activations are calibrated with: arrays by input
    name, stacked along the first axis, and ``labels``; the path of an ``.npz`` file or of a folder of such; or an
    iterable of batches (a mapping, an array, or a pair of inputs and labels each), which is never held whole. ``keep``
    are patterns of names or operators of nodes that stay in floats. `notes_of` the result says what was done.

    ``within`` is how much of the metric (accuracy by the labels, or ``metric`` as for `compare`) may be lost on the
    data: where more is, the layers of the largest errors stay in floats, as few as will do.

    ``resume`` is a folder for what calibration gathers, in a file by its content: one that was broken off goes on
    there, with the same data, to the same bits, and what is known is not gathered again.

    Raises RecipeError for a wrong recipe, and for data that are missing or do not fit the model; AccuracyError, whose
    ``model`` is the best that was found, if nothing is within the bound.
    """
    wanted = recipe_of(recipe)
    wanted = replace(wanted, keep=(*wanted.keep, *keep))
    original, running = in_floats(model, shapes, wanted.decompose, wanted.without), Running(threads, manager, resume)
    if data is None and (wanted.needs_data or within is not None):
        raise RecipeError(
            f"recipe '{wanted.name}' is calibrated with data; give some, or a recipe of weights alone that rounds to "
            "'nearest' and corrects no bias"
        )
    quantizer = Quantizer.measured(original, [wanted], data, metric, running, progress or notebook_bar())
    if within is None:
        return quantizer.written(wanted)
    least = quantizer.metric_of(original) - within
    return Bound(least, quantizer.written, quantizer.metric_of, quantizer.worst_layers).best(wanted)


@takes(model=instance(ir.Model, wanted="an onnx_ir.Model"))
def notes_of(model: ir.Model) -> list[str]:
    """Return what was done to a quantised model, a line each; it is kept in the file."""
    return model.metadata_props.get(NOTES, "").splitlines()
