"""Products over rows that were one axis for the product alone, with their axes as they are around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from graft.core.affine.expressions import Ranges
from graft.core.passes.canonicalize_shapes import symbolic_target
from graft.core.rewriting import node_rewrite as rewrite
from graft.core.rewriting.node_pass import Names, NodePass, Rewriter
from graft.core.rewriting.writer import Writer
from graft.core.shapes.symbolic_shapes import dimensions_of


@dataclass(frozen=True)
class KeepRowAxes(NodePass):
    """Write ``Reshape(Gemm(Reshape(x)))`` with a varying number of rows as MatMul and Add over the axes of the result.

    Gemm takes matrices, so exporters write ``[batch, length]`` as one axis before it and as two behind it. Where the
    extents are numbers a kernel goes on through that Reshape; where they vary, it reads the shapes of what it is
    given, and what follows the product could not join it.
    """

    name: ClassVar[str] = "keep-row-axes"

    def rewrite(self, node: ir.Node, rewriter: Rewriter) -> bool:
        """Rewrite a node as the class says."""
        return rewrite.is_plain_gemm(node) and _rewrite(node, rewriter.names, rewriter.ranges)


def _rewrite(node: ir.Node, names: Names, ranges: Ranges) -> bool:
    """Replace a Gemm between two Reshapes, and the second of them; False where it is something else."""
    rows, graph = node.inputs[0], node.graph
    before, after = None if rows is None else rows.producer(), _reader(node.outputs[0])
    weights, writer = _weights(node), Writer(node, names)
    if not rewrite.is_operator(before, "Reshape") or not rewrite.is_operator(after, "Reshape") or weights is None:
        return False
    assert before is not None
    assert after is not None
    source, result = before.inputs[0], after.outputs[0]
    if source is None or rows is None or not isinstance(graph, ir.Graph) or {before.graph, after.graph} != {graph}:
        return False
    given, flat, wanted = dimensions_of(source), dimensions_of(rows), dimensions_of(result)
    if given is None or wanted is None or flat is None or None in wanted or isinstance(flat[0], int):
        return False
    terms, columns = weights.shape
    inner = (*wanted[:-1], terms)
    target = symbolic_target(given, inner, ranges)
    if len(wanted) < 3 or wanted[-1] != columns or result.shape is None or (given != inner and target is None):
        return False
    if given != inner:
        assert target is not None, f"'{node.name}' has no target"
        rows_apart = [*list(result.shape)[:-1], target[-1]]
        source = writer.emit("Reshape", [source, writer.ints(*target)], source.dtype, rows_apart)
    right = node.inputs[1]
    if rewrite.attribute_of(node, "transB", 0):
        right = writer.constant("weights", weights)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is None:
        rewrite.replace_node(after, "MatMul", [source, right], origins=[node])
        return True
    product = writer.emit("MatMul", [source, right], result.dtype, result.shape)
    rewrite.replace_node(after, "Add", [product, bias], origins=[node])
    return True


def _reader(value: ir.Value) -> ir.Node | None:
    """Return the only node that reads a value, as its first input; None if there is no such node."""
    uses = list(value.uses())
    return uses[0].node if rewrite.sole_use(value) and uses[0].idx == 0 else None


def _weights(node: ir.Node) -> np.ndarray | None:
    """Return the constant right factor of a Gemm, K-major; None of one that would have to be kept in two orders.

    None, too, if a bias differs from row to row.
    """
    right, bias = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
    contents, transposed = rewrite.constant_of(right), bool(rewrite.attribute_of(node, "transB", 0))
    shape = () if bias is None else dimensions_of(bias)
    if (
        right is None
        or contents is None
        or shape is None
        or len(shape) > 1
        or (transposed and not rewrite.sole_use(right))
    ):
        return None
    return contents.T if transposed else contents
