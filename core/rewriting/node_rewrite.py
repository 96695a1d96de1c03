"""What passes share: replacing values and nodes while names, origins and the graph's outputs stay right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import NodeView, constant_tensor
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Trait

ORIGIN = "graft.origin"
"""The key of `ir.Node.metadata_props` for the names of the model's nodes that a node stands for, joined by ``,``."""

RECOMPUTED = "/recomputed"
"""How the names of nodes end that compute again, to save memory, what others have computed: they stay apart."""


def origin_of(*nodes: ir.Node) -> dict[str, str]:
    """Return the metadata of a node that takes the place of ``nodes``: the names they stand for."""
    names: dict[str, None] = {}
    for node in nodes:
        origin = node.metadata_props.get(ORIGIN)
        names.update(dict.fromkeys(origin.split(",") if origin else [node.name or ""]))
    return {ORIGIN: ",".join(names)}


def is_recomputed(node: ir.Node) -> bool:
    """Whether a node computes again what another has computed."""
    return any(name.endswith(RECOMPUTED) for name in origin_of(node)[ORIGIN].split(","))


def is_operator(node: ir.Node | None, *names: str) -> bool:
    """Whether ``node`` is one of the ai.onnx operators ``names``."""
    return node is not None and node.domain in ("", "ai.onnx") and node.op_type in names


def has_trait(node: ir.Node, trait: Trait) -> bool:
    """Whether the table of operators, plugins' among them, gives a node's operator a trait."""
    operator = OPERATORS.get(node.op_type, node.domain)
    return operator is not None and trait in operator.traits


def is_plain_gemm(node: ir.Node) -> bool:
    """Whether a node is a Gemm without factors, its first matrix as it is."""
    usual = {"alpha": 1.0, "beta": 1.0, "transA": 0}
    return is_operator(node, "Gemm") and all(attribute_of(node, name, value) == value for name, value in usual.items())


def channels_of_weights(node: ir.Node) -> int | None:
    """Return the axis of a product's weights along which the channels of its result lie, None for other operators."""
    operator = OPERATORS.get(node.op_type, node.domain)
    found = None if operator is None else operator.channels_of_weights
    return None if found is None else found(NodeView(node))


def moved_inputs(node: ir.Node) -> Sequence[ir.Value | None]:
    """Return the inputs whose elements an operator that moves data hands on: the first, or all that it joins."""
    return node.inputs if has_trait(node, Trait.JOINING) else node.inputs[:1]


def hands_on(node: ir.Node) -> bool:
    """Whether the elements of a node's result are elements of its operands: it moves them, or takes the largest."""
    return has_trait(node, Trait.DATA_MOVEMENT) or (has_trait(node, Trait.POOLING) and has_trait(node, Trait.SELECTING))


def is_view(node: ir.Node) -> bool:
    """Whether a node gives its first input under another shape; Dropout does so in inference alone."""
    operator = OPERATORS.of(NodeView(node))
    accepts = None if operator is None else operator.accepts
    return has_trait(node, Trait.VIEW) and (accepts is None or accepts(NodeView(node)) is None)


def constant_of(value: ir.Value | None) -> np.ndarray | None:
    """Return the contents of a constant value as an array, else None."""
    tensor = None if value is None else constant_tensor(value)
    return None if tensor is None else tensor.numpy()


def static_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the shape of a value where every dimension is a number, else None."""
    if value is None or value.shape is None or not value.shape.is_static():
        return None
    return tuple(int(dimension) for dimension in value.shape.numpy())


def image_shape(value: ir.Value | None) -> tuple[int | ir.SymbolicDim, tuple[int, ...]] | None:
    """Return the batch of a value, which may be an expression, and its other extents; None if these are no numbers."""
    shape = known_shape(value)
    rest = tuple(one for one in shape[1:] if isinstance(one, int)) if shape else ()
    return (shape[0], rest) if shape and len(rest) == len(shape) - 1 else None


def known_shape(value: ir.Value | None) -> tuple[int | ir.SymbolicDim, ...] | None:
    """Return the shape of a value where every dimension is a number or an expression, else None."""
    if value is None or value.shape is None:
        return None
    if any(not isinstance(one, int) and one.value is None for one in value.shape):
        return None
    return tuple(value.shape)


def attribute_of(node: ir.Node, name: str, default: Any) -> Any:
    """Return the Python value of an attribute, ``default`` if it is absent."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.value


def sole_use(value: ir.Value) -> bool:
    """Whether exactly one node input reads ``value`` and it is no output of a graph."""
    return len(value.uses()) == 1 and not value.is_graph_output()


def graph_of(node: ir.Node) -> ir.Graph:
    """Return the graph of a node that is in one."""
    assert node.graph is not None, f"node '{node.name}' is in no graph"
    return node.graph


def add_constant(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    """Add an initialiser called ``name`` and return its value."""
    tensor = ir.tensor(np.ascontiguousarray(array).reshape(array.shape), name=name)
    value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.initializers.add(value)
    return value


def replace_node(
    old: ir.Node,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    attributes: Mapping[str, Any] | None = None,
    origins: Sequence[ir.Node] = (),
) -> ir.Node:
    """Put a node of one output in the place of ``old``; it keeps name, type, uses, and the output's name.

    ``origins`` are the nodes that it stands for besides ``old``; their names go into its metadata.
    """
    graph, output = graph_of(old), old.outputs[0]
    new = ir.node(op_type, inputs, attributes=dict(attributes or {}), name=old.name)
    if origins or old.metadata_props:
        new.metadata_props.update(origin_of(*origins, old))
    graph.insert_before(old, new)
    new.outputs[0].type, new.outputs[0].shape = output.type, output.shape
    hand_over(output, new.outputs[0])
    graph.remove(old, safe=True)
    return new


def bypass(node: ir.Node) -> bool:
    """Remove a node whose first output equals its first input; return False where the graph needs the node.

    It does where an output of the graph would become one of its inputs, a constant, or a value from outside.
    """
    graph, source, output = graph_of(node), node.inputs[0], node.outputs[0]
    assert source is not None, f"node '{node.name}' reads nothing"
    source.type = source.type or output.type
    source.shape = source.shape if source.shape is not None else output.shape
    if output.is_graph_output():
        producer = source.producer()
        if producer is None or producer.graph is not graph or source.is_graph_output():
            return False
        ir.convenience.replace_all_uses_with(output, source, replace_graph_outputs=True)
        name, output.name = output.name, f"{output.name}_bypassed"
        source.name = name
    else:
        ir.convenience.replace_all_uses_with(output, source)
    graph.remove(node, safe=True)
    return True


def hand_over(old: ir.Value, new: ir.Value) -> None:
    """Let a value take uses, name and place among the graph's outputs of another."""
    name = old.name
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    old.name = f"{name}_replaced"
    new.name = name
