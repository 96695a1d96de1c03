"""Lowering of one node: buffers for its values, then the operator's lowering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from graft.core.graph.view import NodeView, ValueView
from graft.core.operators.definition.build import index
from graft.core.operators.definition.cost import elements
from graft.core.operators.definition.table import OPERATORS, Lowering, Operator, OperatorTable, Trait
from graft.core.tensor_ir.anchors import Elementwise, Window
from graft.core.tensor_ir.ir import Buffer, Constant, Expression, Stage, Variable
from graft.core.tensor_ir.visit import substitution
from graft.core.types import is_custom

BufferOf = Callable[[ValueView], Buffer]
LARGEST_PARAMETER = 1 << 16
"""Elements up to which a constant input is handed to the lowering by value: axes, shapes, pads, not weights."""


def buffer_of(value: ValueView, extents: dict[str, Variable] | None = None) -> Buffer:
    """Return a new host buffer of the value's dtype and shape.

    ``extents`` holds the variables of those that are no numbers, by what they are; new ones are added.
    """
    shape: list[Expression] = []
    for extent in value.shape or ():
        if isinstance(extent, int):
            shape.append(index(extent))
            continue
        assert extent is not None and extents is not None, f"value '{value.name}' has no static shape: {value.shape}"
        shape.append(extents.setdefault(extent, Variable(f"extent{len(extents)}")))
    assert value.shape is not None, f"value '{value.name}' has no shape"
    return Buffer(value.name, value.dtype, tuple(shape))


def lowering_of(node: NodeView, buffers: BufferOf = buffer_of) -> Lowering:
    """Return what the lowering of ``node`` works with; ``buffers`` gives the buffer of a value."""
    inputs = tuple(None if value is None else buffers(value) for value in node.inputs)
    outputs = tuple(buffers(value) if value.name else None for value in node.outputs)
    constants = {
        number: array
        for number, value in enumerate(node.inputs)
        if value is not None
        and elements(value) <= LARGEST_PARAMETER
        and not is_custom(value.dtype)  # its contents are bits, not numbers
        and (array := value.constant) is not None
    }
    return Lowering(node, inputs, outputs, constants)


def of_nothing(stage: Stage) -> bool:
    """Whether a stage reduces over no elements at all: an axis of the reduction has extent 0."""
    axes = () if stage.reduction is None else stage.reduction.axes
    return any(isinstance(axis.extent, Constant) and axis.extent.value == 0 for axis in axes)


def neutral_stage(stage: Stage) -> Stage:
    """Return a stage that reduces over no elements as one that stores what the reduction starts from."""
    assert stage.reduction is not None, stage.buffer.name
    initial = stage.reduction.initial
    if stage.epilogue is not None and stage.epilogue_variable is not None:
        initial = substitution({stage.epilogue_variable: initial})(stage.epilogue)
    return replace(stage, value=initial, reduction=None, epilogue_variable=None, epilogue=None)


def lower(lowering: Lowering, table: OperatorTable = OPERATORS) -> tuple[Stage, ...]:
    """Return the stages, with the node's name as origin, of a node whose operator has a lowering."""
    operator = table.of(lowering.node)
    assert operator is not None, f"{lowering.node.where} is not in the table"
    assert operator.lower is not None, f"{lowering.node.where} has no lowering"
    structure = Elementwise() if Trait.ELEMENTWISE in operator.traits else None
    return tuple(
        replace(stage, origin=(lowering.node.name,), structure=stage.structure or structure)
        for stage in operator.lower(lowering)
    )


def window_of(node: NodeView, table: OperatorTable = OPERATORS) -> Window | None:
    """Return the windows of a convolution as its lowering states them; None for other nodes, and without a lowering."""
    operator = table.of(node)
    if operator is None or operator.lower is None or Trait.CONVOLUTION not in operator.traits:
        return None
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    if any(value.shape is None or None in value.shape for value in values):
        return None
    if any(value.static_shape is None for value in values) and not _varies(operator, node):
        return None
    if operator.accepts is not None and operator.accepts(node) is not None:
        return None
    buffers = partial(buffer_of, extents={})
    structures = (stage.structure for stage in lower(lowering_of(node, buffers), table))
    return next((one for one in structures if isinstance(one, Window)), None)


def _varies(operator: Operator, node: NodeView) -> bool:
    return operator.varies is not None and operator.varies(node) is None
