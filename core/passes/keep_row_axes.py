"""Products over rows that were one axis for the product alone, with their axes as they are around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from graft.core.affine.expressions import Ranges
from graft.core.passes.canonicalize_shapes import symbolic_target
from graft.core.rewriting.node_pass import Names, NodePass, Rewriter
from graft.core.rewriting.node_rewrite import (
    add_constant,
    attribute_of,
    constant_of,
    is_operator,
    origin_of,
    replace_node,
    sole_use,
)
from graft.core.shapes.symbolic_shapes import dimensions_of

USUAL: Mapping[str, int | float] = {"alpha": 1.0, "beta": 1.0, "transA": 0}


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
        is_plain = is_operator(node, "Gemm") and all(
            attribute_of(node, name, usual) == usual for name, usual in USUAL.items()
        )
        return is_plain and _rewrite(node, rewriter.names, rewriter.ranges)


def _rewrite(node: ir.Node, names: Names, ranges: Ranges) -> bool:
    """Replace a Gemm between two Reshapes, and the second of them; False where it is something else."""
    rows, graph = node.inputs[0], node.graph
    before, after = None if rows is None else rows.producer(), _reader(node.outputs[0])
    weights = _weights(node)
    if not is_operator(before, "Reshape") or not is_operator(after, "Reshape") or weights is None:
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
        source = _reshaped(node, source, np.array(target, np.int64), result.shape, names)
    right = node.inputs[1]
    if attribute_of(node, "transB", 0):
        right = add_constant(graph, names.fresh(f"{node.name}_weights"), weights)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is None:
        replace_node(after, "MatMul", [source, right], origins=[node])
        return True
    product = ir.node("MatMul", [source, right], name=names.fresh(f"{node.name}_product"))
    product.metadata_props.update(origin_of(node))
    product.outputs[0].name = names.fresh(f"{node.outputs[0].name}_product")
    product.outputs[0].type, product.outputs[0].shape = result.type, result.shape
    graph.insert_before(after, product)
    replace_node(after, "Add", [product.outputs[0], bias], origins=[node])
    return True


def _reader(value: ir.Value) -> ir.Node | None:
    """Return the only node that reads a value, as its first input; None if there is no such node."""
    uses = list(value.uses())
    return uses[0].node if sole_use(value) and uses[0].idx == 0 else None


def _weights(node: ir.Node) -> np.ndarray | None:
    """Return the constant right factor of a Gemm, K-major; None of one that would have to be kept in two orders.

    None, too, if a bias differs from row to row.
    """
    right, bias = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
    contents, transposed = constant_of(right), bool(attribute_of(node, "transB", 0))
    shape = () if bias is None else dimensions_of(bias)
    if right is None or contents is None or shape is None or len(shape) > 1 or (transposed and not sole_use(right)):
        return None
    return contents.T if transposed else contents


def _reshaped(node: ir.Node, source: ir.Value, target: np.ndarray, like: ir.Shape, names: Names) -> ir.Value:
    """Return ``source`` with the row axes of ``like``, by a node before ``node`` that stands for it."""
    graph = node.graph
    assert isinstance(graph, ir.Graph), f"'{node.name}' is in no graph"
    name = names.fresh(f"{node.name}_rows")
    step = ir.node("Reshape", [source, add_constant(graph, names.fresh(f"{name}_shape"), target)], name=name)
    step.metadata_props.update(origin_of(node))
    step.outputs[0].name, step.outputs[0].type = names.fresh(f"{name}_of"), source.type
    step.outputs[0].shape = ir.Shape([*list(like)[:-1], int(target[-1])])
    graph.insert_before(node, step)
    return step.outputs[0]
