"""Loop unswitching: a loop with masks that do not change in it, and the same loop without them where all lanes are on.

Masked loads take several times as long as others on some processors, and what is read has bounds that seldom matter.
"""

from __future__ import annotations

from dataclasses import replace

from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.vectorize import instantiate
from graft.core.tensor_ir.ir import Constant, Expression, For, Horizontal, If, Load, Statement
from graft.core.tensor_ir.visit import (
    ExpressionMap,
    free_variables,
    map_statement,
    statement_expressions,
    structural_key,
    walk_expressions,
    walk_statements,
)

MIN_TURNS = 4
"""Loops of fewer turns stay as they are: looking at the masks costs as much."""


def unswitched(loop: For) -> Statement:
    """Return a loop whose masks of vector loads, where they do not change in it, are looked at once before it."""
    masks = {structural_key(mask): mask for mask in _masks(loop) if loop.variable not in free_variables(mask)}
    is_short = isinstance(loop.extent, Constant) and int(loop.extent.value) < MIN_TURNS
    if not masks or is_short:
        return loop

    def without(node: Expression) -> Expression:
        if isinstance(node, Load) and node.mask is not None and structural_key(node.mask) in masks:
            return replace(node, mask=None)
        return node

    all_on = b.all_of([Horizontal("and", mask) for mask in masks.values()])
    assert all_on is not None, "no mask"
    return If(all_on, instantiate(map_statement(loop, ExpressionMap(without)), {}), loop)


def _masks(loop: For) -> list[Expression]:
    expressions = [node for statement in walk_statements(loop) for node in statement_expressions(statement)]
    nodes = walk_expressions(*expressions)
    return [node.mask for node in nodes if isinstance(node, Load) and node.mask is not None and node.type.lanes > 1]
