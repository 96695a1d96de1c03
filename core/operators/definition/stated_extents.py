"""What computed operands make of the shape that a model states of a result: words for rows.

A model may state in numbers the shape of a Pad by amounts that come as data, and kernels are then made for these
numbers. Whether they are true is known only when the operands are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from graft.core.graph.view import NodeView
from graft.core.operators.definition import build as b
from graft.core.tensor_ir.ir import Buffer, Expression
from graft.core.types import INTEGERS

MOST = 16
"""The most elements of an operand that are looked at; shapes have fewer."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What is stated of an extent along ``axis`` of a result, beside what the operands make of it."""

    axis: int
    computed: Expression
    stated: Expression


@dataclass(slots=True)
class Operands:
    """A node's inputs in an expression; those that it reads become the parameters of the check."""

    node: NodeView
    read: dict[int, Buffer] = field(default_factory=dict)
    """By number of the input."""

    def buffer(self, number: int) -> Buffer:
        """Return the parameter of an input."""
        value = self.node.inputs[number]
        assert value is not None and value.rank is not None, self.node.where
        if number not in self.read:
            shape = value.static_shape
            extents = b.variables(value.rank, f"extent{number}_") if shape is None else tuple(map(b.index, shape))
            self.read[number] = Buffer(f"input{number}", value.dtype, extents)
        return self.read[number]

    def extent(self, axis: int, number: int = 0) -> Expression:
        """Return an extent of an input."""
        value = self.node.inputs[number]
        known = None if value is None or value.shape is None else value.shape[axis]
        return b.index(known) if isinstance(known, int) else self.buffer(number).shape[axis]

    def count(self, number: int) -> int | None:
        """Return how many elements an input has, None if that is not known; 0 where it is absent."""
        value = self.node.input(number)
        shape = () if value is None else value.static_shape
        if shape is None or len(shape) > 1 or (shape and shape[0] > MOST):
            return None
        return 0 if value is None else shape[0] if shape else 1

    def element(self, number: int, place: int, default: int = 0) -> Expression:
        """Return an element of an input, integers as int64; ``default`` where the input is absent."""
        value = self.node.input(number)
        if value is None:
            return b.index(default)
        if (known := value.constant) is not None and value.dtype in INTEGERS:
            return b.index(int(known.reshape(-1)[place]))
        found = b.load(self.buffer(number), *([place] if value.rank else []))
        return b.cast(found, "int64") if value.dtype in INTEGERS else found


StatedShape: TypeAlias = Sequence["int | None"]
"""The extents that are stated of a result in numbers; None where it has a symbol."""
StatedRule: TypeAlias = Callable[[Operands, StatedShape], Iterable[Claim]]


@dataclass(frozen=True, slots=True)
class Stated:
    """How the inputs of these numbers say the shape of the results: the extents that they make, beside those stated."""

    rule: StatedRule
    inputs: tuple[int, ...] = (1,)


def each(shape: StatedShape, computed: Callable[[int], Expression | None]) -> Iterator[Claim]:
    """Compare every extent that is stated with what ``computed`` makes of its axis, None where it says nothing."""
    for axis, one in enumerate(shape):
        if one is not None and (found := computed(axis)) is not None:
            yield Claim(axis, found, b.index(one))


def axes_of(operands: Operands, number: int, rank: int) -> list[Expression] | None:
    """Return the axes that an input holds, counted from the front; None if it is absent or of unknown length."""
    count = operands.count(number)
    if operands.node.input(number) is None or count is None:
        return None
    given = (operands.element(number, place) for place in range(count))
    return [b.select(b.less(axis, 0), b.add(axis, rank), axis) for axis in given]


def chosen(extents: Sequence[Expression], place: Expression) -> Expression:
    """Return the extent at a place, -1 where there is none."""
    found: Expression = b.index(-1)
    for axis, extent in enumerate(extents):
        found = b.select(b.equal(place, axis), extent, found)
    return found
