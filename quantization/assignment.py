"""Mixed precision: which recipe each layer gets, so that the weights of a model take few bits and it keeps its worth.

First each layer is quantised alone, by every recipe: what that adds to the error of the outputs is its sensitivity.
Where errors of layers add, the assignments that no other beats in both bits and error lie on one path, from the
recipes of least error to those of fewest bits, the steps that add the least error for a bit saved first. Then models
are measured: those of the path by halving it, and beyond the last that is good enough single steps that it left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import constant_tensor
from graft.core.importer.source import SOURCE, Source
from graft.errors import AccuracyError, RecipeError
from graft.plugins.registry.manager import MANAGER
from graft.quantization.metrics import Metric, Scores
from graft.quantization.preparation import in_floats
from graft.quantization.quantizer import Quantizer
from graft.quantization.recipe import FLOATS, RECIPES, Recipe, recipe_of
from graft.quantization.search import literal
from graft.quantization.sites import Product, sites_of
from graft.quantization.sizes import FLOAT_BITS, bits_in_blocks
from graft.quantization.statistics.data import Batches, Feeds, Given, called
from graft.quantization.statistics.observation import Progress, Running
from graft.quantization.weights import key_of
from graft.runtime.arguments import FUNCTION, NUMBER, PATH, SHAPES, WHOLE, optional, takes
from graft.runtime.system.displayed import notebook_bar

if TYPE_CHECKING:
    from graft.plugins.registry.manager import PluginManager

MIXED = ("int8-weights", "mxfp6-weights", "int4-weights", "mxfp4-weights", "int3-weights")
"""The recipes that layers get without others being named."""
ROWS = 64
"""The batches of data on which the sensitivity of layers is measured."""
TRIES = 24
"""The models that are measured beyond the path."""
Choice = tuple[int, ...]
"""For each layer the number of its recipe."""
Step = tuple[int, int]
"""A layer, and the recipe that it gets."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """A layer's name, and for each recipe the bits of its weights and what it adds to the error of the outputs."""

    layer: str
    bits: tuple[float, ...]
    errors: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The recipe that was found, a row of ``sensitivity`` for each layer, and the model.

    ``bits`` are those of a weight on average, scales counted; ``snr_db`` is the signal-to-noise ratio of the outputs.
    The metrics are None without labels and without a metric.
    """

    recipe: Recipe
    model: ir.Model
    recipes: tuple[str, ...]
    sensitivity: tuple[Sensitivity, ...]
    bits: float
    snr_db: float
    metric: float | None
    float_metric: float | None
    measured: int
    """The models that were measured after the layers."""


@takes(
    model=SOURCE, recipes=RECIPES, within=optional(NUMBER), bits=optional(NUMBER), metric=optional(FUNCTION),
    shapes=optional(SHAPES), threads=optional(WHOLE), progress=optional(FUNCTION), resume=optional(PATH),
    manager=optional(MANAGER),
)  # fmt: skip
def assign(
    model: Source,
    recipes: Sequence[str | os.PathLike[str] | Recipe | Mapping[str, Any]] = MIXED,
    data: Given | None = None,
    *,
    within: float | None = None,
    bits: float | None = None,
    metric: Metric | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    resume: str | os.PathLike[str] | None = None,
    manager: PluginManager | None = None,
) -> Assignment:
    """Return the recipe that gives each product one of several, ``"float32"`` among them if it is named.

    With ``within`` it is the one of fewest bits a weight that loses no more of the metric, as for `graft.quantize`;
    with ``bits`` the best of at most so many; with both the best of so many must lose no more. Data are read many
    times. Switches are those of the first recipe; biases are corrected where one recipe does. ``resume`` is as for
    `graft.quantize`.

    Raises RecipeError for no bound, and for bits that are fewer than those of all; AccuracyError, whose ``model`` and
    ``recipe`` are the best that was found, where nothing found is within the bound.
    """
    if within is None and bits is None:
        raise RecipeError("say what bounds the search: within, how much of the metric may be lost, or bits a weight")
    if data is None:
        raise RecipeError("the sensitivity of layers is measured on data; give some")
    wanted = [FLOATS if one == FLOATS.name else recipe_of(one) for one in recipes]
    correct = any(one.correct_bias for one in wanted)
    measured = [one if one.blocks else replace(one, correct_bias=correct) for one in wanted if one != FLOATS]
    if not measured:
        raise RecipeError("there is no recipe to choose; give at least one beside 'float32'")
    running = Running(threads, manager, resume)
    original = in_floats(model, shapes, measured[0].decompose, measured[0].without)
    quantizer = Quantizer.measured(original, measured, data, metric, running, notebook_bar())
    search = _Search(quantizer, wanted, correct, _Judge(quantizer), progress)
    least = None if within is None else search.judge.float_metric_needed() - within
    return search.result(search.best_of(bits) if bits is not None else search.cheapest(least or 0.0), least)


# ---- The path, by sensitivities alone -----------------------------------------------------------------------------


def path_of(rows: Sequence[Sensitivity]) -> list[Choice]:
    """Return assignments from the least error to the fewest bits, steps that add least error for a bit saved first.

    If errors add, none of all assignments has both fewer bits and less error than one of these.
    """
    start = [min(range(len(row.bits)), key=lambda one: (row.errors[one], row.bits[one])) for row in rows]
    steps: list[tuple[float, int, int]] = []
    for place, row in enumerate(rows):
        at = start[place]
        while below := [one for one in range(len(row.bits)) if row.bits[one] < row.bits[at]]:
            slopes = {one: slope(row, at, one) for one in below}
            at = min(below, key=lambda one: (slopes[one], row.bits[one]))
            steps.append((slopes[at], place, at))
    path = [tuple(start)]
    for _, place, choice in sorted(steps, key=lambda step: step[0]):
        path.append(moved(path[-1], (place, choice)))
    return path


def slope(row: Sensitivity, at: int, to: int) -> float:
    """Return the error that a step to a recipe of other bits adds for each bit that it saves."""
    return (row.errors[to] - row.errors[at]) / (row.bits[at] - row.bits[to])


def bits_of(rows: Sequence[Sensitivity], choice: Choice) -> float:
    """Return the bits of all weights by an assignment."""
    return sum(row.bits[one] for row, one in zip(rows, choice, strict=True))


def single_steps(rows: Sequence[Sensitivity], choice: Choice, *, up: bool = False) -> list[Step]:
    """Return the steps of one layer to fewer bits (``up``: to more, for less error), the best first."""
    found = []
    for place, row in enumerate(rows):
        at = choice[place]
        for to, bits in enumerate(row.bits):
            if bits > row.bits[at] and row.errors[to] < row.errors[at] if up else bits < row.bits[at]:
                found.append((slope(row, at, to), place, to))
    return [(place, to) for _, place, to in sorted(found, reverse=up)]


def moved(choice: Choice, step: Step) -> Choice:
    """Return an assignment with one layer changed."""
    place, to = step
    return (*choice[:place], to, *choice[place + 1 :])


# ---- Models, measured ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Worth:
    """What a model is worth: by the metric, -inf if there is none, and by the signal of its outputs."""

    metric: float
    snr_db: float


def standard_error(share: float, count: int) -> float:
    """Return the standard error of an accuracy that was measured on so many labels."""
    return float(np.sqrt(share * (1 - share) / max(count, 1)))


def rank_of(worth: Worth, most: float | None, chance: float) -> tuple[float, float]:
    """Return what models are compared by: the metric, and of those that chance alone may part, the signal.

    These are all whose metric is at most ``chance`` below that of the float model (``most``), or above it.
    """
    return (worth.metric if most is None else min(worth.metric, most - chance)), worth.snr_db


class _Judge:
    """The outputs of the float model on the data, and what other models are worth beside it."""

    def __init__(self, quantizer: Quantizer) -> None:
        self._quantizer = quantizer
        self._names = [value.name or "" for value in quantizer.original.graph.outputs]
        self._exact = self._run(quantizer.original, None)
        self._scales = {
            name: sum(float(np.sum(np.square(one[name], dtype=np.float64))) for one in self._exact) or 1.0
            for name in self._names
        }
        self.float_metric = self._scored(self._exact)
        labels = sum(np.size(batch.labels) for batch in self._batches() if batch.labels is not None)
        known = quantizer.metric is None and self.float_metric is not None
        self.chance = standard_error(self.float_metric or 0.0, labels) if known else 0.0
        """The standard error of the float model's accuracy; of a user's metric none is known."""

    def float_metric_needed(self) -> float:
        """Return the metric of the float model; raise RecipeError if there is none."""
        if self.float_metric is None:
            raise RecipeError("a bound on the metric needs labels in the data, or a metric")
        return self.float_metric

    def error(self, model: ir.Model, limit: int | None = None) -> float:
        """Return the square error of the outputs over their squares, on the first batches."""
        return self._error(self._run(model, limit))

    def worth(self, model: ir.Model) -> Worth:
        """Return what a model is worth on all data."""
        found = self._run(model, None)
        metric, error = self._scored(found), self._error(found)
        return Worth(-np.inf if metric is None else metric, -10 * float(np.log10(max(error, 1e-30))))

    def _batches(self) -> Batches:
        return Batches(self._quantizer.data, self._quantizer.original)

    def _run(self, model: ir.Model, limit: int | None) -> list[Feeds]:
        run = self._quantizer.running.runner(model)
        batches = islice(self._batches(), limit)
        return [{name: values[name] for name in self._names} for values in (run(batch.feeds) for batch in batches)]

    def _error(self, found: list[Feeds]) -> float:
        pairs = list(zip(found, self._exact, strict=False))
        return sum(
            sum(float(np.sum(np.square(one[name] - exact[name], dtype=np.float64))) for one, exact in pairs) / scale
            for name, scale in self._scales.items()
        )

    def _scored(self, found: list[Feeds]) -> float | None:
        scores = Scores()
        for batch, one in zip(self._batches(), found, strict=True):
            scores.add(one, batch.labels)
        return scores.value(self._quantizer.metric)


class _Search:
    """The search among the assignments of recipes to the products of a model."""

    def __init__(
        self, quantizer: Quantizer, recipes: Sequence[Recipe], correct: bool, judge: _Judge, progress: Progress | None
    ) -> None:
        self.judge, self._quantizer, self._recipes, self._correct = judge, quantizer, recipes, correct
        self._progress, self._models, self._known = progress, 0, dict[Choice, Worth]()
        whole = replace(next((one for one in recipes if one.weights is not None), Recipe()), layers=())
        self._products = sites_of(quantizer.floats, whole).products
        self.rows = tuple(self._row(product) for product in self._products)
        self._weights = sum(_size(product) for product in self._products)

    def best_of(self, bits: float) -> Choice:
        """Return the best assignment of at most so many bits a weight: of the path, with room filled up, or uniform."""
        most = bits * self._weights + 1e-6
        fitting = [one for one in path_of(self.rows) if bits_of(self.rows, one) <= most]
        uniform = [(number,) * len(self.rows) for number in range(len(self._recipes))]
        uniform = [one for one in uniform if bits_of(self.rows, one) <= most]
        if not fitting and not uniform:
            fewest = bits_of(self.rows, path_of(self.rows)[-1]) / self._weights
            raise RecipeError(f"at most {bits:g} bits a weight are wanted; all recipes take {fewest:.2f} or more")
        choices = [*fitting[:1], *uniform]
        while fitting:
            steps = (moved(choices[0], step) for step in single_steps(self.rows, choices[0], up=True))
            following = next((one for one in steps if bits_of(self.rows, one) <= most), None)
            if following is None:
                break
            choices[0] = following
        return max(choices, key=self._rank)

    def _rank(self, choice: Choice) -> tuple[float, float]:
        """Return what assignments are compared by."""
        return rank_of(self.worth(choice), self.judge.float_metric, self.judge.chance)

    def cheapest(self, least: float) -> Choice:
        """Return the assignment of fewest bits among those measured whose metric is at least this; the best if none."""
        path = path_of(self.rows)
        if self.worth(path[0]).metric < least:
            return path[0]
        first, beyond = 0, len(path)
        while beyond - first > 1:
            middle = (first + beyond) // 2
            first, beyond = (middle, beyond) if self.worth(path[middle]).metric >= least else (first, middle)
        choice, failed = path[first], set[Step]()
        for _ in range(TRIES):
            step = next((one for one in single_steps(self.rows, choice) if one not in failed), None)
            if step is None:
                break
            if self.worth(moved(choice, step)).metric >= least:
                choice = moved(choice, step)
            else:
                failed.add(step)
        return choice

    def worth(self, choice: Choice) -> Worth:
        """Return what an assignment is worth, measured once."""
        if choice not in self._known:
            self._known[choice] = self.judge.worth(self._quantizer.written(self.recipe(choice)))
            self._tick()
        return self._known[choice]

    def recipe(self, choice: Choice) -> Recipe:
        """Return an assignment as a recipe: that of most layers, and others by name; those in blocks are all named."""
        base = self._recipes[max(choice, key=choice.count)]
        base = FLOATS if base.blocks else base
        layers = tuple(
            (literal(product.node.name or ""), self._recipes[one])
            for product, one in zip(self._products, choice, strict=True)
            if self._recipes[one] is not base
        )
        return replace(base, name="mixed", correct_bias=self._correct, layers=layers)

    def result(self, choice: Choice, least: float | None) -> Assignment:
        """Return an assignment as it is handed out; raise AccuracyError if its metric is less than wanted."""
        recipe, worth = self.recipe(choice), self.worth(choice)
        model = self._quantizer.written(recipe)
        metric = None if np.isinf(worth.metric) else worth.metric
        if least is not None and worth.metric < least:
            raise AccuracyError(
                f"the metric is {worth.metric:.4g} at best, where at least {least:.4g} is wanted; allow more, or name "
                "recipes of more bits",
                model=model,
                recipe=recipe,
                metric=metric,
            )
        return Assignment(
            recipe, model, tuple(one.name for one in self._recipes), self.rows,
            bits_of(self.rows, choice) / self._weights, worth.snr_db, metric, self.judge.float_metric, len(self._known),
        )  # fmt: skip

    def _row(self, product: Product) -> Sensitivity:
        """Return what each recipe makes of a layer alone."""
        name, found = product.node.name or "", []
        for one in self._recipes:
            if one == FLOATS:
                found.append((FLOAT_BITS * _size(product), 0.0))
                continue
            alone = replace(FLOATS, correct_bias=self._correct, layers=((literal(name), one),))
            error = self.judge.error(self._quantizer.written(alone), ROWS)
            bits = FLOAT_BITS * _size(product)
            if one.blocks:
                bits = bits_in_blocks(product, one.scaled_type) * _size(product)
            elif one.weights is not None:
                bits = self._quantizer.facts.rounded[key_of(replace(product, scaling=one.weights))].stored_bits
            found.append((bits, error))
            self._tick()
        return Sensitivity(name, *zip(*found, strict=True))

    def _tick(self) -> None:
        self._models += 1
        if self._progress is not None:
            called("progress function", self._progress, self._models, None)


def _size(product: Product) -> int:
    tensor = constant_tensor(product.weights)
    assert tensor is not None, product.weights.name
    return int(tensor.size)
