"""Dequantised constant weights of products are stored K-major ``[k, n]``, as products by narrow weights read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from graft.core.rewriting.node_pass import Names, NodePass, Rewriter
from graft.core.rewriting.node_rewrite import add_constant, attribute_of, constant_of, is_operator, static_shape


@dataclass(frozen=True)
class WeightsKMajor(NodePass):
    """Transpose the constants of a DequantizeLinear of a matrix ``[n, k]`` where all that reads it transposes it.

    1. a Transpose, which goes
    2. the right factor of a Gemm, which has ``transB`` no longer
    """

    name: ClassVar[str] = "weights-k-major"

    def rewrite(self, node: ir.Node, rewriter: Rewriter) -> bool:
        """Rewrite a node as the class says."""
        is_stored_otherwise = is_operator(node, "DequantizeLinear") and _is_read_transposed(node)
        if is_stored_otherwise:
            _transpose(node, rewriter.names)
        return is_stored_otherwise


def _is_read_transposed(node: ir.Node) -> bool:
    value, known = node.outputs[0], [one for one in node.inputs if one is not None]
    if len(static_shape(node.inputs[0]) or ()) != 2 or any(constant_of(one) is None for one in known):
        return False
    return bool(value.uses()) and not value.is_graph_output() and all(_reads_transposed(*use) for use in value.uses())


def _reads_transposed(node: ir.Node, number: int) -> bool:
    """Whether a node reads its input of this number, a matrix, as its transpose."""
    if is_operator(node, "Transpose"):
        return not node.outputs[0].is_graph_output() and list(attribute_of(node, "perm", (1, 0))) == [1, 0]
    return is_operator(node, "Gemm") and number == 1 and bool(attribute_of(node, "transB", 0))


def _transpose(node: ir.Node, names: Names) -> None:
    graph, value = node.graph, node.outputs[0]
    assert isinstance(graph, ir.Graph), f"'{node.name}' is in no graph"
    for number, one in enumerate(node.inputs):
        contents = constant_of(one)
        if one is not None and contents is not None and contents.ndim == 2:
            transposed = add_constant(graph, names.fresh(f"{one.name}_transposed"), contents.T)
            transposed.type = one.type
            node.replace_input_with(number, transposed)
    node.attributes["axis"] = ir.AttrInt64("axis", 1 - attribute_of(node, "axis", 1) % 2)
    rows, columns = static_shape(node.inputs[0]) or (0, 0)
    value.shape = ir.Shape((rows, columns))
    for reader, _ in list(value.uses()):
        if is_operator(reader, "Gemm"):
            reader.attributes["transB"] = ir.AttrInt64("transB", 0)
        else:
            ir.convenience.replace_all_uses_with(reader.outputs[0], value)
            graph.remove(reader, safe=True)
