"""The search for a bound on a metric: which layers stay in floats so that no more of it is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import onnx_ir as ir

from graft.errors import AccuracyError
from graft.quantization.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound on a metric, and what is asked of models: to be written by a recipe, their metric, their layers.

    ``worst`` gives the names of the quantised layers, the one of the largest error first.
    """

    least: float
    write: Callable[[Recipe], ir.Model]
    metric: Callable[[ir.Model], float]
    worst: Callable[[ir.Model], list[str]]

    def best(self, recipe: Recipe) -> ir.Model:
        """Return the first model that is within the bound: with no layer in floats, the worst, twice as many each time.

        Raises AccuracyError, with the best model, if none is.
        """
        best = self.write(recipe)
        value = self.metric(best)
        layers = self.worst(best) if value < self.least else []
        for kept in _twice(len(layers)):
            if value >= self.least:
                return best
            names = (literal(name) for name in layers[:kept])
            one = self.write(replace(recipe, keep=(*recipe.keep, *names)))
            found = self.metric(one)
            if found > value:
                best, value = one, found
        if value >= self.least:
            return best
        raise AccuracyError(
            f"the metric is {value:.4g} at best, with the layers of the largest errors in floats, where at least "
            f"{self.least:.4g} is wanted; allow more, or take a recipe of more bits",
            model=best,
            metric=value,
        )


def _twice(count: int) -> Iterator[int]:
    kept = 1
    while kept < count:
        yield kept
        kept *= 2


def literal(name: str) -> str:
    """Return a pattern that fits a name alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
