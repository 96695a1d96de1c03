"""Attention with its heads as an axis of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from graft.core.rewriting.node_pass import Names, NodePass, Rewriter
from graft.core.rewriting.node_rewrite import attribute_of, hand_over, is_operator
from graft.core.rewriting.writer import Writer

HEADS_SECOND = (0, 2, 1, 3)


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
    output, writer, behind = node.outputs[0], Writer(node, names), Writer(node, names, after=True)
    counts = [attribute_of(node, "q_num_heads", 0), *2 * [attribute_of(node, "kv_num_heads", 0)]]
    for number, count in enumerate(counts):
        value = node.inputs[number]
        assert value is not None, f"'{node.name}' has no input {number}"
        split = writer.transposed(writer.reshaped(value, 0, 0, count, -1), *HEADS_SECOND)
        split.type = value.type
        node.replace_input_with(number, split)
    del node.attributes["q_num_heads"], node.attributes["kv_num_heads"]
    transposed = behind.transposed(output, *HEADS_SECOND)
    whole = behind.reshaped(transposed, 0, 0, -1)
    whole.type, name = output.type, output.name
    hand_over(output, whole)
    maker = transposed.producer()
    assert maker is not None, f"'{node.name}' has no result"
    maker.replace_input_with(0, output)
    output.name, output.shape = names.fresh(f"{name}_by_head"), None
