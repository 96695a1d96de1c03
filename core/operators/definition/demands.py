"""The words in which a row of the operator table states its demands: equations over axes of operands and results.

A side of an equation is an extent over the symbols that `operand` and `result` give; the step that asks the rows
(`graft.core.shapes.equations`) puts the extents of a node's values in their places. What a node does not have (an
absent operand, an unknown rank) demands nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations, pairwise
from typing import TypeAlias

from graft.core.affine.equations import Equation
from graft.core.affine.expressions import add, ceildiv, multiply
from graft.core.graph.view import NodeView, ValueView
from graft.runtime.extents import Agreement, Extent, Symbol

Demand: TypeAlias = Callable[[NodeView], Iterable[Equation]]
Number: TypeAlias = "int | Callable[[NodeView], int | None]"
"""A number, or what the attributes of a node, or its constants, say it is."""
MOST_PAIRED = 4
"""Of more operands, each is compared with the next and with the result, in the place of every other."""


def rank_of(value: ValueView | None) -> int | None:
    """Return the rank of a value, None where it is absent or unknown."""
    if value is None or value.rank is not None:
        return None if value is None else value.rank
    shape = value.shape  # that of a constant
    return None if shape is None else len(shape)


def operand(node: NodeView, number: int, axis: int) -> Extent | None:
    """Return what stands for an axis of an input, None where there is none."""
    return _axis("input", number, axis, rank_of(node.input(number)))


def result(node: NodeView, number: int, axis: int) -> Extent | None:
    """Return what stands for an axis of an output, None where there is none."""
    outputs = node.outputs
    return _axis("output", number, axis, rank_of(outputs[number]) if number < len(outputs) else None)


def place_of(kind: str, number: int, axis: int) -> str:
    """Return the name of the symbol of an axis."""
    return f"{kind}{number}_{axis}"


def _axis(kind: str, number: int, axis: int, rank: int | None) -> Extent | None:
    if rank is None or not -rank <= axis < rank:
        return None
    return Symbol(place_of(kind, number, axis % rank))


def equation(left: Extent | None, right: Extent | None, kind: Agreement = "equal") -> Iterator[Equation]:
    """Yield an equation, nothing where a side is not there."""
    if left is not None and right is not None:
        yield Equation(left, right, kind)


# ---- Words ----


def all_of(*demands: Demand) -> Demand:
    """Demand what several words say."""
    return lambda node: (one for demand in demands for one in demand(node))


def same(first: int, first_axis: Number, second: int, second_axis: Number) -> Demand:
    """An axis of one operand has the extent of an axis of another."""

    def demand(node: NodeView) -> Iterator[Equation]:
        axes = [axis if isinstance(axis, int) else axis(node) for axis in (first_axis, second_axis)]
        if axes[0] is not None and axes[1] is not None:
            yield from equation(operand(node, first, axes[0]), operand(node, second, axes[1]))

    return demand


def counted(number: int, axis: int, count: Number) -> Demand:
    """An axis of an operand has a number of elements."""

    def demand(node: NodeView) -> Iterator[Equation]:
        return equation(operand(node, number, axis), count if isinstance(count, int) else count(node))

    return demand


def ranked(ranks: Mapping[int, int], kind: Agreement = "equal") -> Demand:
    """Operands have these ranks, by number, or at most these."""

    def demand(node: NodeView) -> Iterator[Equation]:
        for number, wanted in ranks.items():
            value = node.input(number)
            if value is not None and (rank := rank_of(value)) not in (None, wanted):
                says = f"'{value.name}' has rank ", f", where {'at most ' if kind == 'at most' else ''}", " is expected"
                yield Equation(rank, wanted, kind, says)

    return demand


def vectors(*numbers: int, of: int, axis: Number) -> Demand:
    """Operands of one axis have an element for each along an axis of another."""
    return all_of(ranked(dict.fromkeys(numbers, 1)), *(same(number, 0, of, axis) for number in numbers))


def parameters(*numbers: int, of: int, axis: Number) -> Demand:
    """Operands of one axis have an element for each along an axis of another, or are known to have one for all."""

    def demand(node: NodeView) -> Iterator[Equation]:
        for number in numbers:
            value = node.input(number)
            if rank_of(value) == 1 and value is not None and value.shape != (1,):
                yield from vectors(number, of=of, axis=axis)(node)

    return demand


def alike(first: int, second: int, but: Number | None = None) -> Demand:
    """Two operands have the same extents, but for one axis."""

    def demand(node: NodeView) -> Iterator[Equation]:
        rank = rank_of(node.input(first))
        left_out = None if but is None else but if isinstance(but, int) else but(node)
        if rank is not None and rank == rank_of(node.input(second)):
            for axis in range(rank):
                if left_out is None or axis != left_out % max(1, rank):
                    yield from equation(operand(node, first, axis), operand(node, second, axis))

    return demand


def within(first: int, second: int, but: Number) -> Demand:
    """No axis of one operand is longer than that of another, but for one."""

    def demand(node: NodeView) -> Iterator[Equation]:
        rank, left_out = rank_of(node.input(first)), but if isinstance(but, int) else but(node)
        if rank is not None and rank == rank_of(node.input(second)) and left_out is not None:
            for axis in range(rank):
                if axis != left_out % max(1, rank):
                    yield from equation(operand(node, first, axis), operand(node, second, axis), "at most")

    return demand


def broadcasting(*numbers: int, own: int = 0) -> Demand:
    """Operands (without numbers: all) broadcast with each other, but for the last axes ``own`` of each."""

    def demand(node: NodeView) -> Iterator[Equation]:
        chosen = numbers or range(len(node.inputs))
        ranks = {number: rank_of(node.input(number)) for number in chosen}
        known = {number: rank - own for number, rank in ranks.items() if rank is not None}
        if len(known) > MOST_PAIRED:
            for number in known:
                yield from _expanded(node, number, 0, own)
        for one, other in combinations(known, 2) if len(known) <= MOST_PAIRED else pairwise(known):
            for place in range(1, min(known[one], known[other]) + 1):
                yield from equation(
                    operand(node, one, known[one] - place), operand(node, other, known[other] - place), "broadcast"
                )

    return demand


def expanding(number: int, to: int) -> Demand:
    """An operand broadcasts to the shape of another."""

    def demand(node: NodeView) -> Iterator[Equation]:
        mine, theirs = rank_of(node.input(number)), rank_of(node.input(to))
        if mine is not None and theirs is not None and mine <= theirs:
            for axis in range(-mine, 0):
                yield from equation(operand(node, number, axis), operand(node, to, axis), "expand")

    return demand


def expanding_to_result(number: int, own: int = 0) -> Demand:
    """An operand broadcasts to the result's shape, but for its last axes ``own``."""
    return lambda node: _expanded(node, number, 0, own)


