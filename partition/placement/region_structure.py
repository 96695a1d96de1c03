"""The structure of a region: what its speed depends on, and nothing else."""

from __future__ import annotations

import hashlib

import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.partition.graph import bodies
from graft.partition.region import Region


def structure(region: Region) -> str:
    """Return 32 hexadecimal digits: equal for regions of the same operators, attributes, wiring, types and shapes.

    Names, and the contents of constants, do not count.
    """
    lines: list[str] = []
    _add(region.function.graph, {}, region, lines)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def _add(graph: ir.Graph, outer: dict[ir.Value, str], region: Region, lines: list[str]) -> None:
    names = dict(outer)
    for value in (*graph.inputs, *graph.initializers.values()):
        names[value] = f"{len(names)}"
        view = ValueView(value)
        lines.append(f"in {names[value]} {view.dtype} {view.shape} {'constant' if view.is_constant else ''}")
    for node in graph:
        read = ",".join("" if value is None else names[value] for value in node.inputs)
        for output in node.outputs:
            names[output] = f"{len(names)}"
        written = ",".join(f"{ValueView(output).dtype}{ValueView(output).shape}" for output in node.outputs)
        composite = region.composite(NodeView(node))
        operator = f"{node.domain}:{node.op_type}" if composite is None else f"composite {composite[0]}"
        lines.append(f"{operator} {read} -> {written} {_attributes(node)}")
        if composite is not None:
            _add(composite[1].graph, {}, region, lines)
        for key, body in bodies(node):
            lines.append(f"body {key}")
            _add(body, names, region, lines)
    lines.append("out " + ",".join(names[value] for value in graph.outputs))


def _attributes(node: ir.Node) -> str:
    parts: list[str] = []
    for name in sorted(node.attributes):
        attribute = node.attributes[name]
        if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
            continue
        if attribute.type == ir.AttributeType.TENSOR:
            tensor = attribute.as_tensor()
            parts.append(f"{name}={tensor.dtype}{tensor.shape}")
        else:
            parts.append(f"{name}={attribute.value!r}")
    return " ".join(parts)
