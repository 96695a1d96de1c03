"""Functions in the place of operators: what ONNX defines by other operators is written as these.

An operator is expanded whose row in the table has the trait `EXPANDED`: nobody here computes it as a whole. Its row has
the function, or ONNX; most depend on the types and attributes of a node, so bodies are asked for node by node.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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
from graft.core.operators.definition.function_body import learn
from graft.core.operators.definition.table import Trait
from graft.core.rewriting.node_bodies import Opsets, Types, body_of
from graft.core.shapes.inference import infer_proto


def is_expanded(node: onnx.NodeProto) -> bool:
    """Whether nobody computes an operator as a whole."""
    operator = OPERATORS.get(node.op_type, node.domain)
    return operator is not None and Trait.EXPANDED in operator.traits


def expand_functions(
    proto: onnx.ModelProto, is_wanted: Callable[[onnx.NodeProto], bool] = is_expanded
) -> tuple[onnx.ModelProto, list[str]]:
    """Return a model with bodies in the place of operators that are ``is_wanted``, and the names of these operators.

    What bodies are made of is expanded in turn. An operator stays as it is where the types of its inputs are not known,
    or where ONNX defines it in terms of operators that mean another thing in the opset of the model.
    """
    expanded: dict[str, None] = {}
    while _is_anywhere(proto.graph, is_wanted):
        inferred = infer_proto(proto)
        opsets = {canonical(entry.domain): entry.version for entry in inferred.opset_import}
        known = len(opsets)
        names = _expand(inferred.graph, opsets, {}, is_wanted)
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
    return any(row is not None and row.function is not None and Trait.EXPANDED in row.traits for row in rows)


def _is_anywhere(graph: onnx.GraphProto, is_wanted: Callable[[onnx.NodeProto], bool]) -> bool:
    return any(
        is_wanted(node) or any(_is_anywhere(inner, is_wanted) for inner in subgraphs(node)) for node in graph.node
    )


def _expand(
    graph: onnx.GraphProto, opsets: Opsets, outer: Types, is_wanted: Callable[[onnx.NodeProto], bool]
) -> list[str]:
    """Write bodies in the place of the nodes of a graph and of its subgraphs; return the operators that went."""
    if not _is_anywhere(graph, is_wanted):
        return []
    types = {**outer, **types_of(graph)}
    taken = {name for node in every_node(graph.node) for name in (node.name, *node.input, *node.output)} | types.keys()
    fresh = partial(unique, taken=taken)
    data = constants_of(graph)
    names: list[str] = []
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for inner in subgraphs(node):
            names += _expand(inner, opsets, types, is_wanted)
        written = body_of(node, opsets, types, data, fresh) if is_wanted(node) else None
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
