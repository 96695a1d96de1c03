"""Copies of values and nodes for a new graph, with a map from the old values to the new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir


class ValueMap:
    """Old values with their copies in one scope, and those of the scopes around it."""

    __slots__ = ("all",)

    def __init__(self, outer: Mapping[ir.Value, ir.Value]) -> None:
        self.all: dict[ir.Value, ir.Value] = dict(outer)

    def __getitem__(self, value: ir.Value) -> ir.Value:
        return self.all[value]

    def add(self, value: ir.Value, tensor: ir.TensorProtocol | None = None) -> ir.Value:
        """Copy a value into this scope; ``tensor`` makes it constant."""
        new = copy_value(value, tensor)
        self.all[value] = new
        return new

    def add_once(self, value: ir.Value) -> ir.Value:
        """Return the copy of a value, made now if there is none."""
        return self.all[value] if value in self.all else self.add(value, value.const_value)


def copy_value(value: ir.Value, tensor: ir.TensorProtocol | None = None) -> ir.Value:
    """Return a value of the same name, type and shape, without producer."""
    shape, kind = value.shape, value.type
    if tensor is not None:
        shape = shape or ir.Shape(tensor.shape.numpy())
        kind = kind or ir.TensorType(tensor.dtype)
    return ir.Value(
        name=value.name,
        shape=None if shape is None else shape.copy(),
        type=kind,
        const_value=tensor,
        metadata_props=dict(value.metadata_props) if value.metadata_props else None,
    )


def fresh_outputs(values: Sequence[ir.Value], scope: ValueMap) -> list[ir.Value]:
    """Return copies of the values for a new node to produce, entered in the scope."""
    return [scope.add(value) for value in values]


def copy_node(node: ir.Node, scope: ValueMap, *, name: str, replaced: Mapping[str, ir.Attr] | None = None) -> ir.Node:
    """Return a copy of a node on the scope's values; bodies are copied unless ``replaced`` gives them."""
    attributes = [(replaced or {}).get(key) or _copy_attribute(value, scope) for key, value in node.attributes.items()]
    inputs = [None if value is None else scope[value] for value in node.inputs]
    return ir.Node(
        node.domain,
        node.op_type,
        inputs,
        attributes,
        overload=node.overload,
        outputs=fresh_outputs(node.outputs, scope),
        version=node.version,
        name=name,
        doc_string=node.doc_string,
        metadata_props=dict(node.metadata_props),
    )


def _copy_attribute(attribute: ir.Attr, scope: ValueMap) -> ir.Attr:
    if attribute.type == ir.AttributeType.GRAPH:
        return ir.AttrGraph(attribute.name, copy_graph(attribute.as_graph(), scope))
    if attribute.type == ir.AttributeType.GRAPHS:
        return ir.AttrGraphs(attribute.name, [copy_graph(graph, scope) for graph in attribute.as_graphs()])
    return attribute


def copy_graph(graph: ir.Graph, outer: ValueMap) -> ir.Graph:
    """Return a copy of a body whose captured values are those of the scope ``outer``."""
    scope = ValueMap(outer.all)
    inputs = [scope.add(value) for value in graph.inputs]
    initializers = [scope.add(value, value.const_value) for value in graph.initializers.values()]
    nodes = [copy_node(node, scope, name=node.name or node.op_type) for node in graph]
    return ir.Graph(
        inputs,
        [scope[value] for value in graph.outputs],
        nodes=nodes,
        initializers=initializers,
        opset_imports=dict(graph.opset_imports),
        name=graph.name,
    )
