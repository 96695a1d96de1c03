"""What the tests of patterns share."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from graft.patterns import Pattern
from graft.patterns.match import Match
from graft.patterns.matching import match

HEADER = '<ir_version: 10, opset_import: ["" : 21, "com.acme" : 1]>'


def graph_of(body: str, inputs: str = "float[2,3] x", outputs: str = "float[2,3] y", more: str = "") -> ir.Graph:
    """Return the graph of ONNX text, shapes inferred where ONNX knows the operators; nodes are named as outputs."""
    proto = onnx.parser.parse_model(f"{HEADER}\ng ({inputs}) => ({outputs}) {more} {{\n{body}\n}}")
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    for node in model.graph:
        node.name = node.name or node.outputs[0].name
    return model.graph


def root(graph: ir.Graph) -> ir.Node:
    """Return the last node."""
    return list(graph)[-1]


def names(found: Match | None) -> list[str] | None:
    """Return the names of the nodes of a match, None without one."""
    return None if found is None else [node.name for node in found.nodes]


def hits(pattern: Pattern, body: str, **more: str) -> list[str] | None:
    """Return the names of the nodes that a pattern matches at the last node of a graph, None without a match."""
    return names(match(pattern, root(graph_of(body, **more))))
