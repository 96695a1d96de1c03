"""Register tiles of vectors of as many lanes as the machine has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import block, loop
from graft.core.tensor_ir import ir
from graft.core.types import INT64

Rows = Sequence[ir.Expression]
Place = TypeVar("Place")
Line = TypeVar("Line")


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

    def padded(self, extent: int) -> int:
        """Return ``extent`` rounded up to whole vectors."""
        return -(-extent // self.count) * self.count

    def splat(self, value: ir.Expression) -> ir.Expression:
        """Return a scalar in every lane."""
        return value if self.count == 1 else ir.Broadcast(value, self.count)

    def ramp(self, base: ir.Expression, stride: int = 1) -> ir.Expression:
        """Return the positions of a vector."""
        return base if self.count == 1 else ir.Ramp(base, stride, self.count)

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
