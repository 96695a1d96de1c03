"""The sweep: one model in many number formats, on real data, beside float64."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from graft.compiler.request import plugins
from graft.core.graph.view import ValueView
from graft.core.importer.load import load
from graft.core.importer.source import SOURCE, Source
from graft.core.passes.normalize import normalize
from graft.core.shapes.inference import require_static
from graft.core.shapes.sample_inputs import sample_inputs
from graft.core.types import is_custom, parse_custom
from graft.datatypes.conversion import convert
from graft.datatypes.prepare import EACH, QUIRE
from graft.datatypes.scaled.scaled_type import is_scaled_type, scaled_name
from graft.datatypes.shipped import DATATYPES
from graft.datatypes.study import (
    Errors,
    LayerRow,
    SweepReport,
    TypeRow,
    in_float64,
    layers_of,
    short_names,
    type_named,
    with_layers,
)
from graft.errors import DatatypeError
from graft.measure.hardware_cost import CostTable, Formats, HardwareCost, cost_of, table_of
from graft.plugins.registry.manager import MANAGER
from graft.quantization.comparison import quantized_layers, require_numbers
from graft.quantization.quantizer import Quantizer
from graft.quantization.recipe import RECIPES, Recipe, in_blocks, recipe_of
from graft.quantization.sites import Product
from graft.quantization.sizes import FLOAT_BITS, Size, size_of
from graft.quantization.statistics.data import Batches, Feeds, Given
from graft.quantization.statistics.observation import Running
from graft.runtime.arguments import ARRAY, SHAPES, TEXT, TEXTS, WHOLE, at_least, instance, optional, takes

if TYPE_CHECKING:
    from graft.plugins.registry.manager import PluginManager

SAMPLES = 8
FLOAT32 = "float32"


@takes(
    model=SOURCE, types=TEXTS, labels=optional(ARRAY), recipes=RECIPES,
    manager=optional(MANAGER), accumulate=TEXT, keep=TEXTS, shapes=optional(SHAPES),
    threads=optional(WHOLE), limit=optional(at_least(1)),
    costs=optional(instance(str, os.PathLike, CostTable, wanted="the name or the file of a table of costs")),
)  # fmt: skip
def sweep(
    model: Source,
    types: Sequence[str] = (),
    data: Given | None = None,
    labels: np.ndarray | None = None,
    *,
    recipes: Sequence[str | os.PathLike[str] | Recipe | Mapping[str, Any]] = (),
    calibration: Given | None = None,
    accumulate: str = EACH,
    keep: Sequence[str] = (),
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    limit: int | None = None,
    costs: str | os.PathLike[str] | CostTable | None = None,
    manager: PluginManager | None = None,
) -> SweepReport:
    """Run a model in every type, and quantised by every recipe, and compare it, layer by layer, with float64.

    ``types`` are short names (``posit16``), ``custom[name]bits``, or scaled types (``mxfp4``); ``recipes`` are those of
    `graft.quantize`, calibrated by ``calibration`` (the data without it). ``data`` are as for that, too (seeded random
    inputs without them); ``labels`` are one class per row, where the data have none. ``limit`` uses so many rows only,
    in whole batches of the model; ``accumulate`` is that of `graft.datatypes.convert` (for scaled types a type;
    recipes have their own), ``keep`` are nodes that stay in float32; ``costs`` is a table of what hardware takes
    (`graft.measure.hardware_cost`), by name, a TOML file, or as it is. Raises DatatypeError for unknown types,
    RecipeError for wrong recipes and for data that do not fit the model.
    """
    (manager or plugins()).plugins()  # which registers their datatypes
    sums = "" if accumulate == EACH else accumulate
    named = {name: in_blocks(name, sums) if is_scaled_type(name) else type_named(name) for name in types}
    wanted = [recipe_of(one) for one in recipes]
    original = load(model, shapes=shapes).clone()
    normalize(original)
    require_static(original)
    fed, truth = _fed(original, data, labels, limit)
    table = None if costs is None else table_of(costs, manager or plugins())
    study = _Study(original, fed, truth, Running(threads, manager), table)
    rows = [study.row(_in_type(FLOAT32, FLOAT32, original, original, FLOAT_BITS))]
    for name, one in (*named.items(), *((one.name, one) for one in wanted)):
        if isinstance(one, Recipe):
            kept, given = replace(one, keep=(*one.keep, *keep)), fed if calibration is None else calibration
            rows.append(study.row(_by_recipe(kept, original, given, study.running)))
        else:
            converted = convert(original, one, accumulate=accumulate, keep=keep)
            own = "" if accumulate in (EACH, QUIRE) else accumulate
            rows.append(study.row(_in_type(name, one, original, converted, parse_custom(one)[1], sums=own)))
    title = original.graph.name or "model"
    return SweepReport(title, len(fed), truth is not None, accumulate, tuple(rows))


def _fed(
    model: ir.Model, data: Given | None, labels: np.ndarray | None, limit: int | None
) -> tuple[list[Feeds], np.ndarray | None]:
    """Return the batches that the model runs on, and the labels of all of them."""
    if data is None and labels is not None:
        raise DatatypeError("labels are given without data; give the rows that they belong to")
    if data is None:
        return [sample_inputs(model, seed) for seed in range(limit or SAMPLES)], None
    found, rows = [], 0
    for batch in Batches(data if labels is None else [(data, labels)], model):
        found.append(batch)
        rows += next((len(array) for array in batch.feeds.values() if array.ndim), 1)
        if limit is not None and rows >= limit:
            break
    truth = [batch.labels for batch in found if batch.labels is not None]
    return [batch.feeds for batch in found], np.concatenate(truth) if truth else None


@dataclass(frozen=True, slots=True)
class _Form:
    """A model in a form of its own, and how it is looked at.

    ``observed`` has further outputs, named in ``watched``; a layer of ``seen`` is an operator, and what takes in its
    errors: from all values of a batch and its result in float64.
    """

    name: str
    type: str
    model: ir.Model
    size: Size
    observed: ir.Model
    formats: Callable[[Product], Formats]
    watched: Sequence[str]
    seen: Mapping[str, tuple[str, Callable[[Errors, Feeds, np.ndarray], None]]]
    largest: float = np.inf
    smallest: float = 0.0


def _in_type(name: str, dtype: str, original: ir.Model, model: ir.Model, bits: float, sums: str = "") -> _Form:
    """Return a model that computes in a type, with ``sums``; a layer is what does, and all of float32.

    ``sums`` are of a type by its name, or "".
    """
    format = DATATYPES.format(dtype) if is_custom(dtype) else None
    largest, smallest = (np.inf, 0.0) if format is None else (format.largest, format.smallest)
    layers = dict(layers_of(model)) or {node.name or "": node.op_type for node in model.graph}
    observed, names = with_layers(model, [layer for layer in layers if layer in _float_layers(original)])

    def taker(output: str) -> Callable[[Errors, Feeds, np.ndarray], None]:
        return lambda errors, found, exact: errors.add(found[output], exact, largest, smallest)

    same = {(node.name, node.domain, node.op_type) for node in model.graph}

    def bits_of(product: Product) -> tuple[float, float]:
        own = FLOAT_BITS if is_kept(product) else bits
        return own, own

    def is_kept(product: Product) -> bool:
        return (product.node.name, product.node.domain, product.node.op_type) in same

    def formats(product: Product) -> Formats:
        return (FLOAT32, FLOAT32, "") if is_kept(product) else (_short(dtype), _short(dtype), _short(sums))

    seen = {layer: (layers[layer], taker(output)) for layer, output in names.items()}
    return _Form(name, dtype, model, size_of(original, bits_of), observed, formats, (), seen, largest, smallest)


def _by_recipe(recipe: Recipe, original: ir.Model, data: Given, running: Running) -> _Form:
    """Return a model quantised by a recipe; a layer is a node that reads codes."""
    quantizer = Quantizer.measured(original, [recipe], data, None, running)
    model = quantizer.written(recipe)
    type = scaled_name(recipe.scaled_type) if recipe.blocks and not recipe.layers else "recipe"
    layers = quantized_layers(original, model)
    watched = [name for layer in layers for name in layer.code_names]
    seen = {layer.name: (layer.operator, layer.add) for layer in layers}
    names = quantizer.formats_of(recipe)

    def formats(product: Product) -> Formats:
        weight, activation, sums = map(_short, names(product))
        return weight, activation, sums

    return _Form(recipe.name, type, model, quantizer.size_of(recipe), model, formats, watched, seen)


def _short(dtype: str) -> str:
    """Return the short name of a type."""
    return next((short for short, whole in short_names().items() if whole == dtype), dtype)


def _float_layers(model: ir.Model) -> list[str]:
    kinds = ("float16", "bfloat16", "float32", "float64")
    return [node.name or "" for node in model.graph if ValueView(node.outputs[0]).dtype in kinds]


class _Study:
    """The model in float64, run once: every form is compared with its results."""

    def __init__(self, model: ir.Model, fed: list[Feeds], labels: np.ndarray | None, running: Running,
        costs: CostTable | None = None,
    ) -> None:  # fmt: skip
        self._original, self._costs = model, costs
        self._fed, self._labels, self.running = fed, labels, running
        self._output = model.graph.outputs[0].name or ""
        observed, names = with_layers(in_float64(model), _float_layers(model))
        run = running.runner(observed)
        wide = [self._widened(one) for one in fed]
        self._exact = [(results[self._output], {k: results[v] for k, v in names.items()}) for results in map(run, wide)]
        for feeds, (exact, _) in zip(fed, self._exact, strict=True):
            require_numbers(self._output, exact, feeds)
        self._float32_ms = 0.0

    def row(self, form: _Form) -> TypeRow:
        """Return the errors, the accuracy and the time of one form of the model."""
        run = self.running.runner(form.observed, form.watched)
        errors = {layer: Errors() for layer in form.seen}
        total, results = Errors(), []
        for feeds, (exact, inner) in zip(self._fed, self._exact, strict=True):
            found = run(feeds)
            results.append(found[self._output])
            total.add(found[self._output].astype(np.float64), exact, form.largest, form.smallest)
            for layer, (_, take) in form.seen.items():
                take(errors[layer], found, inner[layer])
        best = self._time(form.model)
        self._float32_ms = self._float32_ms or best
        classes, wanted = self._classes(results), self._classes([exact for exact, _ in self._exact])
        accuracy = None if self._labels is None else float(np.mean(classes == self._labels))
        rows = tuple(LayerRow.of(layer, form.seen[layer][0], one) for layer, one in errors.items())
        whole = LayerRow.of(self._output, "output", total)
        size, cost = form.size, HardwareCost(None, None)
        if self._costs is not None:
            cost = cost_of(self._original, form.formats, size.weight_bytes, self._costs)
        return TypeRow(
            form.name, form.type, accuracy, float(np.mean(classes == wanted)), whole, best, best / self._float32_ms,
            size.weight_bits, size.activation_bits, size.weight_bytes, cost.energy_uj, cost.area_um2, rows,
        )  # fmt: skip

    def _widened(self, feeds: Feeds) -> Feeds:
        return {k: array.astype(np.float64) if array.dtype.kind == "f" else array for k, array in feeds.items()}

    def _classes(self, results: list[np.ndarray]) -> np.ndarray:
        """The largest output of every row."""
        return np.concatenate([np.argmax(np.atleast_2d(one).reshape(-1, one.shape[-1]), axis=1) for one in results])

    def _time(self, model: ir.Model) -> float:
        """The best time of one call, in milliseconds."""
        run, feeds = self.running.program(model).run, self._fed[0]
        best, deadline = np.inf, perf_counter() + 1.0
        for _ in range(30):
            started = perf_counter()
            run(feeds)
            best = min(best, perf_counter() - started)
            if perf_counter() > deadline:
                break
        return float(best) * 1e3
