"""Shapes that are known are written down, so that what computed them becomes dead code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from graft.core.model.passes.node_rewrite import (
    Names,
    add_constant,
    constant_of,
    is_operator,
    is_view,
    origin_of,
    sole_use,
    static_shape,
)


@dataclass(frozen=True)
class CanonicalizeShapes:
    """Give shape operands as literal constants.

    1. Reshape and Expand whose output shape is known take it as a constant, without 0 and -1
    2. a Reshape of a view (Flatten, Squeeze, another Reshape) that nobody else reads takes that one's input
    """

    name: ClassVar[str] = "canonicalize-shapes"

    def run(self, model: ir.Model) -> bool:
        """Change ``model`` in place and return whether anything changed."""
        names, changed = Names(model), False
        for node in list(ir.traversal.RecursiveGraphIterator(model.graph)):
            if is_operator(node, "Reshape", "Expand"):
                changed |= _write_shape(node, names)
            if is_operator(node, "Reshape"):
                changed |= _skip_view(node)
        return changed


def _write_shape(node: ir.Node, names: Names) -> bool:  # case 1
    shape, graph = static_shape(node.outputs[0]), node.graph
    if shape is None or 0 in shape or not isinstance(graph, ir.Graph):
        return False
    stated = constant_of(node.inputs[1])
    if stated is not None and tuple(stated.tolist()) == shape:
        return False
    if node.op_type == "Expand" and stated is not None:
        return False
    name = names.fresh(f"{node.outputs[0].name}_shape")
    node.replace_input_with(1, add_constant(graph, name, np.array(shape, np.int64)))
    return True


def _skip_view(node: ir.Node) -> bool:  # case 2
    source, stated = node.inputs[0], constant_of(node.inputs[1])
    producer = None if source is None else source.producer()
    if producer is None or source is None or not is_view(producer) or producer.graph is not node.graph:
        return False
    literal = stated is not None and bool((stated > 0).all())
    if not literal or not sole_use(source) or producer.inputs[0] is None:
        return False
    node.metadata_props.update(origin_of(producer, node))
    node.replace_input_with(0, producer.inputs[0])
    return True
