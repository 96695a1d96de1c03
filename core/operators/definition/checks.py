"""What a row says of the attributes of a node, and of the extents of its inputs beside each other: words for checks.

A check says None, or what is wrong. Checks are asked once types and shapes are known, of what neither shape inference
nor ONNX's checker looks at. Extents that are no numbers are left aside, and so are inputs of unknown rank. A kernel
reads as far as the first input says: a shorter one would be read beyond its end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from graft.core.graph.view import NodeView

Fault: TypeAlias = Callable[[NodeView], "str | None"]
"""A check: says what is wrong with a node, None if nothing is."""
Extent = int | str | None
Wanted = tuple[int, tuple[Extent, ...]]
"""An input and the shape that it must have; None is any extent."""

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


# ---- Extents of inputs ---------------------------------------------------------------------------------------------


def shape_of(node: NodeView, number: int) -> tuple[Extent, ...]:
    """Return the shape of an input, () where it is absent or of unknown rank."""
    value = node.input(number)
    return () if value is None or value.shape is None else tuple(value.shape)


def agree(wanted: Callable[[NodeView], Iterator[Wanted]]) -> Fault:
    """Return the rule that inputs have the shapes that ``wanted`` yields."""

    def rule(node: NodeView) -> str | None:
        for number, shape in wanted(node):
            value, own = node.input(number), shape_of(node, number)
            if value is None or value.shape is None:
                continue
            if len(own) != len(shape) or any(differ(one, other) for one, other in zip(own, shape, strict=True)):
                return f"'{value.name}' has shape {text_of(own)} where its other inputs want {text_of(shape)}"
        return None

    return rule


def differ(one: Extent, other: Extent) -> bool:
    """Whether two extents are different numbers."""
    return isinstance(one, int) and isinstance(other, int) and one != other


def text_of(shape: Sequence[Extent]) -> str:
    """Return a shape as messages have it."""
    return f"[{','.join('?' if extent is None else str(extent) for extent in shape)}]"


def times(extent: Extent, factor: int) -> Extent:
    """Return a multiple of an extent, None where it is no number."""
    return extent * factor if isinstance(extent, int) else None


AXIS = axis()
EPSILON = at_least(0, "epsilon")
