"""What a row says of the attributes of a node: words for checks.

A check says None, or what is wrong. Checks are asked once types and shapes are known, of what neither shape inference
nor ONNX's checker looks at.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from graft.core.graph.view import NodeView

Fault: TypeAlias = Callable[[NodeView], "str | None"]
"""A check: says what is wrong with a node, None if nothing is."""

# ---- Attributes ---------------------------------------------------------------------------------------------------


def rank_of(node: NodeView, number: int) -> int | None:
    """Return the rank of an input, None if it is absent or unknown."""
    value = node.input(number)
    return None if value is None else value.rank


def _outside(name: str, given: int, rank: int, past: int = 0) -> str | None:
    limit = max(rank, 1)
    if -limit <= given < limit + past:
        return None
    return f"{name} {given} is out of range: an axis of a tensor of rank {rank} is in [{-limit}, {limit - 1 + past}]"


def axis(name: str = "axis", *, more: int = 0, past: int = 0, default: int | None = None) -> Fault:
    """The attribute is an axis of the first input, had it ``more`` axes; ``past`` counts legal ones behind the last."""

    def rule(node: NodeView) -> str | None:
        rank, given = rank_of(node, 0), node.attribute(name, default)
        return None if rank is None or given is None else _outside(name, given, rank + more, past)

    return rule


def axes(source: str | int, *, more: bool = False) -> Fault:
    """The attribute or constant input holds different axes of the first input, or of it with ``more``: as many more."""

    def rule(node: NodeView) -> str | None:
        rank, given = rank_of(node, 0), integers_of(node, source)
        if rank is None or given is None:
            return None
        rank += len(given) if more else 0
        faults = [fault for one in given if (fault := _outside("axis", one, rank)) is not None]
        if faults:
            return faults[0]
        if len({one % max(rank, 1) for one in given}) != len(given):
            return f"axes {given} name one axis twice"
        return None

    return rule


def constant_axis(number: int) -> Fault:
    """The constant input is one axis of the first input."""

    def rule(node: NodeView) -> str | None:
        rank, given = rank_of(node, 0), integers_of(node, number)
        return None if rank is None or not given else _outside("axis", given[0], rank)

    return rule


def integers_of(node: NodeView, source: str | int) -> list[int] | None:
    """Return the numbers of an attribute, or of a constant input; None where they are not known."""
    if isinstance(source, str):
        given = node.attribute(source)
        return None if given is None else list(given)
    value = node.input(source)
    array = None if value is None else value.constant
    return None if array is None else [int(one) for one in array.reshape(-1)]


def not_zero(number: int) -> Fault:
    """The constant input is one number other than 0."""

    def rule(node: NodeView) -> str | None:
        value = node.input(number)
        array = None if value is None else value.constant
        if value is None or array is None or array.reshape(-1)[0] != 0:
            return None
        return f"'{value.name}' is 0, and says no number of elements; give another number"

    return rule


def at_least(least: float, *names: str) -> Fault:
    """The attributes, numbers or lists of them, are finite and not less than ``least``."""

    def rule(node: NodeView) -> str | None:
        for name in names:
            given = node.attribute(name)
            for one in given if isinstance(given, list) else [] if given is None else [given]:
                if not (math.isfinite(one) and one >= least):
                    return f"{name} is {given}, where at least {least} is expected"
        return None

    return rule


def one_of(name: str, *choices: str | int) -> Fault:
    """The attribute is one of ``choices``."""

    def rule(node: NodeView) -> str | None:
        given = node.attribute(name)
        if given is None or given in choices:
            return None
        return f"{name} is {given!r}, where one of {', '.join(map(repr, choices))} is expected"

    return rule


def divides(name: str, input_axis: int, of: Callable[[int], int] = lambda number: number) -> Fault:
    """The attribute, or ``of`` it, is positive and divides the extent of an axis of the first input."""

    def rule(node: NodeView) -> str | None:
        given, value = node.attribute(name), node.input(0)
        if given is None:
            return None
        if given < 1:
            return f"{name} is {given}, where at least 1 is expected"
        shape = None if value is None else value.shape
        extent = None if shape is None or len(shape) <= input_axis else shape[input_axis]
        if isinstance(extent, int) and extent % of(given):
            return f"{name} {given} does not fit axis {input_axis} of extent {extent}, which {of(given)} must divide"
        return None

    return rule


def scales(*numbers: int, divisor: int | None = None) -> Fault:
    """Constant scales are finite, and the one that is divided by is not 0.

    A number over 0, and NaN, have no integer next to them. A code times 0 is 0: what a channel of zeros may have.
    """

    def rule(node: NodeView) -> str | None:
        for number in (*numbers, *(() if divisor is None else (divisor,))):
            value = node.input(number)
            array = None if value is None else value.constant
            if value is None or array is None:
                continue
            given = array.astype(np.float32)
            wrong = ~np.isfinite(given) | ((given == 0) & (number == divisor))
            if wrong.any():
                place = np.argwhere(wrong)[0].tolist()
                why = "" if number != divisor else ", by which no number can be divided"
                return (
                    f"the scale '{value.name}' is {given[tuple(place)]:g}{f' at {place}' if place else ''}{why}; "
                    "quantise the model anew"
                )
        return None

    return rule


AXIS = axis()
EPSILON = at_least(0, "epsilon")
