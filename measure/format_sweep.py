"""The sweep: one model in many number formats, on real data, beside float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from graft.compiler.api import compile
from graft.compiler.request import plugins
from graft.core.graph.view import ValueView
from graft.core.importer.load import load
from graft.core.importer.source import SOURCE, Source
from graft.core.passes.normalize import normalize
from graft.core.shapes.inference import require_static
from graft.core.shapes.sample_inputs import sample_inputs
from graft.datatypes.conversion import convert
from graft.datatypes.prepare import EACH
from graft.datatypes.shipped import DATATYPES
from graft.datatypes.study import (
    Errors,
    LayerRow,
    SweepReport,
    TypeRow,
    batches,
    in_float64,
    layers_of,
    type_named,
    with_layers,
)
from graft.errors import DatatypeError
from graft.plugins.registry.manager import MANAGER
from graft.runtime.arguments import ARRAY, FEEDS, SHAPES, TEXT, TEXTS, WHOLE, at_least, optional, takes

if TYPE_CHECKING:
    from graft.plugins.registry.manager import PluginManager

Feeds = dict[str, np.ndarray]
SAMPLES = 8
FLOAT32 = "float32"


@takes(
    model=SOURCE, types=TEXTS, data=optional(FEEDS), labels=optional(ARRAY),
    manager=optional(MANAGER), accumulate=TEXT, keep=TEXTS, shapes=optional(SHAPES),
    threads=optional(WHOLE), limit=optional(at_least(1)),
)  # fmt: skip
def sweep(
    model: Source,
    types: Sequence[str],
    data: Mapping[str, np.ndarray] | None = None,
    labels: np.ndarray | None = None,
    *,
    accumulate: str = EACH,
    keep: Sequence[str] = (),
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    limit: int | None = None,
    manager: PluginManager | None = None,
) -> SweepReport:
    """Run a model in every type and compare it, layer by layer, with itself in float64.

    ``types`` are short names (``posit16``) or ``custom[name]bits``; ``data`` has an array per input of the model, with
    any number of batches stacked along the first dimension (seeded random ones without it), ``labels`` one class per
    row. ``limit`` uses that many rows only; ``accumulate`` and ``keep`` are those of `graft.datatypes.convert`. Raises
    DatatypeError for unknown types and for data that do not fit the model.
    """
    (manager or plugins()).plugins()  # which registers their datatypes
    named = {name: type_named(name) for name in types}
    original = load(model, shapes=shapes).clone()
    normalize(original)
    require_static(original)
    fed = _fed(original, data, labels, limit)
    truth = None if labels is None else np.asarray(labels).reshape(-1)[:limit]
    study = _Study(original, fed, truth, threads, manager)
    rows = [study.row(FLOAT32, FLOAT32, original.clone(), np.inf, 0.0)]
    for name, dtype in named.items():
        converted = convert(original, dtype, accumulate=accumulate, keep=keep)
        format = DATATYPES.format(dtype)
        largest, smallest = (np.inf, 0.0) if format is None else (format.largest, format.smallest)
        rows.append(study.row(name, dtype, converted, largest, smallest))
    title = original.graph.name or "model"
    return SweepReport(title, len(fed), truth is not None, accumulate, tuple(rows))


def _fed(
    model: ir.Model, data: Mapping[str, np.ndarray] | None, labels: np.ndarray | None, limit: int | None
) -> list[Feeds]:
    """Return the batches that the model runs on."""
    if data is None and labels is not None:
        raise DatatypeError("labels are given without data; give the rows that they belong to")
    if data is None:
        return [sample_inputs(model, seed) for seed in range(limit or SAMPLES)]
    inputs = [ValueView(value) for value in model.graph.inputs if value.name not in model.graph.initializers]
    cut = {name: array[:limit] for name, array in data.items()}
    fed = batches(cut, {view.name: view.static_shape or () for view in inputs})
    rows = len(fed) * (inputs[0].static_shape or (1,))[0]
    if labels is not None and len(np.asarray(labels).reshape(-1)[:limit]) != rows:
        raise DatatypeError(
            f"there are {len(np.asarray(labels).reshape(-1)[:limit])} labels for {rows} rows of data; give one label "
            "per row",
            labels=np.asarray(labels).size,
        )
    kinds = {view.name: view.dtype for view in inputs}
    return [{name: array.astype(kinds[name], copy=False) for name, array in one.items()} for one in fed]


class _Study:
    """The model in float64, run once: every type is compared with its results."""

    def __init__(
        self,
        model: ir.Model,
        fed: list[Feeds],
        labels: np.ndarray | None,
        threads: int | None,
        manager: PluginManager | None,
    ) -> None:
        self._model, self._fed, self._labels = model, fed, labels
        self._threads, self._manager = threads, manager
        self._output = model.graph.outputs[0].name or ""
        self._layers = [node.name or "" for node in model.graph if self._has_floats(node)]
        observed, names = with_layers(in_float64(model), self._layers)
        run = self._runner(observed)
        wide = [self._widened(one) for one in fed]
        self._exact = [(results[self._output], {k: results[v] for k, v in names.items()}) for results in map(run, wide)]
        self._float32_ms = 0.0

    def row(self, name: str, dtype: str, model: ir.Model, largest: float, smallest: float) -> TypeRow:
        """Return the errors, the accuracy and the time of one form of the model."""
        layers = layers_of(model) if name != FLOAT32 else []
        operators = dict(layers) or {node.name or "": node.op_type for node in model.graph}
        observed, names = with_layers(model, [layer for layer in operators if layer in self._layers])
        run = self._runner(observed)
        errors = {layer: Errors() for layer in names}
        total, results = Errors(), []
        for feeds, (exact, inner) in zip(self._fed, self._exact, strict=True):
            found = run(feeds)
            results.append(found[self._output])
            total.add(found[self._output].astype(np.float64), exact, largest, smallest)
            for layer, output in names.items():
                errors[layer].add(found[output], inner[layer], largest, smallest)
        best = self._time(model)
        self._float32_ms = self._float32_ms or best
        classes, wanted = self._classes(results), self._classes([exact for exact, _ in self._exact])
        accuracy = None if self._labels is None else float(np.mean(classes == self._labels))
        rows = tuple(LayerRow.of(layer, operators[layer], one) for layer, one in errors.items())
        whole = LayerRow.of(self._output, "output", total)
        agreement = float(np.mean(classes == wanted))
        return TypeRow(name, dtype, accuracy, agreement, whole, best, best / self._float32_ms, rows)

    def _has_floats(self, node: ir.Node) -> bool:
        return ValueView(node.outputs[0]).dtype in ("float16", "bfloat16", "float32", "float64")

    def _widened(self, feeds: Feeds) -> Feeds:
        return {k: array.astype(np.float64) if array.dtype.kind == "f" else array for k, array in feeds.items()}

    def _classes(self, results: list[np.ndarray]) -> np.ndarray:
        """The largest output of every row."""
        return np.concatenate([np.argmax(np.atleast_2d(one).reshape(-1, one.shape[-1]), axis=1) for one in results])

    def _runner(self, model: ir.Model) -> Callable[[Feeds], Feeds]:
        manager = self._manager or plugins()
        program = compile(model, threads=self._threads, manager=manager, backends=manager.fallbacks())
        return program.run

    def _time(self, model: ir.Model) -> float:
        """The best time of one call, in milliseconds."""
        run, feeds = self._runner(model), self._fed[0]
        best, deadline = np.inf, perf_counter() + 1.0
        for _ in range(30):
            started = perf_counter()
            run(feeds)
            best = min(best, perf_counter() - started)
            if perf_counter() > deadline:
                break
        return float(best) * 1e3
