"""Attention with its heads as an axis of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from graft.core.rewriting.node_pass import Names, NodePass, Rewriter
from graft.core.rewriting.node_rewrite import add_constant, attribute_of, is_operator, origin_of

HEADS_SECOND = [0, 2, 1, 3]


@dataclass(frozen=True)
class SplitHeads(NodePass):
    """Write Attention over ``[batch, position, head * feature]`` as one over ``[batch, head, position, feature]``.

    Its inputs are split by Reshape and Transpose, its result is put together again; so there is one form of Attention
    to take, and transpositions beside it meet.
    """

    name: ClassVar[str] = "split-heads"
    infers: ClassVar[bool] = True

    def rewrite(self, node: ir.Node, rewriter: Rewriter) -> bool:
        """Rewrite a node as the class says."""
        is_flat = _is_flat(node)
        if is_flat:
            _split(node, rewriter.names)
        return is_flat


def _is_flat(node: ir.Node) -> bool:
    if not is_operator(node, "Attention"):
        return False
    query = node.inputs[0]
    return query is not None and query.shape is not None and query.shape.rank() == 3


def _split(node: ir.Node, names: Names) -> None:
    output = node.outputs[0]
    counts = [attribute_of(node, "q_num_heads", 0), *2 * [attribute_of(node, "kv_num_heads", 0)]]
    for number, count in enumerate(counts):
        value = node.inputs[number]
        assert value is not None, f"'{node.name}' has no input {number}"
        split = _step(node, names, "Reshape", value, np.array([0, 0, count, -1]))
        node.replace_input_with(number, _step(node, names, "Transpose", split))
    del node.attributes["q_num_heads"], node.attributes["kv_num_heads"]
    readers, name = list(output.uses()), output.name
    output.name = names.fresh(f"{name}_by_head")
    output.shape = None
    transposed = _step(node, names, "Transpose", output, after=True)
    whole = _step(node, names, "Reshape", transposed, np.array([0, 0, -1]), after=True)
    for use in readers:
        use.node.replace_input_with(use.idx, whole)
    graph = node.graph
    assert graph is not None, f"'{node.name}' is in no graph"
    for place, value in enumerate(graph.outputs):
        if value is output:
            graph.outputs[place] = whole
    whole.name = name


def _step(
    node: ir.Node, names: Names, op_type: str, value: ir.Value, shape: np.ndarray | None = None, *, after: bool = False
) -> ir.Value:
    """Return ``value`` transposed, or reshaped to ``shape``, by a node beside ``node`` that stands for it."""
    graph = node.graph
    assert graph is not None, f"'{node.name}' is in no graph"
    inputs, attributes = [value], {"perm": HEADS_SECOND}
    if shape is not None:
        inputs, attributes = [value, add_constant(graph, names.fresh(f"{value.name}_shape"), shape)], {}
    name = names.fresh(f"{node.name}_{op_type.lower()}")
    step = ir.node(op_type, inputs, attributes=attributes, name=name)
    step.metadata_props.update(origin_of(node))
    step.outputs[0].name = names.fresh(name)
    step.outputs[0].type = value.type
    last = value.producer()
    if after and last is not None:
        graph.insert_after(last, step)
    else:
        graph.insert_before(node, step)
    return step.outputs[0]
