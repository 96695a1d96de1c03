"""Loop unswitching: a loop with masks that do not change in it, and the same loop without them where all lanes are on.

Masked loads take several times as long as others on some processors, and what is read has bounds that seldom matter.
"""

from __future__ import annotations

from dataclasses import replace

from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.vectorize import instantiate
from graft.core.tensor_ir import visit
from graft.core.tensor_ir.ir import Constant, Expression, For, Horizontal, If, Load, Statement

MIN_TURNS = 4
"""Loops of fewer turns stay as they are: looking at the masks costs as much."""


def unswitched(loop: For) -> Statement:
    """Return a loop whose masks of vector loads, where they do not change in it, are looked at once before it."""
    masks = {
        visit.structural_key(mask): mask for mask in _masks(loop) if loop.variable not in visit.free_variables(mask)
    }
    is_short = isinstance(loop.extent, Constant) and int(loop.extent.value) < MIN_TURNS
    if not masks or is_short:
        return loop

    def without(node: Expression) -> Expression:
        if isinstance(node, Load) and node.mask is not None and visit.structural_key(node.mask) in masks:
            return replace(node, mask=None)
        return node

    all_on = b.all_of([Horizontal("and", mask) for mask in masks.values()])
    assert all_on is not None, "no mask"
    return If(all_on, instantiate(visit.map_statement(loop, visit.ExpressionMap(without)), {}), loop)


def _masks(loop: For) -> list[Expression]:
    expressions = [node for statement in visit.walk_statements(loop) for node in visit.statement_expressions(statement)]
    nodes = visit.walk_expressions(*expressions)
    return [node.mask for node in nodes if isinstance(node, Load) and node.mask is not None and node.type.lanes > 1]
