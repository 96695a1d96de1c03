"""Whether results differ by what rounding makes of operands: a sine of 1,000 in float16 has no digit that is sure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from graft.testkit.models.draw import is_real
from graft.testkit.models.model import RandomModel
from graft.testkit.models.reference import quietly

from .opening import Arrays

TRIALS = 4
UNITS = 4
"""Units in the last place by which an operand may be off, of a sum in another order."""
MARGIN = 4.0
"""How many times as far as the trials a result may be off."""
Alone = Callable[..., tuple[RandomModel, Arrays]]


def is_rounding(model: RandomModel, feeds: Arrays, got: Mapping[str, object], wanted: Arrays, alone: Alone) -> bool:
    """Whether no result is further from what is wanted than the model's own are, of values rounded otherwise.

    The model is computed node by node, as ``alone(node, model, feeds, values)`` gives them, and each node's results
    are moved by up to `UNITS` units in the last place before the next node reads them.
    """
    random = np.random.default_rng(model.seed)
    spread = dict.fromkeys(wanted, 0.0)
    for _ in range(TRIALS):
        values: dict[str, np.ndarray] = {}
        for node in model.nodes:
            part, given = alone(node, model, feeds, values)
            try:
                results = map(np.asarray, quietly(part.proto, given))
            except Exception:  # what decides a shape is another number now: nothing is known
                return False
            values |= {name: moved(result, random) for name, result in zip(part.outputs, results, strict=True)}
        for name, right in wanted.items():
            if values[name].shape != right.shape:
                return False
            spread[name] = max(spread[name], distance(values[name], right))
    return all(distance(np.asarray(got[name]), right) <= MARGIN * spread[name] for name, right in wanted.items())


def moved(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return numbers up to `UNITS` units in the last place away."""
    if not is_real(array):
        return array
    with np.errstate(all="ignore"):
        units = np.spacing(np.abs(array)).astype(np.float64) * random.uniform(-UNITS, UNITS, array.shape)
        return np.where(np.isfinite(units), array + units, array).astype(array.dtype)


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return how far apart two arrays of one shape are at most; infinite where one is NaN alone."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return np.inf
    if not is_real(other):
        return 0.0 if np.array_equal(one, other) else np.inf
    wide, right = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = np.where((wide == right) | (np.isnan(wide) & np.isnan(right)), 0.0, np.abs(wide - right))
    return float(np.max(np.where(np.isnan(apart), np.inf, apart), initial=0.0))
