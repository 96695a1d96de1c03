"""Sums of products in the registers of a block: by threads term after term, or by warps with tensor instructions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.statements import multiply_add
from graft.core.tensor_ir import ir
from graft.core.types import element_bits
from graft.plugins.cuda.machines import WARP, WARPGROUP
from graft.plugins.cuda.strategies.frames import ACCESS, repeated, unrolled


@dataclass(frozen=True, slots=True)
class Held:
    """Neighbouring sums of a row in a thread: row and first column in the block, the row's number in the thread."""

    row: ir.Expression
    column: ir.Expression
    own: ir.Expression
    total: ir.Load

    @property
    def lanes(self) -> list[ir.Load]:
        """The sums one by one."""
        *outer, last = self.total.indices
        assert isinstance(last, ir.Ramp), last
        return [ir.Load(self.total.buffer, (*outer, b.add(last.base, lane))) for lane in range(last.lanes)]


Place = Callable[[Held], ir.Statement]
"""Gives what is done with sums."""
Slots = tuple[ir.Expression, ir.Expression]
"""Which stage of each factor."""


class Sums(ABC):
    """Sums of ``rows x columns`` of a block, of which a thread or warp has ``own_rows x own_columns``.

    A thread has those of ``many`` rows in registers of a ``shape``, and ``across`` neighbouring threads have a row.
    """

    shape: tuple[int, ...]
    many: int
    across: int

    def __init__(
        self, name: str, dtype: str, columns: int, own_rows: int, own_columns: int, thread: ir.Variable
    ) -> None:
        self.columns, self.own_rows, self.own_columns, self.thread = columns, own_rows, own_columns, thread
        self.lay()
        self.buffer = ir.Buffer(name, dtype, tuple(map(b.index, self.shape)), memory="register", alignment=ACCESS)

    @abstractmethod
    def lay(self) -> None:
        """Set shape, rows, and threads of a row."""

    @abstractmethod
    def added(
        self, left: ir.Buffer, right: ir.Buffer, slots: Slots, terms: int, transposed: Sequence[bool]
    ) -> ir.Statement:
        """Return what adds the products of two factors in shared memory, as `Fill` lays them."""

    @abstractmethod
    def each(self, place: Place) -> ir.Statement:
        """Return what is done with all sums of a thread."""

    def zeros(self) -> ir.Statement:
        """Return what makes all sums zero."""
        places = [ir.Variable(f"zero{axis}") for axis in range(len(self.shape))]
        body: ir.Statement = ir.Store(self.buffer, tuple(places), b.constant(0, self.buffer.dtype))
        for place, extent in zip(reversed(places), reversed(self.shape), strict=True):
            body = unrolled(place, extent, body)
        return body


