"""Metrics: what a model is worth on data, by its labels or by the user's own function; larger is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from graft.errors import RecipeError
from graft.quantization.statistics.data import Batch, Feeds, called
from graft.runtime.foreign import shown

Metric = Callable[[Mapping[str, np.ndarray], "np.ndarray | None"], float]
"""Gets the outputs of all rows of the data by name, and the labels; gives a number, the larger the better."""


def accuracy(outputs: Mapping[str, np.ndarray], labels: np.ndarray | None) -> float:
    """Return the share of labels that the largest element along the last axis of the first output names."""
    first = next(iter(outputs.values()))
    assert labels is not None
    return float(np.mean(first.reshape(-1, first.shape[-1]).argmax(axis=1) == labels))


class Scores:
    """Outputs of a model, gathered batch by batch until a metric asks for all of them."""

    def __init__(self) -> None:
        self._outputs: dict[str, list[np.ndarray]] = {}
        self._labels: list[np.ndarray] = []

    def add(self, outputs: Mapping[str, np.ndarray], labels: np.ndarray | None) -> None:
        """Take in the outputs of one batch."""
        for name, array in outputs.items():
            self._outputs.setdefault(name, []).append(array)
        if labels is not None:
            self._labels.append(labels)

    def value(self, metric: Metric | None) -> float | None:
        """Return what a metric makes of them: accuracy where there are labels and no other metric, else None.

        Raises RecipeError if the user's metric gives no number.
        """
        labels = np.concatenate(self._labels) if self._labels else None
        if metric is None and labels is None:
            return None
        outputs = {name: np.concatenate(parts) for name, parts in self._outputs.items()}
        found = called("metric", metric or accuracy, outputs, labels)
        try:
            number = float(found)
        except (TypeError, ValueError):
            number = math.nan
        if math.isnan(number):
            raise RecipeError(f"the metric gave {shown(found)}; give a number, the larger the better")
        return number


def score(
    run: Callable[[Feeds], Feeds], outputs: Iterable[str], data: Iterable[Batch], metric: Metric | None
) -> float | None:
    """Return the metric of a model that ``run`` runs, over all data."""
    scores, names = Scores(), list(outputs)
    for batch in data:
        found = run(batch.feeds)
        scores.add({name: found[name] for name in names}, batch.labels)
    return scores.value(metric)
