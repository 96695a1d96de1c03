"""The primitive that reads along one axis and stores along another, by exchanging lanes of vectors: transpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graft.core.schedule.primitives.dependence import carried
from graft.core.schedule.primitives.loop_order import perfect_nest
from graft.core.schedule.primitives.step import (
    Step,
    bounded,
    constant_extent,
    find,
    find_place,
    index,
    with_body,
    with_loop,
)
from graft.core.schedule.primitives.vectorize import align, broadcast, vectorize_expression
from graft.core.tensor_ir import ir, visit
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.statements import bind
from graft.core.types import element_bits


@dataclass(frozen=True, slots=True)
class Transpose(Step):
    """Makes a square of stores vectors that are read along one of its loops, transposed, and stored along the other.

    A word of several small elements, as operands of dot products are, is one element of a vector.
    """

    form = "transpose {across} {along}"
    across: str
    along: str

    def check(self, function: ir.Function) -> None:
        """Check that no iteration writes what another reads or writes."""
        for name in (self.across, self.along):
            loop = find(self, function.body, name)
            conflict = carried(loop.body, loop, bounded(function.body))
            if conflict is not None:
                self.fail(f"one iteration of '{name}' writes {conflict} where another reads or writes it")

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with the loads, exchanges and stores of a square in the place of two loops."""
        chain, between, store = perfect_nest(self, function, (self.across, self.along))
        across, along = (find_place(self, function.body, name) for name in (self.across, self.along))
        count = constant_extent(self, across)
        if len(chain) != 2 or between or not isinstance(store, ir.Store) or store.mask is not None:
            self.fail(f"'{self.across}' and '{self.along}' are more than two loops around one store without a mask")
        if constant_extent(self, along) != count or count < 2 or count & (count - 1):
            self.fail(f"'{self.across}' and '{self.along}' are no square whose side is a power of 2")
        if any(load.buffer is store.buffer for load in visit.loads(store.value, *store.indices)):
            self.fail(f"'{store.buffer.name}' is read where it is stored")
        bindings = [
            (ir.Variable(f"r{number}", run.type), run)
            for number in range(count)
            for run in [
                self._run(visit.substitute(store.value, {across.variable: index(number)}), along.variable, count)
            ]
        ]
        columns = transposed([variable for variable, _ in bindings], bindings)
        lanes = ir.Ramp(index(0), 1, count)
        stores = []
        for number, value in enumerate(columns):
            places: dict[ir.Variable, ir.Expression] = {across.variable: lanes, along.variable: index(number)}
            indices = tuple(vectorize_expression(place, places) for place in store.indices)
            stores.append(ir.Store(store.buffer, indices, value))
        square = bind(bindings, ir.Block(tuple(stores)))
        return with_body(function, with_loop(function.body, chain[0].variable, lambda _: square))

    def _run(self, value: ir.Expression, along: ir.Variable, count: int) -> ir.Expression:
        """Return a value for all iterations of a loop: where it is a word of neighbours, of as many more of these."""
        width = value.value.type.lanes if isinstance(value, ir.Bitcast) and value.type.lanes == 1 else 1
        if width == 1:
            return broadcast(vectorize_expression(value, {along: ir.Ramp(index(0), 1, count)}), count)
        same = Simplifier()

        def rule(node: ir.Expression) -> ir.Expression:
            if not isinstance(node, ir.Ramp):
                return node if isinstance(node, ir.Load) else align(node)
            first, second = (visit.substitute(node.base, {along: index(number)}) for number in (0, 1))
            if node.stride != 1 or same(ir.Binary("sub", second, first)) != index(width):
                self.fail(f"words along '{self.along}' do not lie one after the other")
            return ir.Ramp(first, 1, width * count)

        return visit.ExpressionMap(rule)(value)


def transposed(vectors: Sequence[ir.Variable], bindings: list[tuple[ir.Variable, ir.Expression]]) -> list[ir.Variable]:
    """Transpose a square of vectors; ``bindings`` gets the steps, which need no vectors of places on any machine.

    Rows are unpacked by pairs within parts of 128 bits, then these parts are taken from pairs by turns.
    """
    rows, lanes = list(vectors), len(vectors)
    size = min(lanes, 128 // element_bits(vectors[0].type.dtype))

    def chosen(pair: tuple[ir.Variable, ir.Variable], places: Sequence[int]) -> ir.Variable:
        return bound_row(bindings, ir.Shuffle(pair, tuple(places)))

    def unpacked(pair: tuple[ir.Variable, ir.Variable]) -> list[ir.Variable]:
        halves = ([begin + part for begin in range(0, lanes, size) for part in range(first, first + size // 2)]
                  for first in (0, size // 2))  # fmt: skip
        return [chosen(pair, [place for low in half for place in (low, lanes + low)]) for half in halves]

    def parts(column: list[ir.Variable]) -> list[ir.Variable]:
        if len(column) == 1:
            return column
        places = [[place for place in range(2 * lanes) if place // size % 2 == turn] for turn in (0, 1)]
        pairs = list(zip(column[::2], column[1::2], strict=True))
        turns = [parts([chosen(pair, own) for pair in pairs]) for own in places]
        return [part for both in zip(*turns, strict=True) for part in both]

    groups: list[list[ir.Variable]] = []
    for first in range(0, lanes, size):
        group = rows[first : first + size]
        for _ in range(size.bit_length() - 1):
            group = [one for pair in zip(group[: size // 2], group[size // 2 :], strict=True) for one in unpacked(pair)]
        groups.append(group)
    columns = [parts([group[number] for group in groups]) for number in range(size)]
    return [columns[row % size][row // size] for row in range(lanes)]


def bound_row(bindings: list[tuple[ir.Variable, ir.Expression]], value: ir.Expression) -> ir.Variable:
    """Add a value to bindings, and return the name that it has there."""
    variable = ir.Variable(f"row{len(bindings)}", value.type)
    bindings.append((variable, value))
    return variable
