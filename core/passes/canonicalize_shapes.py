"""Shapes that are known are written down, so that what computed them becomes dead code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from graft.core.affine.expressions import Ranges, is_at_least
from graft.core.operators.definition.facts import Shape
from graft.core.rewriting import node_rewrite as rewrite
from graft.core.rewriting.node_pass import Names, NodePass, Rewriter
from graft.core.shapes.shape_arithmetic import comes_from_shapes
from graft.core.shapes.symbolic_shapes import dimensions_of


@dataclass(frozen=True)
class CanonicalizeShapes(NodePass):
    """Give shape operands as literal constants.

    1. Reshape and Expand whose output shape is known take it as a constant, without 0 and -1: not where data decide it
       and the shape is only stated
    2. so does Reshape whose output shape has symbols, where 0 says that an extent is kept and -1 what is left: not if
       that would divide by an extent that may be 0
    3. a Reshape of a view (Flatten, Squeeze, another Reshape) that nobody else reads takes that one's input
    """

    name: ClassVar[str] = "canonicalize-shapes"

    def rewrite(self, node: ir.Node, rewriter: Rewriter) -> bool:
        """Rewrite a node as the class says."""
        if not rewrite.is_operator(node, "Reshape", "Expand"):
            return False
        changed = _write_shape(node, rewriter.names) or _write_symbolic(node, rewriter)
        return (node.op_type == "Reshape" and _skip_view(node)) or changed


def _write_shape(node: ir.Node, names: Names) -> bool:  # case 1
    shape, graph = rewrite.static_shape(node.outputs[0]), node.graph
    if shape is None or 0 in shape or not isinstance(graph, ir.Graph):
        return False
    stated = rewrite.constant_of(node.inputs[1])
    if stated is not None and tuple(stated.tolist()) == shape:
        return False
    if node.op_type == "Expand" and stated is not None:
        return False
    if node.inputs[1] is None or not comes_from_shapes(node.inputs[1]):
        return False
    name = names.fresh(f"{node.outputs[0].name}_shape")
    node.replace_input_with(1, rewrite.add_constant(graph, name, np.array(shape, np.int64)))
    return True


def _write_symbolic(node: ir.Node, rewriter: Rewriter) -> bool:  # case 2
    source, output, graph = node.inputs[0], node.outputs[0], node.graph
    before = None if source is None else dimensions_of(source)
    after = dimensions_of(output)
    if not rewrite.is_operator(node, "Reshape") or after is None or before is None or not isinstance(graph, ir.Graph):
        return False
    target = symbolic_target(before, after, rewriter.ranges)
    stated = rewrite.constant_of(node.inputs[1])
    if target is None or (stated is not None and stated.tolist() == target):
        return False
    name = rewriter.names.fresh(f"{output.name}_shape")
    node.replace_input_with(1, rewrite.add_constant(graph, name, np.array(target, np.int64)))
    node.attributes.pop("allowzero", None)
    return True


def symbolic_target(before: Shape, after: Shape, ranges: Ranges) -> list[int] | None:
    """Return the constant target of a Reshape between shapes with symbols, None where there is none that is safe."""
    if all(isinstance(one, int) for one in after) or 0 in after:
        return None
    target: list[int] = []
    for axis, extent in enumerate(after):
        kept = extent is not None and axis < len(before) and before[axis] == extent
        target.append(extent if isinstance(extent, int) else 0 if kept else -1)
    others = [one for one, place in zip(after, target, strict=True) if place != -1]
    safe = all(one is not None and is_at_least(one, 1, ranges) for one in others)
    return target if -1 not in target or (target.count(-1) == 1 and safe) else None


def _skip_view(node: ir.Node) -> bool:  # case 3
    source, stated = node.inputs[0], rewrite.constant_of(node.inputs[1])
    producer = None if source is None else source.producer()
    if producer is None or source is None or not rewrite.is_view(producer) or producer.graph is not node.graph:
        return False
    literal = stated is not None and bool((stated > 0).all())
    if not literal or not rewrite.sole_use(source) or producer.inputs[0] is None:
        return False
    node.metadata_props.update(rewrite.origin_of(producer, node))
    node.replace_input_with(0, producer.inputs[0])
    return True
