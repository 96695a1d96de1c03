"""Shapes of operators that reduce axes."""

from __future__ import annotations

from collections.abc import Mapping

from graft.core.operators.definition.facts import Facts, Shape, ShapeRule, normal_axis

_REDUCTIONS = """
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
"""


def _reduce(facts: Facts) -> list[Shape | None]:
    shape = facts.shape(0)
    if shape is None:
        return []
    axes = facts.numbers(1, "axes")
    if axes is None and facts.has(1):
        counted = facts.shape(1)
        if not facts.attribute("keepdims", 1):
            fixed = isinstance(counted[0], int) if counted else False
            return [(None,) * (len(shape) - counted[0]) if fixed else None]  # type: ignore[operator, index]
        return [(None,) * len(shape)]
    if not axes and facts.attribute("noop_with_empty_axes", 0):
        return [shape]
    return [_without(shape, axes or range(len(shape)), bool(facts.attribute("keepdims", 1)))]


def _arg(facts: Facts) -> list[Shape | None]:
    shape = facts.shape(0)
    keep = bool(facts.attribute("keepdims", 1))
    return [] if shape is None else [_without(shape, [facts.attribute("axis", 0)], keep)]


def _without(shape: Shape, axes: object, keep: bool) -> Shape:
    gone = {normal_axis(axis, len(shape)) for axis in axes}  # type: ignore[attr-defined]
    if keep:
        return tuple(1 if axis in gone else extent for axis, extent in enumerate(shape))
    return tuple(extent for axis, extent in enumerate(shape) if axis not in gone)


def _global_pool(facts: Facts) -> list[Shape | None]:
    shape = facts.shape(0)
    return [] if shape is None else [(*shape[:2], *(1 for _ in shape[2:]))]


def _determinant(facts: Facts) -> list[Shape | None]:
    shape = facts.shape(0)
    return [] if shape is None else [shape[:-2]]


def _loss(facts: Facts) -> list[Shape | None]:
    """Return the shape of a loss over classes, the second axis, and that of the logarithms."""
    labels = facts.shape(1)
    return [labels if facts.attribute("reduction", "mean") == "none" else (), facts.shape(0)]


RULES: Mapping[str, ShapeRule] = {
    **dict.fromkeys(_REDUCTIONS.split(), _reduce),
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), _global_pool),
    "Det": _determinant,
    "NegativeLogLikelihoodLoss": _loss,
    "SoftmaxCrossEntropyLoss": _loss,
}
