"""What an operator's lowering takes of shapes that are known only when a kernel runs.

A dimension of a value is a number or an expression over symbols, as text; two dimensions are equal where the texts are.
The checks here are `Operator.varies`: they say why a node cannot be lowered, None if it can.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import onnx_ir as ir

from graft.core.graph.dimensions import late_symbols
from graft.core.graph.view import NodeView, ValueView
from graft.core.operators.definition.table import OperatorTable, Trait
from graft.core.reject import Reject

Check = Callable[[NodeView], Reject | None]
_INPUTS = "graft.extents-of-inputs"
"""The key of a graph's `meta` for an input by extent that it has."""
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
    number, whatever it is made of. A symbol that the result of an earlier node is alone is known too, to whoever reads
    what was made of that result.
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
    graph = node.node.graph
    missing = {name for name in _NAME.findall(extent) if name not in known}
    if graph is None or not missing:
        return not missing
    late = late_symbols(graph)
    if extent in late:
        return False
    missing -= late & {name for one in known for name in _NAME.findall(one)}
    return all(_is_given(graph, name) for name in missing) or _is_given(graph, extent)


def _is_given(graph: ir.Graph, extent: str) -> bool:
    """Whether an axis of a graph's inputs is an extent; by which input it was last is kept with the graph."""
    kept: dict[str, ir.Value] = graph.meta.setdefault(_INPUTS, {})
    if extent not in kept or extent not in (ValueView(kept[extent]).shape or ()):
        kept.clear()
        kept |= {one: value for value in graph.inputs for one in ValueView(value).shape or () if isinstance(one, str)}
    return extent in kept


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
