"""What an operator's lowering takes of shapes that are known only when a kernel runs.

A dimension of a value is a number or an expression over symbols, as text; two dimensions are equal where the texts are.
The checks here are `Operator.varies`: they say why a node cannot be lowered, None if it can.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import is_

import onnx_ir as ir

from graft.core.model.view import NodeView, ValueView
from graft.core.operators.table import OperatorTable, Trait
from graft.core.reject import Reject

Check = Callable[[NodeView], Reject | None]
_INPUTS = "graft.extents-of-inputs"
"""The key of a graph's `meta` for what `_extents_of_inputs` returns, with the shapes that it was made of."""
_NAME = re.compile(r"[^\W\d]\w*(?![\w(])")
"""A symbol in the text of a dimension; what stands before a parenthesis is a function."""


def is_static(node: NodeView) -> bool:
    """Whether every dimension of a node's inputs and outputs is a number."""
    return all(value is None or not value.name or value.static_shape is not None for value in _values(node))


def refused(node: NodeView, table: OperatorTable) -> Reject | None:
    """Return why the lowering of a node cannot take its shapes, None if it can."""
    if is_static(node):
        return None
    for value in _values(node):
        if value is not None and value.name and (value.shape is None or None in value.shape):
            return Reject("dynamic-shape", f"'{value.name}' has shape {shown(value)}, which nothing is known of")
    if (late := known_late(node)) is not None:
        return late
    operator = table.of(node)
    if operator is not None and operator.varies is not None:
        return operator.varies(node)
    own = operator is not None and not operator.domain
    if own and (table.has(node, Trait.ELEMENTWISE) or table.has(node, Trait.VIEW)):
        return None
    value = next(value for value in _values(node) if value is not None and value.name and value.static_shape is None)
    return Reject("dynamic-shape", f"'{value.name}' has shape {shown(value)}; {node.op_type} is lowered of static ones")


def known_late(node: NodeView) -> Reject | None:
    """Refuse a result's extent that is known only when it is computed, or outside of a body.

    It is known where its symbols stand alone at hand, or where an input has the same extent: to a kernel that is one
    number, whatever it is made of.
    """
    known = {one for value in node.inputs if value is not None for one in value.shape or () if isinstance(one, str)}
    for value in node.outputs:
        for axis, extent in enumerate(value.shape or ()):
            if isinstance(extent, str) and extent not in known and not _are_at_hand(node, extent, known):
                return Reject(
                    "dynamic-shape",
                    f"axis {axis} of '{value.name}' is {extent}, which is known only when it is computed",
                )
    return None


def _are_at_hand(node: NodeView, extent: str, known: set[str]) -> bool:
    """Whether an extent, or all of its symbols, are among what inputs of the node or of its graph have."""
    outer = set() if node.node.graph is None else _extents_of_inputs(node.node.graph)
    return extent in outer or all(name in known or name in outer for name in _NAME.findall(extent))


def _extents_of_inputs(graph: ir.Graph) -> set[str]:
    """Return the extents of a graph's inputs that are no numbers, kept with the graph as long as its inputs do."""
    shapes = [value.shape for value in graph.inputs]
    kept: tuple[list[ir.Shape | None], set[str]] | None = graph.meta.get(_INPUTS)
    if kept is None or len(kept[0]) != len(shapes) or not all(map(is_, kept[0], shapes)):
        found = {one for value in graph.inputs for one in ValueView(value).shape or () if isinstance(one, str)}
        graph.meta[_INPUTS] = kept = shapes, found
    return kept[1]


def anything(node: NodeView) -> Reject | None:
    """Take every shape: that extents agree is what the operator demands (`Operator.demands`)."""
    return None


def fixed(*axes: int) -> Check:
    """Take input 0 and outputs whose dimensions ``axes`` are numbers."""

    def check(node: NodeView) -> Reject | None:
        for value in (node.input(0), *node.outputs):
            if value is not None and value.shape is not None:
                for axis in (axis for axis in axes if -len(value.shape) <= axis < len(value.shape)):
                    if not isinstance(value.shape[axis], int):
                        return varying_axis(node, value, axis)
        return None

    return check


def shown(value: ValueView) -> str:
    """Return a shape as messages have it: ``[batch,128]``, ``unknown`` without a rank."""
    if value.shape is None:
        return "unknown"
    return f"[{','.join('?' if extent is None else str(extent) for extent in value.shape)}]"


def _values(node: NodeView) -> tuple[ValueView | None, ...]:
    return (*node.inputs, *node.outputs)


def varying_axis(node: NodeView, value: ValueView, axis: int) -> Reject:
    """Return the refusal of a dimension that must be a number."""
    place = axis % len(value.shape or (1,))
    return Reject(
        "dynamic-shape",
        f"axis {place} of '{value.name}' is {(value.shape or ())[place]}; {node.op_type} wants a number",
    )
