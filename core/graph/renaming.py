"""Copies of nodes, and of the graphs within them, between values of other names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx

Fresh = Callable[[str], str]
"""Gives a name that nothing has, made of another."""


def renamed(
    node: onnx.NodeProto, names: dict[str, str], attributes: Mapping[str, onnx.AttributeProto], stem: str,
    fresh: Fresh,
) -> onnx.NodeProto:  # fmt: skip
    """Return a copy of a node in new names; those of its outputs join ``names``."""
    result = onnx.NodeProto(op_type=node.op_type, domain=node.domain)
    result.name = fresh(f"{stem}/{node.name or node.op_type}")
    result.input.extend(names.get(name, name) for name in node.input)
    for attribute in node.attribute:
        source = attributes.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if source is None:
            continue
        copy = result.attribute.add()
        copy.CopyFrom(source)
        copy.name = attribute.name
        for graph in (copy.g, *copy.graphs) if copy.type in _GRAPHS else ():
            _rename_graph(graph, names, attributes, stem, fresh)
    for name in node.output:
        if name not in names:
            names[name] = fresh(f"{stem}/{name}")
        result.output.append(names[name])
    return result


_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def _rename_graph(
    graph: onnx.GraphProto, outer: dict[str, str], attributes: Mapping[str, onnx.AttributeProto], stem: str,
    fresh: Fresh,
) -> None:  # fmt: skip
    """Give all values of a body's subgraph new names, in place."""
    names = dict(outer)
    for value in (*graph.input, *graph.initializer):
        names[value.name] = value.name = fresh(f"{stem}/{value.name}")
    nodes = [renamed(node, names, attributes, stem, fresh) for node in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]
    for value in graph.output:
        value.name = names[value.name]
