"""The check that a result has the shape that was stated of it, where a computed operand decides that shape.

What operands make of the extents is in the operator's row (`Operator.stated`): a function of its own compares them
with the numbers that kernels are made for, before these run. Shapes with symbols need none, for they are derived from
the operands and not stated.
"""

from __future__ import annotations

import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import block
from graft.core.operators.definition.stated_extents import Operands
from graft.core.tensor_ir.ir import CallExtern, Function, If


def extent_check(name: str, node: NodeView) -> tuple[Function, tuple[int, ...]] | None:
    """Return the function ``name`` that fails where the shape that is stated of a node's results is not theirs.

    With it come the numbers of the inputs that it reads. None where nothing stated depends on computed operands.
    """
    row = OPERATORS.of(node)
    shape = node.outputs[0].shape
    if row is None or row.stated is None or shape is None or not checked_values(node):
        return None
    operands, target = Operands(node), [one if isinstance(one, int) else None for one in shape]
    checks = [one for one in row.stated.rule(operands, target) if one.computed != one.stated]
    if not checks:
        return None
    body = (
        If(
            b.not_equal(one.computed, one.stated),
            CallExtern("fail_extent", (one.computed, b.index(one.axis), one.stated)),
        )
        for one in checks
    )
    return Function(name, tuple(operands.read.values()), 0, block(*body)), tuple(operands.read)


def checked_values(node: NodeView) -> list[ir.Value]:
    """Return the operands that say the shape of a node's results, which a check reads before the node is computed."""
    row = OPERATORS.of(node)
    numbers = () if row is None or row.stated is None else row.stated.inputs
    return [one.value for number in numbers if (one := node.input(number)) is not None and not one.is_constant]
