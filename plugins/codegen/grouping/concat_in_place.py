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

from graft.core.graph.view import NodeView, ValueView

LEAST = 0.5
"""The share of a Concat's elements that must be computed in place; below, one kernel copies them all.

Where that kernel would take what follows along, all of them must be.
"""


@dataclass(frozen=True, slots=True)
class Placed:
    """A Concat that is no kernel: values with the number of elements before them in its result."""

    node: NodeView
    computed: tuple[tuple[ir.Value, int], ...]
    """What is computed there: outputs of kernels and of other Concats."""
    copied: tuple[tuple[ir.Value, int], ...]
    """What is copied there."""


def placed_concats(
    nodes: Sequence[NodeView],
    last: Collection[ir.Value],
    joins: Callable[[NodeView], bool],
    is_view: Callable[[NodeView], bool],
    is_followed: Callable[[ir.Value], bool],
) -> list[Placed]:
    """Return the Concats of a region whose parts are computed in their memory, each part in that of one Concat.

    ``nodes`` stand in execution order. ``last`` are values that have no part in this: those stored with channels last,
    and those appended to others. ``joins`` says whether a node is a Concat, ``is_view`` whether its output is its first
    input's memory, ``is_followed`` of a value that the kernel that computes it can do what comes next.
    """
    made = {value: node for node in nodes for value in node.node.outputs}
    together = _Together()
    taken: set[ir.Value] = set(last)
    placed = []
    for node in nodes:
        whole = node.node.outputs[0]
        if not joins(node) or whole in last or not _is_contiguous(node):
            continue
        computed: dict[ir.Value, int] = {}
        copied = []
        offset = 0
        for value in together.parts(whole, [one for one in node.node.inputs if one is not None and _size(one)]):
            owner = _owner(value, made, is_view)
            known = ValueView(owner).static_shape is not None
            if known and owner in made and owner not in taken and owner not in computed:
                computed[owner] = offset
            else:
                copied.append((value, offset))
            offset += _size(value)
        least = 1.0 if is_followed(whole) else LEAST
        if offset and sum(map(_size, computed)) >= least * offset:
            taken |= computed.keys()
            placed.append(Placed(node, tuple(computed.items()), tuple(copied)))
    return placed


class _Together:
    """What Concats have put together so far: a run of it in another Concat is one part of that."""

    def __init__(self) -> None:
        self._leaves: dict[ir.Value, list[ir.Value]] = {}
        self._beginning: dict[ir.Value, list[ir.Value]] = {}

    def parts(self, whole: ir.Value, values: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the parts of a Concat, the largest that are there; it may be a part of others from now on."""
        leaves = [leaf for value in values for leaf in self._leaves.get(value, [value])]
        parts: list[ir.Value] = []
        begin = 0
        while begin < len(leaves):
            runs = [
                one
                for one in self._beginning.get(leaves[begin], ())
                if self._leaves[one] == leaves[begin : begin + len(self._leaves[one])]
            ]
            longest = max(runs, key=lambda one: len(self._leaves[one]), default=leaves[begin])
            parts.append(longest)
            begin += len(self._leaves.get(longest, (longest,)))
        if leaves:
            self._leaves[whole] = leaves
            self._beginning.setdefault(leaves[0], []).append(whole)
        return parts


def _is_contiguous(node: NodeView) -> bool:
    """Whether parts lie one after another, all of known size: of a result that is known, not all parts need be."""
    shape = node.outputs[0].static_shape
    axis = node.attribute("axis")
    known = shape is not None and all(one is None or one.static_shape is not None for one in node.inputs)
    return known and shape is not None and math.prod(shape[: axis % max(len(shape), 1)]) == 1


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
