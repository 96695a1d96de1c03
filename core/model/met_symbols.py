"""Symbols of different inputs that meet in an operator: most likely one number, of which the file does not say so.

Exporters that give every dimension of every input a name of its own (``unk__7``, or none at all) leave it open whether
the ``batch`` of the words is that of their mask. Operators need it, or broadcast both: then either may also be 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, zip_longest

import onnx_ir as ir

from graft.core.model.shape_rules.elementwise import BROADCAST
from graft.core.model.shape_rules.facts import Dimension, Shape, normal_axis
from graft.core.model.symbolic_shapes import dimensions_of
from graft.core.model.view import NodeView
from graft.core.types import ONNX_DOMAINS
from graft.runtime.extents import Symbol


def met_symbols(model: ir.Model) -> Mapping[str, str]:
    """Return by symbol of an input the earlier one that it should be for all operators of the main graph to agree.

    Shapes are inferred. Empty where every two that meet are known to be equal.
    """
    order = [one.name for value in model.graph.inputs for one in dimensions_of(value) or () if isinstance(one, Symbol)]
    place = {name: number for number, name in reversed(list(enumerate(order)))}
    first = {name: name for name in place}

    def found(name: str) -> str:
        while first[name] != name:
            name = first[name]
        return name

    for node in model.graph:
        view = NodeView(node)
        shapes = [None if value is None else dimensions_of(value) for value in node.inputs]
        if node.domain not in ONNX_DOMAINS:
            continue
        for column in _columns(view, shapes):
            names = {one.name for one in column if isinstance(one, Symbol) and one.name in place}
            for one, other in combinations(sorted(map(found, names), key=place.__getitem__), 2):
                first[found(other)] = found(one)
    return {name: found(name) for name in sorted(place, key=place.__getitem__) if found(name) != name}


_COUNTED = {"MatMul": 2, "MatMulInteger": 2, "Gemm": 2, "Attention": 3}
"""How many of the first operands are told apart by their places; of Concat, all."""


def _columns(node: NodeView, shapes: Sequence[Shape | None]) -> Iterator[Sequence[Dimension]]:
    """Yield the extents of the operands' axes that belong together."""
    known = [shape for shape in shapes if shape is not None]
    if node.op_type in BROADCAST:
        yield from zip_longest(*(reversed(shape) for shape in known))
        return
    known = [shape for shape in shapes[: _COUNTED.get(node.op_type)] if shape is not None]
    if len(known) < _COUNTED.get(node.op_type, len(shapes)):
        return
    if node.op_type == "Concat":
        axis = normal_axis(node.attribute("axis", 0), len(known[0]))
        yield from (column for place, column in enumerate(zip(*known, strict=False)) if place != axis)
    elif node.op_type in ("MatMul", "MatMulInteger") and len(known[0]) > 1 and len(known[1]) > 1:
        yield known[0][-1], known[1][-2]
        yield from zip_longest(reversed(known[0][:-2]), reversed(known[1][:-2]))
    elif node.op_type == "Gemm":
        yield known[0][0 if node.attribute("transA", 0) else 1], known[1][1 if node.attribute("transB", 0) else 0]
    elif node.op_type == "Attention":
        yield [shape[0] for shape in known[:3]]
        yield known[1][-2], known[2][-2]
