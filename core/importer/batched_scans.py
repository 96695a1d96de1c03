"""Scans of opset 8, whose inputs have a batch axis: one of today over the batch, around one over the steps."""

from __future__ import annotations

import onnx

from graft.core.graph.protos import canonical, subgraphs

OLD = 8


def unbatch_scans(proto: onnx.ModelProto) -> bool:
    """Write the Scans of a model of opset 8 in the form of opset 9, in place; return whether that was possible.

    It is not where a Scan has lengths of its own for each sequence.
    """
    scans = [node for node in _nodes(proto.graph) if node.op_type == "Scan" and canonical(node.domain) == ""]
    if any(node.input[0] for node in scans):
        return False
    for node in scans:
        node.CopyFrom(_unbatched(node))
    return True


def _nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return all nodes, those inside of others first."""
    found = []
    for node in graph.node:
        for inner in subgraphs(node):
            found += _nodes(inner)
        found.append(node)
    return found


def _unbatched(node: onnx.NodeProto) -> onnx.NodeProto:
    attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    body, count = attributes["body"], attributes["num_scan_inputs"]
    values, states = list(node.input[1:]), len(node.input) - 1 - count
    stem = node.name or node.output[0]
    rows = [f"{stem}/row_{number}" for number in range(len(values))]
    results = [f"{stem}/result_{number}" for number in range(len(node.output))]
    inner = onnx.helper.make_node("Scan", rows, results, f"{stem}/steps", body=body, num_scan_inputs=count)
    if "directions" in attributes:
        inner.attribute.append(onnx.helper.make_attribute("scan_input_directions", attributes["directions"]))
    inputs = [
        _typed(name, value, number >= states) for number, (name, value) in enumerate(zip(rows, body.input, strict=True))
    ]
    outputs = [
        _typed(name, value, number >= states)
        for number, (name, value) in enumerate(zip(results, body.output, strict=True))
    ]
    graph = onnx.helper.make_graph([inner], f"{stem}/batch", inputs, outputs)
    return onnx.helper.make_node("Scan", values, list(node.output), node.name, body=graph, num_scan_inputs=len(values))


def _typed(name: str, of: onnx.ValueInfoProto, steps: bool) -> onnx.ValueInfoProto:
    """Return a value of the body's type, with an axis of steps in front on request."""
    value = onnx.ValueInfoProto(name=name, type=of.type)
    if steps and value.type.tensor_type.HasField("shape"):
        extents = list(value.type.tensor_type.shape.dim)
        value.type.tensor_type.ClearField("shape")
        value.type.tensor_type.shape.dim.add()
        value.type.tensor_type.shape.dim.extend(extents)
    return value
