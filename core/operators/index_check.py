"""What a node asks of its index inputs."""

from __future__ import annotations

from graft.core.graph.view import NodeView, ValueView
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.facts import UnknownError
from graft.core.operators.definition.index_bounds import IndexBound

DTYPES = ("int32", "int64")


def index_bounds(node: NodeView, *, varying: bool = False) -> tuple[IndexBound, ...]:
    """Return what a node asks of its index inputs; nothing where shapes are unknown or the operator has none.

    With ``varying``, what it asks by extents that are no numbers is among them.
    """
    row = OPERATORS.of(node)
    if row is None or row.indices is None:
        return ()
    try:
        return tuple(bound for bound in row.indices(node) if varying or not bound.varies)
    except UnknownError:
        return ()


def unexpanded(value: ValueView) -> ValueView:
    """Return what an Expand repeats, which has the same elements; any other value as it is."""
    node = value.producer
    source = node.input(0) if node is not None and node.op_type == "Expand" and not node.domain else None
    return value if source is None or 0 in (value.static_shape or (0,)) else source
