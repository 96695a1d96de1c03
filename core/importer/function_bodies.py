"""Functions in the place of operators: what ONNX defines by other operators is written as these.

An operator is expanded whose row in the table has the trait `EXPANDED`: nobody here computes it as a whole. Its row has
the function, or ONNX; most depend on the types and attributes of a node, so bodies are asked for node by node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx

from graft.core.graph.dimensions import unique
from graft.core.graph.protos import (
    canonical,
    constants_of,
    every_node,
    nodes_of_model,
    put_nodes,
    subgraphs,
    types_of,
)
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.function_body import Body, Function, learn
from graft.core.operators.definition.table import Trait
from graft.core.shapes.inference import infer_proto
from graft.errors import ModelError

Types = dict[str, onnx.TypeProto]
Opsets = dict[str, int]


def expand_functions(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, list[str]]:
    """Return a model with bodies in the place of operators that are expanded, and the names of these operators.

    What bodies are made of is expanded in turn. An operator stays as it is where the types of its inputs are not known,
    or where ONNX defines it in terms of operators that mean another thing in the opset of the model.
    """
    expanded: dict[str, None] = {}
    while _is_anywhere(proto.graph):
        inferred = infer_proto(proto)
        opsets = {canonical(entry.domain): entry.version for entry in inferred.opset_import}
        known = len(opsets)
        names = _expand(inferred.graph, opsets, {})
        if not names:
            break
        for domain, version in list(opsets.items())[known:]:
            inferred.opset_import.add(domain=domain, version=version)
        expanded.update(dict.fromkeys(names))
        proto = inferred
    return proto, list(expanded)


def has_functions(proto: onnx.ModelProto) -> bool:
    """Whether a model, or a function of it, has operators whose function stands in the table, not in ONNX."""
    rows = (OPERATORS.get(node.op_type, node.domain) for node in nodes_of_model(proto))
    return any(row is not None and row.function is not None for row in rows)


def _is_anywhere(graph: onnx.GraphProto) -> bool:
    return any(_is_expanded(node) or any(map(_is_anywhere, subgraphs(node))) for node in graph.node)


def _is_expanded(node: onnx.NodeProto) -> bool:
    operator = OPERATORS.get(node.op_type, node.domain)
    return operator is not None and Trait.EXPANDED in operator.traits


def _expand(graph: onnx.GraphProto, opsets: Opsets, outer: Types) -> list[str]:
    """Write bodies in the place of the nodes of a graph and of its subgraphs; return the operators that went."""
    if not _is_anywhere(graph):
        return []
    types = {**outer, **types_of(graph)}
    taken = {name for node in every_node(graph.node) for name in (node.name, *node.input, *node.output)} | types.keys()
    data = constants_of(graph)
    names: list[str] = []
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for inner in subgraphs(node):
            names += _expand(inner, opsets, types)
        written = _written(node, opsets, types, data, taken) if _is_expanded(node) else None
        if written is None:
            nodes.append(node)
        else:
            names.append(node.op_type)
            nodes += written
        for one in [node] if written is None else written:
            if any(name and name not in types for name in one.output):
                learn(one, types, data, opsets)
    put_nodes(graph, nodes)
    return names


def _written(
    node: onnx.NodeProto, opsets: Opsets, types: Types, data: dict[str, onnx.TensorProto], taken: set[str]
) -> list[onnx.NodeProto] | None:
    """Return the nodes that stand for one, None where that cannot be said (yet)."""
    operator = OPERATORS.get(node.op_type, node.domain)
    if operator is not None and operator.function is not None:
        return _own_body(node, operator.function, types, data, taken)
    body = _body(node, opsets, types)
    return None if body is None else _inlined(node, body, taken)


def _own_body(
    node: onnx.NodeProto, function: Function, types: Types, data: dict[str, onnx.TensorProto], taken: set[str]
) -> list[onnx.NodeProto] | None:
    if any(name and (name not in types or not types[name].tensor_type.HasField("shape")) for name in node.input):
        return None
    body = Body(node, types, data, lambda name: unique(name, taken))
    try:
        function(body)
    except ModelError:
        if canonical(node.domain).startswith("ai.onnx"):  # which `reference` computes as it is
            return None
        raise
    return body.nodes


def _body(node: onnx.NodeProto, opsets: Opsets, types: Types) -> onnx.FunctionProto | None:
    """Return the function of a node, None if there is none; domains that it adds join ``opsets``."""
    domain = canonical(node.domain)
    if domain not in opsets or not onnx.defs.has(node.op_type, opsets[domain], node.domain):
        return None
    schema: Any = onnx.defs.get_schema(node.op_type, opsets[domain], node.domain)
    given = [types.get(name) for name in node.input]
    if any(name and kind is None for name, kind in zip(node.input, given, strict=True)):
        return None
    data = b""
    if schema.context_dependent_function_opset_versions:
        version = max(schema.context_dependent_function_opset_versions)
        kinds = [(onnx.TypeProto() if kind is None else kind).SerializeToString() for kind in given]
        data = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), kinds)
    elif schema.function_opset_versions:
        data = schema.get_function_with_opset_version(max(schema.function_opset_versions))
    body: onnx.FunctionProto = onnx.FunctionProto.FromString(data)
    if not body.node:
        return None
    asked = {canonical(entry.domain): entry.version for entry in body.opset_import}
    for one in every_node(body.node):
        place = canonical(one.domain)
        if place in opsets and not _is_same(one, asked.get(place, opsets[place]), opsets[place]):
            return None
    for place, version in asked.items():
        opsets.setdefault(place, version)
    return body


def _is_same(node: onnx.NodeProto, old: int, new: int) -> bool:
    """Whether a node of one opset means the same in another: its operator takes as many inputs, and its attributes."""
    if not onnx.defs.has(node.op_type, old, node.domain) or not onnx.defs.has(node.op_type, new, node.domain):
        return False
    before, after = (onnx.defs.get_schema(node.op_type, one, node.domain) for one in (old, new))
    same_inputs = [one.name for one in before.inputs] == [one.name for one in after.inputs]
    return before.since_version == after.since_version or (
        same_inputs and before.attributes.keys() <= after.attributes.keys()
    )


def _inlined(node: onnx.NodeProto, body: onnx.FunctionProto, taken: set[str]) -> list[onnx.NodeProto]:
    """Return the nodes of a body between the values of the node that they stand for, with names of their own.

    Absent inputs and attributes are absent in the body too; attributes have their defaults.
    """
    renamed = {"": "", **dict.fromkeys(body.input, ""), **dict(zip(body.input, node.input, strict=False))}
    renamed |= {formal: actual for formal, actual in zip(body.output, node.output, strict=False) if actual}
    attributes = {one.name: one for one in node.attribute}
    schema = onnx.defs.get_schema(node.op_type, domain=node.domain)
    for name, attribute in schema.attributes.items():
        if name not in attributes and attribute.default_value.type != onnx.AttributeProto.UNDEFINED:
            attributes[name] = attribute.default_value
    return [_renamed(one, renamed, attributes, node.name or node.output[0], taken) for one in body.node]


def _renamed(
    node: onnx.NodeProto, renamed: dict[str, str], attributes: Mapping[str, onnx.AttributeProto], stem: str,
    taken: set[str],
) -> onnx.NodeProto:  # fmt: skip
    """Return a copy of a body's node in its new names; those of its outputs join ``renamed``."""
    result = onnx.NodeProto(op_type=node.op_type, domain=node.domain)
    result.name = unique(f"{stem}/{node.name or node.op_type}", taken)
    result.input.extend(renamed.get(name, name) for name in node.input)
    for attribute in node.attribute:
        source = attributes.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if source is None:
            continue
        copy = result.attribute.add()
        copy.CopyFrom(source)
        copy.name = attribute.name
        for graph in (copy.g, *copy.graphs) if copy.type in _GRAPHS else ():
            _rename_graph(graph, renamed, attributes, stem, taken)
    for name in node.output:
        if name not in renamed:
            renamed[name] = unique(f"{stem}/{name}", taken)
        result.output.append(renamed[name])
    return result


_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def _rename_graph(
    graph: onnx.GraphProto, outer: dict[str, str], attributes: Mapping[str, onnx.AttributeProto], stem: str,
    taken: set[str],
) -> None:  # fmt: skip
    """Give all values of a body's subgraph new names, in place."""
    renamed = dict(outer)
    for value in (*graph.input, *graph.initializer):
        renamed[value.name] = value.name = unique(f"{stem}/{value.name}", taken)
    nodes = [_renamed(node, renamed, attributes, stem, taken) for node in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]
    for value in graph.output:
        value.name = renamed[value.name]
