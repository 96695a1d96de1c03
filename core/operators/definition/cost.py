"""Costs of operators: floating-point operations and bytes moved, from the shapes alone."""

from __future__ import annotations

import math
from collections.abc import Callable

from graft.core.graph.view import NodeView, ValueView
from graft.core.operators.definition.table import Cost
from graft.core.types import element_bits

CostFunction = Callable[[NodeView], Cost]


def elements(value: ValueView | None) -> int:
    """Return the number of elements, 0 for an absent value or one of unknown shape."""
    shape = None if value is None else value.static_shape
    return 0 if shape is None else math.prod(shape)


def size(value: ValueView | None) -> int:
    """Return the bytes of a value, 0 where its shape or dtype is unknown."""
    if value is None or not value.dtype or value.dtype == "string":
        return 0
    return elements(value) * element_bits(value.dtype) // 8


def traffic(node: NodeView) -> int:
    """Return the bytes of all inputs and outputs."""
    return sum(size(value) for value in node.inputs) + sum(size(value) for value in node.outputs)


def per_output(flops: int) -> CostFunction:
    """Cost of ``flops`` operations per element of the first output."""
    return lambda node: Cost(flops * elements(node.outputs[0]), traffic(node))


def per_input(flops: int) -> CostFunction:
    """Cost of ``flops`` operations per element of the first input."""
    return lambda node: Cost(flops * elements(node.input(0)), traffic(node))


def moved(node: NodeView) -> Cost:
    """Cost of writing every output and reading as much."""
    return Cost(0, 2 * sum(size(value) for value in node.outputs))


def free(node: NodeView) -> Cost:
    """Cost of a view."""
    return Cost(0, 0)
