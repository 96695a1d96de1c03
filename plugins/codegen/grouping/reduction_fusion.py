"""What is computed for reductions, and from them, in one kernel.

1. Rows: elementwise operators and reductions along the trailing axes of one shape, such as the gradient of Softmax or a
   normalisation written out. Grown from a head, step by step, as groups are in `graft.plugins.codegen.grouping.fusion`;
   the kernel goes row by row, so what lies between its nodes stays in a cache.
2. Producers: elementwise nodes that only a group of reductions reads are computed where they are read. So is what a
   single reduction gathers: its indices, which are checked before, lie in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from math import prod
from typing import Protocol

import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.core.operators.definition.table import OperatorTable, Trait
from graft.core.operators.definition.varying import is_static
from graft.core.operators.extent_check import checked_values

SHORTEST_ROW = 32
"""Elements of a row under which vectors over several rows are faster."""
LONGEST_ROW = 1 << 15
"""Elements of a row that stay in a cache."""
FEWEST_ROWS = 32
"""Rows that threads can share evenly."""
MASKS = ("bool",)
"""Types of what is compared on the way."""


class Readers(Protocol):
    """Who reads the values of a region (`graft.plugins.codegen.grouping.fusion.Uses`)."""

    order: dict[ir.Node, int]
    readers: dict[ir.Value, list[NodeView]]
    outputs: Collection[ir.Value]
    taken: set[ir.Node]

    def used_outputs(self, node: NodeView) -> list[ir.Value]:
        """Return the outputs of a node that something reads."""

    def next_joint(self, value: ir.Value, joins: Callable[[NodeView], bool]) -> list[NodeView]:
        """Return the nodes up to the first through which all uses of a value pass; none if one does not join."""


def find_rows(
    nodes: Collection[NodeView], uses: Readers, table: OperatorTable, dtypes: Collection[str], limit: int
) -> list[list[NodeView]]:
    """Return the nodes of each kernel of rows, at most ``limit``, in execution order, with their producers (case 1).

    ``dtypes`` are the types of the tensors. The nodes are added to those that are taken.
    """
    found, steps = [], _steps_to_reductions(uses, table)
    for head in nodes:
        if head.node in uses.taken or steps.get(head.node, limit) >= limit or not is_static(head):
            continue
        rows = _Rows.behind(head, table, dtypes)
        group = None if rows is None else rows.grown(head, uses, limit)
        if group is not None:
            uses.taken |= {node.node for node in group}
            group = with_producers(group, uses, table, limit)
            found.append(group)
    return found


def _steps_to_reductions(uses: Readers, table: OperatorTable) -> dict[ir.Node, int]:
    """Return how many elementwise nodes stand from each node on before the nearest that reduces or normalises rows.

    Those that none follows are left out. They head no rows, and trying each would walk a long chain once for each node.
    """
    steps: dict[ir.Node, int] = {}
    for node in reversed(uses.order):
        view = NodeView(node)
        if table.has(view, Trait.REDUCTION) or table.has(view, Trait.DISTRIBUTION):
            steps[node] = 0
        elif table.has(view, Trait.ELEMENTWISE):
            readers = (reader.node for value in node.outputs for reader in uses.readers.get(value, ()))
            if ahead := [steps[reader] for reader in readers if reader in steps]:
                steps[node] = 1 + min(ahead)
    return steps


def with_producers(group: list[NodeView], uses: Readers, table: OperatorTable, limit: int) -> list[NodeView]:
    """Return a group of taken nodes, and those that it alone reads, in execution order (case 2).

    They have the shape of what is read, so none is computed more than once for each element of it.
    """
    own, waiting, gathers = {node.node: node for node in group}, list(group), len(group) == 1
    while waiting:
        reader = waiting.pop()
        for value in () if _looks_up(reader, table) else reader.inputs:
            source = None if value is None else value.producer
            if source is None or source.node in own or len(own) >= limit:
                continue
            if _is_producer(source, own, uses, table, gathers=gathers):
                own[source.node] = source
                uses.taken.add(source.node)
                waiting.append(source)
    return sorted(own.values(), key=lambda node: uses.order[node.node])


def _looks_up(node: NodeView, table: OperatorTable) -> bool:
    """Whether a node takes elements from places that its second input holds."""
    row = table.of(node)
    return row is not None and row.indices is not None and {Trait.INJECTIVE, Trait.DATA_MOVEMENT} <= row.traits


def _is_producer(
    node: NodeView, group: Collection[ir.Node], uses: Readers, table: OperatorTable, *, gathers: bool
) -> bool:
    """Whether a node is elementwise, or ``gathers`` where that is wanted, and read by a group alone, all of it."""
    if node.node not in uses.order or node.node in uses.taken:
        return False
    if not table.has(node, Trait.ELEMENTWISE) and not (gathers and is_static(node) and _looks_up(node, table)):
        return False
    outputs = uses.used_outputs(node)
    if len(outputs) != 1 or outputs[0] in uses.outputs:
        return False
    (value,) = outputs
    readers = uses.readers[value]
    whole = all(_largest(reader) == ValueView(value).shape for reader in readers)
    checked = any(
        value in checked_values(reader) or (_looks_up(reader, table) and value in reader.node.inputs[1:])
        for reader in readers
    )
    return whole and not checked and all(reader.node in group for reader in readers)


def _largest(node: NodeView) -> tuple[int | str | None, ...] | None:
    """Return the shape over which a node computes: that of its result, or of what it reduces."""
    source, result = node.input(0), node.outputs[0].shape
    if source is None or source.static_shape is None or node.outputs[0].static_shape is None:
        return None if source is None else source.shape
    return max(source.shape or (), result or (), key=lambda shape: prod(int(one or 0) for one in shape))


@dataclass(slots=True)
class _Rows:
    """Rows of one shape: ``leading`` axes tell them apart, once a reduction has said how many."""

    table: OperatorTable
    dtypes: Collection[str]
    shape: tuple[int, ...]
    leading: int = 0
    nodes: list[NodeView] = field(default_factory=list)

    @classmethod
    def behind(cls, head: NodeView, table: OperatorTable, dtypes: Collection[str]) -> _Rows | None:
        """Return the rows that a head may be the first node of, None if it can be of none."""
        source = head.input(0) if table.has(head, Trait.REDUCTION) else head.outputs[0]
        shape = None if source is None else source.static_shape
        if shape is None or len(shape) < 2:
            return None
        rows = cls(table, dtypes, shape)
        return rows if rows.joins(head) else None

    def grown(self, head: NodeView, uses: Readers, limit: int) -> list[NodeView] | None:
        """Return the head and what follows it; None unless there are reductions, and more than one node."""
        outputs = uses.used_outputs(head)
        group = [head]
        while len(outputs) == 1:
            leading = self.leading
            more = uses.next_joint(outputs[0], self.joins)
            if not more or len(group) + len(more) > limit:
                self.leading = leading
                break
            group += more
            outputs = uses.used_outputs(more[-1])
        return group if self.leading and len(group) > 1 else None

    def joins(self, node: NodeView) -> bool:
        """Whether a node computes whole rows, or one number for each, from such."""
        result = node.outputs[0]
        if not is_static(node) or result.dtype not in (*self.dtypes, *MASKS):
            return False
        if self.table.has(node, Trait.REDUCTION):
            return self._reduces(node)
        if self.table.has(node, Trait.DISTRIBUTION):
            is_last = node.attribute("axis", -1) in (-1, len(self.shape) - 1)
            return is_last and result.static_shape == self.shape and self._leads(len(self.shape) - 1)
        is_row = result.static_shape == self.shape
        is_number = bool(self.leading) and result.static_shape == self._numbers(self.leading)
        return self.table.has(node, Trait.ELEMENTWISE) and (is_row or is_number)

    def _reduces(self, node: NodeView) -> bool:
        """Whether a node reduces the trailing axes, which are kept."""
        source, shape = node.input(0), node.outputs[0].static_shape
        if source is None or source.static_shape != self.shape or source.dtype not in self.dtypes:
            return False
        leading = next((one for one in range(1, len(self.shape)) if shape == self._numbers(one)), 0)
        return leading > 0 and self._leads(leading)

    def _leads(self, leading: int) -> bool:
        """Whether so many axes tell the rows apart; the first that says so decides."""
        if self.leading:
            return self.leading == leading
        length, count = prod(self.shape[leading:]), prod(self.shape[:leading])
        if not SHORTEST_ROW <= length <= LONGEST_ROW or count < FEWEST_ROWS:
            return False
        self.leading = leading
        return True

    def _numbers(self, leading: int) -> tuple[int, ...]:
        return (*self.shape[:leading], *(1 for _ in self.shape[leading:]))
