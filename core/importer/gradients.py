"""Gradient of ai.onnx.preview.training: its derivatives, written as nodes when a model is imported.

A gradient is taken at the node's own inputs: where these are the very values that it is by, the nodes of the model
serve as the forward pass, else those between are computed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import onnx

from graft.core.differentiation.reverse import Whole, is_cut, pull
from graft.core.graph.dimensions import unique
from graft.core.graph.protos import (
    constants_of,
    every_graph,
    every_node,
    order,
    put_nodes,
    reads_of,
    types_of,
    where_of,
)
from graft.core.graph.renaming import renamed
from graft.core.operators.definition.function_body import Body
from graft.core.shapes.inference import infer_proto

DOMAIN = "ai.onnx.preview.training"


def type_gradients(proto: onnx.ModelProto) -> list[str]:
    """State the types of what Gradient nodes give, in place, for onnx infers none; return nothing to be said."""
    for node in filter(is_gradient, list(proto.graph.node)):
        types = types_of(infer_proto(proto).graph)
        xs = [name for one in node.attribute if one.name == "xs" for name in one.strings]
        for x, name in zip(xs, node.output, strict=False):
            if name and name not in types and x.decode() in types:
                proto.graph.value_info.add(name=name).type.CopyFrom(types[x.decode()])
    return []


def write_gradients(proto: onnx.ModelProto, wholes: Sequence[Whole] = ()) -> list[str]:
    """Write derivatives in the place of Gradient nodes of the main graph, in place; return a note of each node.

    ``wholes`` are nodes that are differentiated as one. Raises ModelError where no derivative of an operator is known.
    """
    notes = []
    while (node := next(filter(is_gradient, proto.graph.node), None)) is not None:
        inferred = infer_proto(proto).graph
        taken = {name for other in every_node(proto.graph.node) for name in (other.name, *other.input, *other.output)}
        taken |= {one.name for graph in every_graph(inferred) for one in (*graph.input, *graph.initializer)}
        body = Body(node, types_of(inferred), constants_of(proto.graph), partial(unique, taken=taken))
        notes.append(_differentiate(body, proto.graph, wholes))
        rest = [one for one in proto.graph.node if one is not node]
        read = [*(name for one in rest for name in reads_of(one)), *(one.name for one in proto.graph.output)]
        put_nodes(proto.graph, order([*rest, *_needed(body, read)]))
        if any(map(is_gradient, rest)):
            _state_types(proto.graph, body.types)
    return notes


def _state_types(graph: onnx.GraphProto, types: Mapping[str, onnx.TypeProto]) -> None:
    """State the types of values, in place: derivatives of these ask for what rules know and ONNX does not infer."""
    stated = {one.name for one in (*graph.value_info, *graph.output)}
    for name in (name for node in graph.node for name in node.output):
        if name not in stated and name in types and types[name].tensor_type.HasField("shape"):
            graph.value_info.add(name=name).type.CopyFrom(types[name])


def is_gradient(node: onnx.NodeProto) -> bool:
    """Whether a node stands for derivatives."""
    return bool(node.op_type == "Gradient" and node.domain == DOMAIN)


def _differentiate(f: Body, graph: onnx.GraphProto, wholes: Sequence[Whole]) -> str:
    """Write the derivatives that a node is of; return its name, and which of them are zero, and why."""
    xs, y = f.attribute("xs"), f.attribute("y")
    fixed = [*xs, *f.attribute("zs", [])]
    f.require(len(fixed) == len(f.inputs), f"it has {len(f.inputs)} inputs for {len(fixed)} names in xs and zs")
    at = [f("Identity", name) if f.inputs.count(name) > 1 else name for name in f.inputs]
    here = {"": "", **{one: other for one, other in zip(fixed, at, strict=True) if one != other}}
    f.require(y in f.types, f"its result '{y}' is no value of the model")
    path = _path(graph, set(fixed), set(xs), y)
    again = []
    for node in path:
        step = node
        if not here.keys().isdisjoint(reads_of(node)):
            step = renamed(node, here, {}, f.node.name or f.node.output[0], f.fresh)
            f.add(step)
        again.append(step)
    steps: Sequence[onnx.NodeProto] = again
    result = here.get(y, y)
    ones = f("Expand", f.like(1.0, result), f("Shape", result))
    f.types[ones] = f.types[result]
    taken: dict[str, Whole] = {}
    for one in wholes if len(here) == 1 else ():
        joined = one.joined(steps, {*fixed, y})
        if joined is not steps:
            steps, taken[one.last] = joined, one
    found = pull(f, steps, {result: ones}, at[: len(xs)], taken)
    zero = [name for name, own in zip(xs, at, strict=False) if own not in found]
    for number, (name, own) in enumerate(zip(xs, at, strict=False)):
        f.give(number, found.get(own) or f("Expand", f.like(0.0, name), f("Shape", own)))
    said = "; ".join(f"zero for '{name}': {_why_zero(f, graph, name, y, set(fixed))}" for name in zero)
    return f"{f.node.name or f.node.output[0]}" + (f" ({said})" if said else "")


def _path(graph: onnx.GraphProto, fixed: set[str], xs: set[str], y: str) -> list[onnx.NodeProto]:
    """Return the nodes, in order, through which ``y`` depends on ``xs`` if all ``fixed`` values are given."""
    depends = set(xs)
    forward = []
    for node in graph.node:
        if not depends.isdisjoint(reads_of(node)) and not fixed & set(node.output):
            depends |= set(node.output)
            forward.append(node)
    needed: set[str] = {y}
    path: list[onnx.NodeProto] = []
    for node in reversed(forward):
        if needed & set(node.output):
            needed |= set(reads_of(node))
            path.insert(0, node)
    return path


def _why_zero(f: Body, graph: onnx.GraphProto, name: str, y: str, fixed: set[str]) -> str:
    cut = next((node for node in _path(graph, fixed, {name}, y) if is_cut(f.types, node)), None)
    if cut is None:
        return f"'{y}' does not depend on it"
    return f"no gradient comes through {where_of(cut)}"


def _needed(f: Body, read: Sequence[str]) -> list[onnx.NodeProto]:
    """Return those of the nodes written that the results of the node, and what else is ``read``, depend on."""
    needed = {*f.node.output, *read}
    kept: list[onnx.NodeProto] = []
    for node in reversed(f.nodes):
        if needed & set(node.output):
            needed |= set(reads_of(node))
            kept.insert(0, node)
    return kept
