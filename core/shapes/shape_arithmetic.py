"""Shape arithmetic: the nodes that compute with the shapes of a graph's inputs, and with nothing else.

No kernel computes these: their results are extents, which the runtime evaluates when a program is called
(`graft.compiler.stitching.stitch`). `graft.core.passes.derive_shapes` brings all arithmetic of shapes into this
form.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from graft.core.affine.expressions import names_in
from graft.core.graph.view import NodeView, constant_tensor, is_packed
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.facts import MOST_CONTENTS, Contents, Facts, Shape, UnknownError
from graft.core.operators.definition.table import Trait
from graft.core.shapes.symbolic_shapes import constant_contents, dimensions_of
from graft.core.types import CUSTOM_DOMAIN
from graft.errors import ModelError

WHOLE_NUMBERS = frozenset({ir.DataType.INT64, ir.DataType.INT32})
"""The element types of tensors that extents can be the elements of."""


def shape_arithmetic(graph: ir.Graph) -> Mapping[ir.Value, Contents]:
    """Return the values of a main graph that shape arithmetic computes, with their elements.

    Values that are no whole numbers are among them only if nothing but such nodes reads them.
    """
    known: dict[ir.Value, Contents] = {}
    nodes: list[ir.Node] = []
    for node in graph:
        found = _evaluated(node, known)
        if found is not None:
            known[node.outputs[0]] = found
            nodes.append(node)
    for node in reversed(nodes):
        value = node.outputs[0]
        inner = not value.is_graph_output() and all(use.node.outputs[0] in known for use in value.uses())
        if value.dtype not in WHOLE_NUMBERS and not inner:
            del known[value]
    return known


def comes_from_shapes(value: ir.Value) -> bool:
    """Whether a value is computed from constants and shapes alone: no contents of an input decide it."""
    seen: set[ir.Value] = set()
    todo = [value]
    while todo:
        one = todo.pop()
        if one in seen or constant_tensor(one) is not None:
            continue
        seen.add(one)
        node = one.producer()
        if node is None:
            return False
        if not OPERATORS.has(NodeView(node), Trait.SHAPE_ONLY):
            todo += [source for source in node.inputs if source is not None]
    return True


def _evaluated(node: ir.Node, known: Mapping[ir.Value, Contents]) -> Contents | None:
    """Return the elements of a node's one result where shape arithmetic computes it."""
    row = OPERATORS.of(view := NodeView(node))
    if row is None or row.contents is None or len(node.outputs) != 1 or node.domain == CUSTOM_DOMAIN:
        return None
    reads_shape = Trait.SHAPE_ONLY in row.traits
    source = node.inputs[0] if reads_shape else None
    if reads_shape and (source is None or not source.is_graph_input() or not _has_known_shape(source)):
        return None
    if not reads_shape and not any(value in known for value in node.inputs):
        return None
    contents = [None if value is None else known.get(value) or constant_contents(value) for value in node.inputs]
    if not reads_shape and any(one is None and value for one, value in zip(contents, node.inputs, strict=True)):
        return None
    shapes = [None if value is None else _shape(value) for value in node.inputs]
    try:
        found = row.contents(Facts(view, shapes, contents, result=dimensions_of(node.outputs[0])))
    except (ModelError, UnknownError):
        return None
    fits = found is not None and len(found.shape) < 2 and len(found.elements) <= MOST_CONTENTS
    return found if fits and found is not None and found.known is not None else None


def _has_known_shape(value: ir.Value) -> bool:
    """Whether the runtime knows the shape of an input: of packed ones it knows the bytes."""
    return not is_packed(value) or not names_in(dimensions_of(value) or ())


def _shape(value: ir.Value) -> Shape | None:
    tensor = constant_tensor(value)
    return dimensions_of(value) if tensor is None else tuple(tensor.shape.numpy())
