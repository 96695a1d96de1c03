"""Where the parts of a Concat are computed: in its own memory, so that nothing is left to copy.

A Concat lays its inputs one after another if no axis before its own has more than one element. Each of them that a
kernel of the region computes, itself or what it is a view of, then gets a place in the memory of the result. The
result may be such a part of another Concat: of a chain of them, each is the beginning of the memory of the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from graft.core.view import NodeView, ValueView

LEAST = 0.5
"""The share of a Concat's elements that must be computed in place; below, one kernel copies them all."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A Concat that is no kernel: values with the number of elements before them in its result."""

    node: NodeView
    computed: tuple[tuple[ir.Value, int], ...]
    """What is computed there: outputs of kernels and of other Concats."""
    copied: tuple[tuple[ir.Value, int], ...]
    """What is copied there."""


def placed_concats(
    nodes: Sequence[NodeView], last: Collection[ir.Value], is_view: Callable[[NodeView], bool]
) -> list[Placed]:
    """Return the Concats of a region whose parts are computed in their memory, each part in that of one Concat.

    ``nodes`` stand in execution order. ``last`` are the values stored with channels last, which are no part of this;
    ``is_view`` says of a node that its output is the memory of its first input.
    """
    made = {value: node for node in nodes for value in node.node.outputs}
    known: dict[ir.Value, list[tuple[list[ir.Value], ir.Value]]] = {}
    taken: set[ir.Value] = set(last)
    placed = []
    for node in nodes:
        whole = node.node.outputs[0]
        if node.op_type != "Concat" or node.domain or whole in last or not _is_contiguous(node):
            continue
        values = [value for value in node.node.inputs if value is not None and _size(value)]
        parts = _shortened(values, known)
        if values:
            known.setdefault(values[0], []).append((values, whole))
        computed: dict[ir.Value, int] = {}
        copied = []
        offset = 0
        for value in parts:
            owner = _owner(value, made, is_view)
            if owner in made and owner not in taken and owner not in computed:
                computed[owner] = offset
            else:
                copied.append((value, offset))
            offset += _size(value)
        if offset and sum(map(_size, computed)) >= LEAST * offset:
            taken |= computed.keys()
            placed.append(Placed(node, tuple(computed.items()), tuple(copied)))
    return placed


def _is_contiguous(node: NodeView) -> bool:
    shape = node.outputs[0].static_shape
    axis = node.attribute("axis")
    return shape is not None and math.prod(shape[: axis % max(len(shape), 1)]) == 1


def _size(value: ir.Value) -> int:
    shape = ValueView(value).static_shape
    assert shape is not None, f"value '{value.name}' has no static shape"
    return math.prod(shape)


def _owner(value: ir.Value, made: dict[ir.Value, NodeView], is_view: Callable[[NodeView], bool]) -> ir.Value:
    """What a value is a view of in the end, itself if it is none."""
    while value in made and is_view(made[value]):
        source = made[value].node.inputs[0]
        assert source is not None
        value = source
    return value


def _shortened(values: list[ir.Value], known: dict[ir.Value, list[tuple[list[ir.Value], ir.Value]]]) -> list[ir.Value]:
    """The parts of a Concat with the longest run that another one has put together already as one part.

    ``known`` has the parts and the results of others by their first part.
    """
    best: tuple[int, int, ir.Value | None] = (1, 0, None)
    for begin, value in enumerate(values):
        for parts, whole in known.get(value, ()):
            if len(parts) > best[0] and values[begin : begin + len(parts)] == parts:
                best = (len(parts), begin, whole)
    length, begin, found = best
    return values if found is None else [*values[:begin], found, *values[begin + length :]]
