"""Short names for writing loops, and vectors of as many lanes as the machine wants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.tensor_ir import ir
from graft.core.types import INT64

Rows = Sequence[ir.Expression]
Place = TypeVar("Place")
Line = TypeVar("Line")


def loop(
    extent: b.Count, body: Callable[[ir.Expression], ir.Statement], kind: ir.LoopKind = "serial", name: str = "i"
) -> ir.Statement:
    """Return the loop over ``[0, extent)``; of one iteration only its body."""
    if extent == 1:
        return body(b.index(0))
    variable = ir.Variable(name)
    return ir.For(variable, b.extent(extent), kind, body(variable))


def block(*statements: ir.Statement) -> ir.Statement:
    """Return the statements one after another."""
    return statements[0] if len(statements) == 1 else ir.Block(statements)


def let(value: ir.Expression, body: Callable[[ir.Expression], ir.Statement], name: str = "x") -> ir.Statement:
    """Return ``body`` of a variable bound to ``value``."""
    variable = ir.Variable(name, value.type)
    return ir.Let(variable, value, body(variable))


def tiles(
    count: b.Count,
    step: int,
    body: Callable[[ir.Expression, int], ir.Statement],
    kind: ir.LoopKind = "serial",
    name: str = "i",
) -> ir.Statement:
    """Return ``body(begin, size)`` for tiles of ``step`` out of ``count``, and for the smaller one that is left.

    Of a count that varies, what is left is in tiles that halve.
    """
    if not isinstance(count, int):
        return _halving_tiles(count, step, body, kind, name)
    whole, rest = divmod(count, step)
    parts = []
    if whole:
        parts.append(loop(whole, lambda i: body(b.multiply(i, step), step), kind, name))
    if rest:
        parts.append(body(b.index(whole * step), rest))
    return ir.Block(tuple(parts))


def _halving_tiles(
    count: ir.Expression, step: int, body: Callable[[ir.Expression, int], ir.Statement], kind: ir.LoopKind, name: str
) -> ir.Statement:
    parts: list[ir.Statement] = []
    done: ir.Expression = b.index(0)
    sizes = (step, *(1 << n for n in reversed(range((step - 1).bit_length()))))
    for size in sizes:
        rest = b.subtract(count, done)
        whole = b.divide(rest, size)
        tile = partial(_tile_at, body, done, size)
        parts.append(loop(whole, tile, kind, name))
        done = b.add(done, b.multiply(whole, size))
    return ir.Block(tuple(parts))


def _tile_at(
    body: Callable[[ir.Expression, int], ir.Statement], begin: ir.Expression, size: int, i: ir.Expression
) -> ir.Statement:
    return body(b.add(begin, b.multiply(i, size)), size)


def _added(left: ir.Expression, right: ir.Expression, total: ir.Expression) -> ir.Expression:
    """Return ``total + left * right``: fused, but in custom types, which round each operation."""
    if total.type.is_custom:
        return b.add(total, b.multiply(left, right))
    return ir.Intrinsic("fma", (left, right, total), total.type)


@dataclass(frozen=True, slots=True)
class Lanes:
    """Vectors of ``count`` elements; with one lane they are scalars.

    A row of a function that uses them is padded to whole vectors in scratch memory; only accesses to the caller's
    tensors need a mask, in the last vector of a row.
    """

    count: int

    @staticmethod
    def of(target: Target) -> Lanes:
        """Return the lanes for a target: as many float32 as a register holds; wider elements take more registers."""
        return Lanes(max(1, target.vector_bytes // 4))

    def padded(self, extent: int) -> int:
        """Return ``extent`` rounded up to whole vectors."""
        return -(-extent // self.count) * self.count

    def splat(self, value: ir.Expression) -> ir.Expression:
        """Return a scalar in every lane."""
        return value if self.count == 1 else ir.Broadcast(value, self.count)

    def zeros(self, dtype: str) -> ir.Expression:
        """Return a vector of zeros."""
        return self.splat(b.constant(0, dtype))

    def ramp(self, base: ir.Expression, stride: int = 1) -> ir.Expression:
        """Return the positions of a vector."""
        return base if self.count == 1 else ir.Ramp(base, stride, self.count)

    def joined(self, operator: ir.BinaryOperator, value: ir.Expression) -> ir.Expression:
        """Return the elements of a vector combined to a scalar."""
        return value if self.count == 1 else ir.Horizontal(operator, value)

    def vector(self, buffer: ir.Buffer, row: Rows, column: ir.Expression) -> ir.Expression:
        """Return the vector at ``[*row, column ...]`` of a buffer whose rows are padded."""
        return ir.Load(buffer, (*row, self.ramp(column)))

    def set_vector(self, buffer: ir.Buffer, row: Rows, column: ir.Expression, value: ir.Expression) -> ir.Statement:
        """Return the store of a vector to a buffer whose rows are padded."""
        return ir.Store(buffer, (*row, self.ramp(column)), value)

    def tail_mask(self, column: ir.Expression, extent: int, width: int = 0) -> ir.Expression | None:
        """Return which lanes from ``column`` on are below ``extent``; None if all are, for columns below ``width``.

        By default the columns end with the vector in which ``extent`` does.
        """
        if extent == max(width, self.padded(extent)):
            return None
        return b.less(self.ramp(column), b.literal(extent, INT64.with_lanes(self.count)))

    def part(
        self, buffer: ir.Buffer, row: Rows, start: int, column: ir.Expression, extent: int, width: int = 0
    ) -> ir.Expression:
        """Return the vector of elements ``start + column ...`` of a row, zero in lanes at or past ``extent``."""
        return ir.Load(buffer, (*row, self.ramp(b.add(column, start))), self.tail_mask(column, extent, width))

    def set_part(
        self, buffer: ir.Buffer, row: Rows, column: ir.Expression, extent: int, value: ir.Expression, width: int = 0
    ) -> ir.Statement:
        """Return the store of the lanes below ``extent`` to a row of the caller's tensor."""
        return ir.Store(buffer, (*row, self.ramp(column)), value, self.tail_mask(column, extent, width))

    def tile(
        self,
        lines: Sequence[Line],
        places: Sequence[Place],
        depth: int,
        left: Callable[[Line, ir.Expression], ir.Expression],
        right: Callable[[ir.Expression, Place], ir.Expression],
        initial: Callable[[Line, Place], ir.Expression],
        sink: Callable[[Line, Place, ir.Expression], ir.Statement],
    ) -> ir.Statement:
        """Return ``sink(row, place, initial(row, place) + sum over k of left(row, k) * right(k, place))``.

        ``lines`` are the rows, ``places`` say where the vectors of columns stand; ``left`` is scalar. All sums are held
        in registers.
        """
        first = initial(lines[0], places[0])
        cells = [(i, j) for i in range(len(lines)) for j in range(len(places))]
        sums = ir.Buffer("sums", first.type.dtype, (b.index(len(cells)), b.index(self.count)), memory="register")

        def cell(i: int, j: int) -> tuple[ir.Expression, ir.Expression]:
            return b.index(i * len(places) + j), self.ramp(b.index(0))

        def step(k: ir.Expression) -> ir.Statement:
            columns = [ir.Variable(f"w{j}", first.type) for j in range(len(places))]
            scalars = [ir.Variable(f"a{i}", first.type) for i in range(len(lines))]
            body = block(
                *(
                    ir.Store(sums, cell(i, j), _added(scalars[i], columns[j], ir.Load(sums, cell(i, j))))
                    for i, j in cells
                )
            )
            for i, scalar in enumerate(scalars):
                body = ir.Let(scalar, self.splat(left(lines[i], k)), body)
            for j, column in enumerate(columns):
                body = ir.Let(column, right(k, places[j]), body)
            return body

        start = [ir.Store(sums, cell(i, j), initial(lines[i], places[j])) for i, j in cells]
        finish = [sink(lines[i], places[j], ir.Load(sums, cell(i, j))) for i, j in cells]
        return ir.Allocate(sums, block(*start, loop(depth, step, name="k"), *finish))
