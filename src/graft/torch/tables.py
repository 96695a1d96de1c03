"""Gradients of tables of which few rows were read, such as an embedding's: zeros that are written where rows are added.

AOTAutograd gives them as a sum into a tensor of zeros, without mutation: two copies of the table a step. Memory that
comes from the system as zeros need not be written at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.fx import GraphModule, Node

from graft.torch.aten.indexing import FEW
from graft.torch.conversion import fake

aten = torch.ops.aten
WHY = "few rows are added to many: written in place"


def rows_added(
    shape: Sequence[int], dtype: torch.dtype, indices: Sequence[torch.Tensor], values: torch.Tensor
) -> torch.Tensor:
    """Return zeros with ``values`` added at ``indices``, in the order of the indices."""
    return torch.zeros(shape, dtype=dtype).index_put_(list(indices), values, accumulate=True)


def add_rows_in_place(module: GraphModule) -> None:
    """Put `rows_added` where few rows are added to zeros that nobody else reads."""
    for node in module.graph.find_nodes(op="call_function", target=aten.index_put.default):
        if _adds_few_rows(node):
            table, indices, values = node.args[:3]
            node.target, node.args = rows_added, (table.args[0], fake(node).dtype, indices, values)
            module.graph.erase_node(table)


def _adds_few_rows(node: Node) -> bool:
    table, indices, _, *accumulate = node.args
    if not isinstance(table, Node) or accumulate != [True] or any(one is None for one in indices):
        return False
    if table.target is not aten.full.default or table.args[1] != 0 or len(table.users) != 1:
        return False
    count, rows = math.prod(fake(indices[0]).shape), fake(node).shape[0]
    return isinstance(count, int) and isinstance(rows, int) and rows > FEW * count
