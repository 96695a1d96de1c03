"""How far arrays are from what they should be, and how far they may be."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from graft.measure.quantisation_steps import in_steps, steps_of


@dataclass(frozen=True, slots=True)
class Difference:
    """How far one array is from its reference: the largest absolute and relative error, and the verdict.

    ``steps`` says how many elements are how many steps of quantisation apart, where it was judged by these.
    """

    max_abs: float
    max_rel: float
    ok: bool
    steps: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far an element may be from its reference ``r``: by ``atol + rtol * |r|``, or by ``steps`` of a scale.

    ``scales`` are those of the values, by name, that are judged by their steps.
    """

    rtol: float
    atol: float
    steps: int | None = None
    scales: Mapping[str, float] = field(default_factory=dict)

    def among(self, model: ir.Model, names: Collection[str]) -> Tolerance:
        """Return the tolerance for values of a model, with the scales of those that have one."""
        if self.steps is None:
            return self
        wanted = frozenset(names)
        values = (value for node in model.graph for value in node.outputs if value.name in wanted)
        return replace(self, scales=steps_of(values))

    def judge(self, actual: np.ndarray, expected: np.ndarray, name: str = "") -> Difference:
        """Return how far the array of a value is from its reference."""
        found = difference(actual, expected, self.rtol, self.atol)
        if self.steps is None or name not in self.scales or not math.isfinite(found.max_abs):
            return found
        counts = in_steps(actual, expected, self.scales[name])
        return replace(found, ok=max(map(abs, counts), default=0) <= self.steps, steps=counts)


def difference(actual: np.ndarray, expected: np.ndarray, rtol: float, atol: float) -> Difference:
    """Return the largest errors of ``actual``; equal infinities and NaNs agree; a wrong shape or dtype fails."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return Difference(float("inf"), float("inf"), False)
    if actual.size == 0:
        return Difference(0.0, 0.0, True)
    if actual.dtype == np.bool_:
        same = bool(np.all(actual == expected))
        return Difference(0.0 if same else 1.0, 0.0 if same else 1.0, same)
    wide = np.complex128 if np.iscomplexobj(actual) else np.float64
    left, right = actual.astype(wide), expected.astype(wide)
    agree = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = np.where(agree, 0.0, np.abs(left - right))
        errors = np.where(np.isnan(errors), np.inf, errors)  # a NaN on one side only
        relative = np.where(agree, 0.0, np.where(np.isinf(errors), np.inf, errors / np.abs(right)))
        within = np.isfinite(errors) & (errors <= atol + rtol * np.abs(right))  # not where the reference is infinite
    return Difference(float(np.max(errors)), float(np.max(relative)), bool(np.all(agree | within)))