def _expanded(node: NodeView, number: int, output: int, own: int) -> Iterator[Equation]:
    mine, theirs = rank_of(node.input(number)), rank_of(node.outputs[output])
    if mine is not None and theirs is not None:
        for axis in range(-min(mine, theirs), -own):
            yield from equation(operand(node, number, axis), result(node, output, axis), "expand")


def times(extent: Extent | None, factor: Extent | None) -> Extent | None:
    """Return a product, None where one of its factors is not there."""
    return None if extent is None or factor is None else multiply(extent, factor)


def plus(*extents: Extent | None) -> Extent | None:
    """Return a sum, None where a part of it is not there."""
    known = [extent for extent in extents if extent is not None]
    return add(*known) if len(known) == len(extents) else None


def divided_up(extent: Extent | None, divisor: int) -> Extent | None:
    """Return how many parts of a length there are, the last one perhaps shorter."""
    return None if extent is None else ceildiv(extent, divisor)


def elements(extents: Iterable[Extent | None]) -> Extent | None:
    """Return the product of extents."""
    found: Extent | None = 1
    for extent in extents:
        found = times(found, extent)
    return found


def operands(node: NodeView, number: int) -> list[Extent | None] | None:
    """Return what stands for all axes of an input, None where its rank is unknown."""
    rank = rank_of(node.input(number))
    return None if rank is None else [operand(node, number, axis) for axis in range(rank)]


def results(node: NodeView, number: int) -> list[Extent | None] | None:
    """Return what stands for all axes of an output, None where its rank is unknown."""
    rank = rank_of(node.outputs[number])
    return None if rank is None else [result(node, number, axis) for axis in range(rank)]


def numbers_in(node: NodeView, number: int) -> list[int] | None:
    """Return the whole numbers that an input holds, None where they are not known."""
    value = node.input(number)
    held = None if value is None else value.constant
    return None if held is None or held.dtype.kind not in "iu" else [int(one) for one in held.reshape(-1)]


def attribute(name: str, default: int) -> Callable[[NodeView], int]:
    """Return what reads an attribute that is a whole number."""
    return lambda node: int(node.attribute(name, default))


def as_long(*numbers: int) -> Demand:
    """Operands of one axis are as long as each other."""

    def demand(node: NodeView) -> Iterator[Equation]:
        given = [number for number in numbers if rank_of(node.input(number)) == 1]
        for number in given[1:]:
            yield from equation(operand(node, number, 0), operand(node, given[0], 0))

    return demand
