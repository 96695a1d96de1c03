"""What an operator and a boundary cost, as far as the operator table and the shapes say.

Shapes that vary count with a typical number for each symbol, within its range (`graft.runtime.typical_shapes`):
`typical_numbers` of the model, which a `Region` has as ``typical``. What no range tells anything of counts `LENGTH`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView, likeness
from graft.core.operators.definition.table import Cost, OperatorTable
from graft.core.shapes.sample_inputs import typical_numbers
from graft.core.shapes.symbolic_shapes import dimensions_of
from graft.core.types import element_bits
from graft.errors import GraftError
from graft.runtime.extents import evaluate, symbols_of
from graft.runtime.typical_shapes import LENGTH

UNKNOWN_BYTES = 1 << 20
"""What a value of unknown shape is taken to have."""


def typical_shape(value: ir.Value, typical: Mapping[str, int], other: int | None = LENGTH) -> tuple[int, ...] | None:
    """Return the shape of a value with a number for each symbol, None where a dimension is not known at all.

    Symbols that are not in ``typical`` are ``other``, or not known.
    """
    extents = dimensions_of(value)
    if extents is None:
        return None
    numbers: list[int] = []
    for extent in extents:
        if extent is None:
            return None
        try:
            own = {symbol.name: typical.get(symbol.name, other) for symbol in symbols_of(extent)}
            numbers.append(max(0, evaluate(extent, {name: one for name, one in own.items() if one is not None})))
        except GraftError:
            return None
    return tuple(numbers)


@dataclass(slots=True)
class Work:
    """Floating-point operations of nodes, remembered for nodes that differ in nothing that counts."""

    operators: OperatorTable
    typical: Mapping[str, int] = field(default_factory=dict)
    """By symbol: the number that it counts with."""
    other: int | None = LENGTH
    """The number of other symbols; None: what has them does not count."""
    _known: dict[object, int] = field(default_factory=dict)

    @classmethod
    def of_model(cls, operators: OperatorTable, model: ir.Model) -> Work:
        """Return the work of a model's nodes at its typical shapes."""
        return cls(operators, typical_numbers(model))

    def flops(self, view: NodeView) -> int:
        """Return the floating-point operations of a node, 0 where the table has no cost or shapes are unknown."""
        key = likeness(view.node)
        if key is None:
            return self._count(view)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._count(view)
        return known

    def _count(self, view: NodeView) -> int:
        operator = self.operators.of(view)
        if operator is None or operator.cost is None:
            return 0
        static = all(value is None or value.static_shape is not None for value in (*view.inputs, *view.outputs))
        at = view if static else _at_typical_shapes(view, self)
        return 0 if at is None else operator.cost(at).flops


def _at_typical_shapes(view: NodeView, work: Work) -> NodeView | None:
    """Return a node like this one whose values have numbers for shapes, None where some are not known."""
    node = view.node
    stand_ins: list[ir.Value | None] = []
    for value in (*node.inputs, *node.outputs):
        shape = None if value is None else typical_shape(value, work.typical, work.other)
        if value is not None and shape is None:
            return None
        stand_ins.append(
            None if value is None or shape is None
            else ir.Value(name=value.name, shape=ir.Shape(shape), type=value.type, const_value=value.const_value)
        )  # fmt: skip
    count = len(node.inputs)
    outputs = [value for value in stand_ins[count:] if value is not None]
    return NodeView(
        ir.Node(node.domain, node.op_type, stand_ins[:count], node.attributes.values(), outputs=outputs, name=node.name)
    )


def kernel_cost(nodes: Sequence[NodeView], work: Work) -> Cost:
    """Return the cost of nodes that share a kernel: what the last one writes and the others read from outside moves."""
    made = {value for view in nodes for value in view.node.outputs}
    read = {value for view in nodes for value in view.node.inputs if value is not None and value not in made}
    moved = sum(value_bytes(value, work.typical) for value in (*read, *nodes[-1].node.outputs) if value.name)
    return Cost(sum(map(work.flops, nodes)), moved)


def value_bytes(value: ir.Value, typical: Mapping[str, int]) -> int:
    """Return the bytes of a value at a typical shape; `UNKNOWN_BYTES` where its shape or type is not known."""
    dtype, shape = ValueView(value).dtype, typical_shape(value, typical)
    if shape is None or dtype in ("", "string"):
        return UNKNOWN_BYTES
    return math.prod(shape) * element_bits(dtype) // 8
