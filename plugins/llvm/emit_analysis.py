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


class Work:
    """Estimates of the operations in statements and expressions: nodes, shared ones once, times iterations.

    Loops are remembered by identity: every loop around a parallel one asks again.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[For, int]] = {}

    def __call__(self, node: Any) -> int:
        """Return the estimate of a statement or an expression."""
        if not isinstance(node, For):
            return self._of_parts(node)
        known = self._known.get(id(node))
        if known is None:
            extent = int(node.extent.value) if isinstance(node.extent, Constant) else UNKNOWN_EXTENT
            known = self._known[id(node)] = (node, max(extent, 1) * (1 + self._of_parts(node.body)))
        return known[1]

    def _of_parts(self, node: Any) -> int:
        total = 0
        seen: set[int] = set()
        todo: list[Any] = [node]
        while todo:
            part = todo.pop()
            if isinstance(part, For):
                total += self(part)
            elif isinstance(part, tuple):
                todo.extend(part)
            elif id(part) not in seen:
                seen.add(id(part))
                names = _node_fields(type(part))
                total += bool(names)
                if not isinstance(part, Buffer):
                    todo.extend([getattr(part, name) for name in names])
        return total


def _node_fields(kind: Any) -> tuple[str, ...]:
    """Return the fields of a tensor IR class that can hold nodes; none for numbers, names and types."""
    known = _FIELDS.get(kind)
    if known is None:
        is_node = kind.__module__ == "graft.core.tensor_ir.ir" and kind not in (Constant, Variable)
        known = _FIELDS[kind] = tuple(field.name for field in fields(kind)) if is_node else ()
    return known


_FIELDS: dict[type, tuple[str, ...]] = {}
