"""The buffers of a region's values and the stages of its nodes: one each, whoever asks first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.core.operators.definition.table import OperatorTable
from graft.core.operators.lower import buffer_of, lower, lowering_of
from graft.core.tensor_ir.ir import Buffer, Stage, Variable


@dataclass(slots=True)
class Lowerings:
    """Nodes lowered by a table of operators, each once: for what is decided from its structure, then for its kernel."""

    table: OperatorTable
    buffers: dict[ir.Value, Buffer] = field(default_factory=dict)
    values: dict[Buffer, ir.Value] = field(default_factory=dict)
    extents: dict[str, Variable] = field(default_factory=dict)
    """The variables of extents that are known only when a program runs, by what they are."""
    pitched: Callable[[ir.Value, Buffer], Buffer] = lambda _, buffer: buffer
    """Gives a value's buffer its strides."""
    known: dict[Buffer, np.ndarray] = field(default_factory=dict)
    """What stages compute that depend on no input."""
    _stages: dict[ir.Node, tuple[Stage, ...]] = field(default_factory=dict)

    def buffer(self, value: ValueView) -> Buffer:
        """Return the buffer of a value."""
        known = self.buffers.get(value.value)
        if known is None:
            known = self.pitched(value.value, buffer_of(value, self.extents))
            self.buffers[value.value] = known
            self.values[known] = value.value
        return known

    def stages(self, node: NodeView) -> tuple[Stage, ...]:
        """Return the stages of a node, to look at."""
        known = self._stages.get(node.node)
        if known is None:
            known = self._stages[node.node] = self._lowered(node)
        return known

    def take(self, node: NodeView) -> tuple[Stage, ...]:
        """Return the stages of a node for a kernel; for another kernel there are new ones."""
        known = self._stages.pop(node.node, None)
        return self._lowered(node) if known is None else known

    def _lowered(self, node: NodeView) -> tuple[Stage, ...]:
        lowering = lowering_of(node, self.buffer)
        stages = lower(lowering, self.table)
        self.known |= lowering.known
        return stages
