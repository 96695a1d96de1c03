"""The composites of backends that have a derivative of their own, as they match in a model."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from graft.compiler.request import Backends, choose
from graft.core.differentiation.reverse import Whole
from graft.partition.graph import index_tree
from graft.partition.merge_composite import Group, MergeComposite, Table


def composites_of(model: ir.Model, backends: Backends) -> list[Whole]:
    """Return the groups of a loaded model's main graph that a backend's ``vjp`` differentiates.

    None is all backends that are installed, () none. All rows of a table choose, as they do when the model is
    partitioned. Raises PlanError for what is no backend.
    """
    if backends == ():
        return []
    tables = tuple(Table(one.name, tuple(one.patterns)) for one in choose(backends))
    if not any(row.vjp for table in tables for row in table.rows):
        return []
    groups = MergeComposite(tables).run(index_tree(model.graph, set()).graph).groups
    return [whole for group in groups for whole in _whole(group)]


def _whole(group: Group) -> Iterator[Whole]:
    """Give a group as a whole, if its row has a derivative and nothing but its root is read outside."""
    row, match = group.composite, group.match
    if row.vjp is None or group.several_roots or group.copies:
        return
    operands = tuple("" if one.value is None else one.value.name or "" for one in match.operands)
    names = frozenset(node.name or "" for node in match.members)
    inner = frozenset(one.name or "" for node in match.members if node is not match.root.node for one in node.outputs)
    yield Whole(row.name, group.backend, row.vjp, names, inner, match.root.node.name or "", operands)
