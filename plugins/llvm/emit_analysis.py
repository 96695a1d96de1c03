"""What the emitter asks about tensor IR: what a loop body uses, and about how much work it is."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from graft.core.tensor_ir.ir import Buffer, Constant, For, Statement, Variable

UNKNOWN_EXTENT = 16
"""The number of iterations assumed of a loop whose extent is not a constant."""


def used(statement: Statement) -> tuple[dict[Variable, None], dict[Buffer, None]]:
    """Return the variables and buffers that occur in a statement, in order of first use."""
    variables: dict[Variable, None] = {}
    buffers: dict[Buffer, None] = {}
    seen: set[int] = set()
    todo: list[Any] = [statement]
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, tuple):
            todo.extend(reversed(node))
        elif isinstance(node, Variable):
            variables[node] = None
        else:
            if isinstance(node, Buffer):
                buffers[node] = None
            todo.extend(getattr(node, name) for name in reversed(_node_fields(type(node))))
    return variables, buffers


def work(node: Any) -> int:
    """Return an estimate of the operations in a statement or expression: nodes, shared ones once, times iterations."""
    if isinstance(node, For):
        extent = int(node.extent.value) if isinstance(node.extent, Constant) else UNKNOWN_EXTENT
        return max(extent, 1) * (1 + work(node.body))
    total = 0
    seen: set[int] = set()
    todo: list[Any] = [node]
    while todo:
        part = todo.pop()
        if isinstance(part, For):
            total += work(part)
        elif isinstance(part, tuple):
            todo.extend(part)
        elif id(part) not in seen:
            seen.add(id(part))
            names = _node_fields(type(part))
            total += bool(names)
            if not isinstance(part, Buffer):
                todo.extend(getattr(part, name) for name in names)
    return total


def _node_fields(kind: Any) -> tuple[str, ...]:
    """Return the fields of a tensor IR class that can hold nodes; none for numbers, names and types."""
    known = _FIELDS.get(kind)
    if known is None:
        is_node = kind.__module__ == "graft.core.tensor_ir.ir" and kind not in (Constant, Variable)
        known = _FIELDS[kind] = tuple(field.name for field in fields(kind)) if is_node else ()
    return known


_FIELDS: dict[type, tuple[str, ...]] = {}
