"""The checks on a model's nodes that shape inference does not make: what their rows say, and constant indices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import onnx_ir as ir

from graft.core.graph.dimensions import ranges_of
from graft.core.graph.exception_translation import NONSENSE, sound
from graft.core.graph.traversal import all_nodes
from graft.core.graph.view import NodeView, ValueView, likeness
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.checks import Fault
from graft.core.operators.index_check import index_bounds
from graft.core.shapes.equations import refuse_contradictions
from graft.errors import ModelError

MOST_ELEMENTS = 1 << 59
"""Of a tensor: the runtime counts no more than 2**62 bytes, and an element has up to eight."""


def check_nodes(model: ir.Model) -> None:
    """Check attributes, constant indices and the extents of inputs and results; raise ModelError at the first fault.

    Extents in a body are left aside: a branch that is not taken may have impossible ones.
    """
    ranges, asked = ranges_of(model), set[object]()
    for value in model.graph.inputs:
        _check_size(value, f"input '{value.name}'")
    for node in all_nodes(model.graph):
        view = NodeView(node)
        row = OPERATORS.of(view)
        _check(view, () if row is None else row.attributes)
        _check_indices(view)
        for value in node.outputs:
            _check_size(value, f"{view.where}: its result '{value.name}'")
        if node.graph is model.graph:
            if row is not None and row.asked_when_loaded and ((key := likeness(node)) is None or key not in asked):
                refuse_contradictions(view, ranges)
                asked.add(key)
            _check_extents(view)


def _check(view: NodeView, rules: Sequence[Fault]) -> None:
    for rule in rules:
        try:
            fault = rule(view)
        except NONSENSE as error:
            fault = f"its attributes and inputs are not of the types and ranks that ONNX says ({error})"
        if fault is not None:
            raise ModelError(f"{view.where}: {fault}", node=view.name)


def _check_indices(node: NodeView) -> None:
    with sound(node):
        bounds = index_bounds(node)
    for bound in bounds:
        value = node.input(bound.input)
        array = None if value is None else value.constant
        wrong = None if array is None else bound.fault(array)
        if value is not None and wrong is not None:
            raise ModelError(
                f"{node.where}: index {wrong} in '{value.name}' is out of range: axis {bound.axis} has extent "
                f"{bound.extent}, so that {bound.low} to {bound.high} are legal",
                node=node.name,
                index=wrong,
                axis=bound.axis,
                extent=bound.extent,
            )


def _check_size(value: ir.Value, what: str) -> None:
    """Raise ModelError for a tensor that no memory holds, by those of its extents that are numbers."""
    shape = ValueView(value).shape or ()
    if prod(extent for extent in shape if isinstance(extent, int)) > MOST_ELEMENTS:
        shown = ",".join(map(str, shape))
        raise ModelError(f"{what} would have the shape [{shown}], more than 2**59 elements; give it smaller extents")


def _check_extents(node: NodeView) -> None:
    for value in node.outputs:
        if any(isinstance(extent, int) and extent < 0 for extent in value.shape or ()):
            shown = ",".join(map(str, value.shape or ()))
            raise ModelError(
                f"{node.where}: its result '{value.name}' would have the shape [{shown}]; a window is wider than the "
                "padded image, or more is cut off than there is",
                node=node.name,
            )
