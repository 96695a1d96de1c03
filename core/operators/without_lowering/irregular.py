"""Operators without a lowering, whose native forms (`graft.plugins.irregular`) take for granted what they demand."""

from __future__ import annotations

from collections.abc import Iterator

from graft.core.affine.equations import Equation
from graft.core.graph.view import NodeView
from graft.core.operators.definition import demands as demand
from graft.core.operators.definition.table import OPERATORS, Operator

OPERATORS.add(Operator("Det", demands=demand.same(0, -1, 0, -2)))
OPERATORS.add(Operator("MaxRoiPool", demands=demand.counted(1, 1, 5)))
OPERATORS.add(
    Operator(
        "NonMaxSuppression",
        demands=demand.all_of(demand.same(1, 0, 0, 0), demand.same(1, 2, 0, 1), demand.counted(0, 2, 4)),
    )
)
OPERATORS.add(Operator("RoiAlign", demands=demand.all_of(demand.same(2, 0, 1, 0), demand.counted(1, 1, 4))))
OPERATORS.add(Operator("StringConcat", demands=demand.broadcasting()))


def _scan(node: NodeView) -> Iterator[Equation]:
    """What is scanned has as many slices each."""
    count = int(node.attribute("num_scan_inputs"))
    states = len(node.node.inputs) - count
    axes = node.attribute("scan_input_axes") or [0] * count
    for number in range(1, count):
        yield from demand.same(states + number, axes[number], states, axes[0])(node)


OPERATORS.add(Operator("Scan", demands=_scan))
