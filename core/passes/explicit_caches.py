"""Attention whose caches are put together by Concat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from graft.core.graph.view import ValueView
from graft.core.rewriting.node_pass import Names, NodePass, Rewriter
from graft.core.rewriting.node_rewrite import attribute_of, hand_over, is_operator
from graft.core.rewriting.writer import Writer


@dataclass(frozen=True)
class ExplicitCaches(NodePass):
    """Write Attention that gives its caches with the new keys and values back as Concats and Attention over these.

    The caches are needed in memory anyway. So attention has one result, and is one kernel; and growing caches look
    alike, whoever put them together. What counts positions from the end of the past (``is_causal``, windows) is told
    the number of all keys, from which the number of queries is subtracted; so where there are not as many new keys as
    queries, such nodes stay as they are.
    """

    name: ClassVar[str] = "explicit-caches"
    infers: ClassVar[bool] = True

    def rewrite(self, node: ir.Node, rewriter: Rewriter) -> bool:
        """Rewrite a node as the class says."""
        grows = _grows(node)
        if grows:
            _rewrite(node, rewriter.names)
        return grows


def _grows(node: ir.Node) -> bool:
    """Whether a node is Attention over four axes that gives a cache back."""
    if not is_operator(node, "Attention") or len(node.inputs) < 6 or None in node.inputs[4:6]:
        return False
    query, presents = node.inputs[0], node.outputs[1:3]
    used = any(value.uses() or value.is_graph_output() for value in presents)
    if not used or query is None or query.shape is None or query.shape.rank() != 4:
        return False
    return not _counts(node) or _as_many_keys(node)


def _as_many_keys(node: ir.Node) -> bool:
    """Whether there are as many new keys as queries."""
    query, key = node.inputs[:2]
    if query is None or key is None or query.shape is None or key.shape is None:
        return False
    return query.shape[2] == key.shape[2] and ValueView(query).shape[2] is not None  # type: ignore[index]


def _counts(node: ir.Node) -> bool:
    """Whether a node counts positions: it is causal, or has windows."""
    windows = (attribute_of(node, f"{side}_window_size", -1) for side in ("left", "right"))
    return bool(attribute_of(node, "is_causal", 0)) or any(size >= 0 for size in windows)


def _rewrite(node: ir.Node, names: Names) -> None:
    writer = Writer(node, names)
    for number, past in ((1, 4), (2, 5)):
        old, new = node.inputs[past], node.inputs[number]
        assert old is not None, f"'{node.name}' has no cache"
        assert new is not None, f"'{node.name}' has no input {number}"
        whole = writer.concatenated(old, new, axis=2)
        if len(node.outputs) > number:
            hand_over(node.outputs[number], whole)
            node.outputs[number].name = ""  # by which nobody calls it any more
        node.replace_input_with(number, whole)
    keys, query = node.inputs[1], node.inputs[0]
    node.resize_inputs(4)
    if _counts(node):
        node.resize_inputs(7)
        count, batch = writer("Shape", keys, start=2, end=3), writer("Shape", query, start=0, end=1)
        node.replace_input_with(6, writer("Expand", count, batch))
