"""What the integers of a model's inputs and outputs stand for, as its artifact and the header of its C project tell."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from graft.core.graph.view import constant_tensor
from graft.runtime.tensor_info import Quantization


def quantized_values(model: ir.Model) -> dict[str, Quantization]:
    """Return scale and zero point of each integer input that is dequantised, and output that is quantised, by name.

    Only where one scale is for the whole tensor, and is known when the model is compiled.
    """
    found: dict[str, Quantization] = {}
    for value, node in _borders(model.graph):
        scale, zero = (_scalar(node.inputs[place]) if place < len(node.inputs) else 0 for place in (1, 2))
        if scale is not None and zero is not None and value.dtype is not None and value.dtype.is_integer():
            found.setdefault(value.name or "", Quantization(float(scale), int(zero)))
    return found


def _borders(graph: ir.Graph) -> Iterator[tuple[ir.Value, ir.Node]]:
    """Yield inputs and outputs with the node that takes them into floats, or makes them of such."""
    for value in graph.inputs:
        for use in value.uses():
            if use.node.op_type == "DequantizeLinear" and use.idx == 0:
                yield value, use.node
    for value in graph.outputs:
        node = value.producer()
        if node is not None and node.op_type == "QuantizeLinear":
            yield value, node


def _scalar(value: ir.Value | None) -> float | None:
    """Return the one number of a constant; 0 where the optional input is absent, None where there is no such number."""
    if value is None:
        return 0
    tensor = constant_tensor(value)
    return None if tensor is None or tensor.size != 1 else float(tensor.numpy().reshape(-1)[0])
