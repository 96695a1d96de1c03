"""Constants of 4 and 2 bits: kept as bytes where the numbers they hold are all that matters.

A program holds no type narrower than a byte. What DequantizeLinear and Cast give does not depend on how wide their
integers are stored, and operators that move elements pass any type on: where nothing else reads a constant, it is
widened, with all that is moved out of it.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from graft.core.graph.traversal import all_graphs
from graft.core.graph.view import NodeView
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Trait
from graft.core.rewriting.node_rewrite import is_operator, moved_inputs

WIDER = {
    ir.DataType.INT4: (ir.DataType.INT8, np.int8),
    ir.DataType.UINT4: (ir.DataType.UINT8, np.uint8),
    ir.DataType.INT2: (ir.DataType.INT8, np.int8),
    ir.DataType.UINT2: (ir.DataType.UINT8, np.uint8),
}


def widen_small_integers(model: ir.Model) -> int:
    """Widen the constants of fewer than 8 bits that can be, in place; return how many were."""
    wide = {value for graph in all_graphs(model) for value in _values(graph) if value.dtype in WIDER}
    while wrong := {value for value in wide if not _can_be_wide(value, wide)}:
        wide -= wrong
    count = 0
    for value in wide:
        assert value.dtype is not None
        kind, dtype = WIDER[value.dtype]
        if (tensor := _constant(value)) is not None:
            _set_constant(value, ir.tensor(tensor.numpy().astype(dtype), name=value.name))
            count += 1
        value.type = ir.TensorType(kind)
    return count


def _values(graph: ir.Graph) -> list[ir.Value]:
    return [*graph.initializers.values(), *(value for node in graph for value in node.outputs)]


def _can_be_wide(value: ir.Value, wide: set[ir.Value]) -> bool:
    producer = value.producer()
    made = _constant(value) is not None or (producer is not None and _all_wide(producer, wide))
    return made and not value.is_graph_output() and all(_reads(*use, wide) for use in value.uses())


def _all_wide(node: ir.Node, wide: set[ir.Value]) -> bool:
    moves = OPERATORS.has(NodeView(node), Trait.DATA_MOVEMENT)
    return moves and all(value in wide for value in moved_inputs(node))


def _reads(node: ir.Node, number: int, wide: set[ir.Value]) -> bool:
    """Whether a node gives the same for a wider input of this number."""
    if is_operator(node, "Cast"):
        return True
    if is_operator(node, "DequantizeLinear"):
        pair = [node.inputs[0], *node.inputs[2:3]]
        return number in (0, 2) and all(value is None or value in wide for value in pair)
    return _all_wide(node, wide) and all(value in wide for value in node.outputs)


def _constant(value: ir.Value) -> ir.TensorProtocol | None:
    producer = value.producer()
    if producer is None:
        return value.const_value
    attribute = producer.attributes.get("value") if producer.op_type == "Constant" else None
    if attribute is None or attribute.type != ir.AttributeType.TENSOR:
        return None
    tensor: ir.TensorProtocol = attribute.value
    return tensor


def _set_constant(value: ir.Value, tensor: ir.TensorProtocol) -> None:
    producer = value.producer()
    if producer is None:
        value.const_value = tensor
    else:
        producer.attributes["value"] = ir.AttrTensor("value", tensor)
        value.const_value = None