class ScalarSums(Sums):
    """Sums by threads: columns of both tiles in registers, four neighbouring sums of a row at a time."""

    def lay(self) -> None:
        """Rows and columns."""
        self.many, self.across = self.own_rows, self.columns // self.own_columns
        self.shape = self.own_rows, self.own_columns

    def _column(self, group: ir.Expression) -> ir.Expression:
        """The first column of a group of four: groups of a thread are apart, those of neighbours together."""
        beside = b.multiply(b.modulo(self.thread, self.across), 4)
        return b.add(b.multiply(group, 4 * self.across), beside)

    def _row(self) -> ir.Expression:
        return b.multiply(b.divide(self.thread, self.across), self.own_rows)

    def added(
        self, left: ir.Buffer, right: ir.Buffer, slots: Slots, terms: int, transposed: Sequence[bool]
    ) -> ir.Statement:
        """Return products of columns of the left tile by rows of the right one."""
        held = min(4, self.own_rows)
        here = ir.Buffer("left_here", left.dtype, (b.index(self.own_rows),), memory="register", alignment=ACCESS)
        term, part, row, group = (ir.Variable(name) for name in ("term", "part", "row", "group"))

        def ramp(place: ir.Expression) -> ir.Expression:
            return ir.Ramp(place, 1, held) if held > 1 else place

        source = ir.Load(left, (slots[0], term, ramp(b.add(self._row(), b.multiply(part, held)))))
        load = unrolled(part, self.own_rows // held, ir.Store(here, (ramp(b.multiply(part, held)),), source))
        line = ir.Load(right, (slots[1], term, ir.Ramp(self._column(group), 1, 4)))
        vector, at = ir.Variable("right_here", line.type), (row, ir.Ramp(b.multiply(group, 4), 1, 4))
        product = multiply_add(ir.Broadcast(ir.Load(here, (row,)), 4), vector, ir.Load(self.buffer, at))
        each = ir.Let(vector, line, unrolled(row, self.own_rows, ir.Store(self.buffer, at, product)))
        body = ir.Allocate(here, ir.Block((load, unrolled(group, self.own_columns // 4, each))))
        return repeated(term, terms, body)

    def each(self, place: Place) -> ir.Statement:
        """Return what is done with four sums of a row at a time."""
        row, group = ir.Variable("row"), ir.Variable("group")
        total = ir.Load(self.buffer, (row, ir.Ramp(b.multiply(group, 4), 1, 4)))
        body = place(Held(b.add(self._row(), row), self._column(group), row, total))
        return unrolled(row, self.own_rows, unrolled(group, self.own_columns // 4, body))


class TensorSums(Sums):
    """Sums by warps or warpgroups: four of each matrix of 16 x 8 in each thread."""

    unit, rows = WARP, 16
    """Threads that an instruction belongs to, and its rows."""

    def __init__(self, instruction: str, *what: Any) -> None:
        self.instruction = instruction
        super().__init__(*what)

    def lay(self) -> None:
        """Instructions down, matrices across, and what a thread has of each: two of the rows, with three others."""
        self.shape = self.own_rows // self.rows, self.own_columns // 8, 4
        self.many, self.across = 2 * self.shape[0], 4

    def own(self) -> tuple[ir.Expression, ir.Expression]:
        """Return the first row and column of the warp's or warpgroup's sums."""
        across, number = self.columns // self.own_columns, b.divide(self.thread, self.unit)
        return b.multiply(b.divide(number, across), self.own_rows), b.multiply(
            b.modulo(number, across), self.own_columns
        )

    def added(
        self, left: ir.Buffer, right: ir.Buffer, slots: Slots, terms: int, transposed: Sequence[bool]
    ) -> ir.Statement:
        """Return the tensor instructions; a left factor in registers lies as the sums of another product do."""
        row, column = self.own()
        depth = 32 * 8 // element_bits(left.dtype)
        term, i, j = ir.Variable("term"), ir.Variable("i"), ir.Variable("j")
        first, lines = b.multiply(term, depth), (b.add(row, b.multiply(i, 16)), b.add(column, b.multiply(j, 8)))
        places = [
            (slot, first, line) if turn else (slot, line, first)
            for slot, line, turn in zip(slots, lines, transposed, strict=True)
        ]
        if left.memory == "register":
            places[0] = (i, b.multiply(term, depth // 8), b.index(0))
        factors = ir.Load(left, places[0]), ir.Load(right, places[1])
        how = (b.constant(int(turn), "int64") for turn in transposed)
        call = ir.CallExtern(self.instruction, (ir.Load(self.buffer, (i, j, b.index(0))), *factors, *how))
        body = unrolled(i, self.shape[0], unrolled(j, self.shape[1], call))
        return unrolled(term, terms // depth, body)

    def each(self, place: Place) -> ir.Statement:
        """Return what is done with two sums of a row at a time."""
        (row, column), lane = self.own(), b.modulo(self.thread, WARP)
        warp = b.modulo(b.divide(self.thread, WARP), self.unit // WARP)
        i, j, half = ir.Variable("i"), ir.Variable("j"), ir.Variable("half")
        total = ir.Load(self.buffer, (i, j, ir.Ramp(b.multiply(half, 2), 1, 2)))
        first = b.add(b.add(row, b.multiply(i, self.rows)), b.multiply(warp, 16))
        down = b.add(b.add(first, b.divide(lane, 4)), b.multiply(half, 8))
        beside = b.add(b.multiply(j, 8), b.multiply(b.modulo(lane, 4), 2))
        body = place(Held(down, b.add(column, beside), b.add(b.multiply(i, 2), half), total))
        for variable, extent in ((half, 2), (j, self.shape[1]), (i, self.shape[0])):
            body = unrolled(variable, extent, body)
        return body


class GroupSums(TensorSums):
    """Sums by warpgroups: of each 64 rows, a warp has 16."""

    unit, rows = WARPGROUP, 64

    def added(
        self, left: ir.Buffer, right: ir.Buffer, slots: Slots, terms: int, transposed: Sequence[bool]
    ) -> ir.Statement:
        """Return a call for each 64 rows: all terms of a stage, which is complete when it returns."""
        row, column = self.own()
        i, none = ir.Variable("i"), b.index(0)
        lines = (b.add(row, b.multiply(i, self.rows)), column)
        factors = []
        for buffer, slot, line, turn in zip((left, right), slots, lines, transposed, strict=True):
            across = 1024 // element_bits(buffer.dtype)
            place = (slot, b.divide(line, across), none, none) if turn else (slot, line, none)
            factors.append(ir.Load(buffer, place))
        how = (b.constant(number, "int64") for number in (self.own_columns, terms, *map(int, transposed)))
        call = ir.CallExtern(self.instruction, (ir.Load(self.buffer, (i, none, none)), *factors, *how))
        return unrolled(i, self.shape[0], call)


def sums_of(
    instruction: str, name: str, dtype: str, columns: int, own_rows: int, own_columns: int, thread: ir.Variable
) -> Sums:
    """Return sums by an instruction, or by threads without one."""
    what = name, dtype, columns, own_rows, own_columns, thread
    if not instruction:
        return ScalarSums(*what)
    return (GroupSums if instruction.startswith("wgmma") else TensorSums)(instruction, *what)
