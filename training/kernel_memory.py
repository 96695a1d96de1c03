"""The memory that a model's values will take, known before code is made: of the kernels that fusion leaves.

A value inside a kernel takes none. What the memory planner finds later is this bound, or a little more.
"""

from __future__ import annotations

import onnx_ir as ir

from graft.compiler.driver import prepare
from graft.compiler.memory.lifetimes import Lifetime, lower_bound
from graft.core.graph.view import NodeView
from graft.core.machine.target import host_target
from graft.core.operators.all import OPERATORS
from graft.core.shapes.sample_inputs import typical_numbers
from graft.partition.costs import value_bytes
from graft.plugins.codegen.grouping.fusion import fuse
from graft.plugins.codegen.grouping.horizontal_fusion import join_horizontally


def kernel_memory(model: ir.Model) -> int:
    """Return the largest sum of bytes of values between kernels that live at one time; symbols count typically."""
    prepared = prepare(model)
    typical, outputs = typical_numbers(prepared), set(prepared.graph.outputs)
    viewed: dict[ir.Value, ir.Value] = {}
    first: dict[ir.Value, int] = {}
    last: dict[ir.Value, int] = {}

    def owner(value: ir.Value) -> ir.Value:
        while value in viewed:
            value = viewed[value]
        return value

    groups = fuse([NodeView(node) for node in prepared.graph], outputs, OPERATORS)
    for step, group in enumerate(join_horizontally(groups, host_target(), outputs)):
        is_view = group.is_view or group.slices is not None
        parts = (group, *group.beside)
        for node in (node for part in parts for node in (*part.before, *part.nodes)):
            source = node.node.inputs[0] if node.node.inputs else None
            if is_view and source is not None:
                viewed.update(dict.fromkeys(node.node.outputs, source))
            read = {owner(value) for value in node.node.inputs if value is not None}
            last.update(dict.fromkeys(read & first.keys(), step))
        if not is_view:
            made = [value for part in parts for value in part.tail.node.outputs if value.name]
            first.update(dict.fromkeys(made, step))
            last.update(dict.fromkeys(made, step))
    given = {owner(value) for value in outputs}
    return lower_bound([
        Lifetime(value_bytes(value, typical), step, last[value]) for value, step in first.items() if value not in given
    ])  # fmt: skip
