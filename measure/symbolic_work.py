"""What a run of a program with symbols computed: the values of its symbols, and its operators' work at these shapes.

The manifest holds operations for shapes of numbers alone. For others they are counted anew on the partitioned model
that the artifact keeps, at the shapes of the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import onnx_ir as ir

from graft.core.operators.all import OPERATORS
from graft.partition.costs import Work
from graft.partition.region import regions
from graft.runtime.procedure import Procedure, ProgramDescription


def bound_values(procedure: Procedure, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    """Return the values of the symbols that the inputs of a procedure bind, from the inputs' shapes."""
    place = {tensor: number for number, tensor in enumerate(procedure.inputs)}
    return {
        symbol.name: shapes[place[symbol.tensor]][symbol.axis] for symbol in procedure.symbols if symbol.tensor in place
    }


def node_flops(description: ProgramDescription, values: Mapping[str, int]) -> dict[str, int]:
    """Return the operations of the operators in a program's regions, by node; what is not known of is missing."""
    data = description.files.get("model.onnx")
    if data is None:
        return {}
    model: ir.Model = ir.from_proto(onnx.ModelProto.FromString(data))
    work = Work(OPERATORS, values, other=None)
    return {
        inner.name: work.flops(inner)
        for region in regions(model)
        for node in region.nodes()
        for inner in region.opened(node)
    }
