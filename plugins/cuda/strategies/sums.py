"""Sums of products in the registers of a block: by threads term after term, or by warps with tensor instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graft.core.operators.definition import build as b
from graft.core.schedule.loops.loop_frames import taken
from graft.core.schedule.primitives.schedule_text import parse_schedule, take
from graft.core.schedule.primitives.statements import multiply_add
from graft.core.schedule.primitives.tensorize import Tensorize
from graft.core.schedule.primitives.vectorize import lower_loops
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.statements import loops_over
from graft.core.tensor_ir.visit import map_nested
from graft.plugins.cuda.machines import WARP, WARPGROUP
from graft.plugins.cuda.strategies.fills import Tile
from graft.plugins.cuda.strategies.fragments import depth_of, meaning
from graft.plugins.cuda.strategies.frames import ACCESS, WRITTEN_OUT


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


@dataclass(frozen=True, slots=True)
class _Axis:
    """A loop over sums of a thread: its extent, and by how many rows or columns the next one lies behind."""

    variable: ir.Variable
    extent: int
    rows: int = 0
    columns: int = 0


class Sums:
    """Sums of a block, of which a thread, or with an instruction a warp or warpgroup, has ``own_rows x own_columns``.

    Thread ``unit`` of so many ``units`` has those along some axes in registers, its part of ``buffer``; along the last
    axis they are neighbours. It has sums of ``many`` rows, and ``across`` neighbouring threads have a row. Of each
    matrix of 16 x 8 of an instruction a thread has two of a row and two of the row eight below.
    """

    def __init__(
        self, instruction: str, name: str, dtype: str, columns: int, own_rows: int, own_columns: int,
        unit: ir.Variable, units: int,
    ) -> None:  # fmt: skip
        self.instruction, self.unit, self.units, self.own_columns = instruction, unit, units, own_columns
        self.group = (WARPGROUP if instruction.startswith("wgmma") else WARP) if instruction else 1
        beside, number = columns // own_columns, b.divide(unit, self.group)
        self.row, self.column = b.multiply(b.divide(number, beside), own_rows), b.modulo(number, beside)
        if instruction:
            self.across, height = 4, self.group // 2
            self.column = b.multiply(self.column, own_columns)
            axes = [("i", own_rows // height, height, 0), ("j", own_columns // 8, 0, 8)]
            axes += [("half", 2, 8, 0), ("lane", 2, 0, 1)]
        else:  # groups of four columns of a thread are apart, those of neighbours together
            self.across = beside
            self.column = b.multiply(self.column, 4)
            axes = [("row", own_rows, 1, 0), ("group", own_columns // 4, 0, 4 * beside), ("lane", 4, 0, 1)]
        self.axes = [_Axis(ir.Variable(axis), *steps) for axis, *steps in axes]
        self.many = 1
        for axis in self.axes:
            self.many *= axis.extent if axis.rows else 1
        shape = tuple(map(b.index, (units, *(axis.extent for axis in self.axes))))
        self.buffer = ir.Buffer(name, dtype, shape, memory="register", alignment=ACCESS)

    def zeros(self) -> ir.Statement:
        """Return what makes all sums zero."""
        return self._over(self.axes, ir.Store(self.buffer, self._place(), b.constant(0, self.buffer.dtype)))

    def each(self, place: Place) -> ir.Statement:
        """Return what is done with all sums of a thread, neighbours at one time."""
        *outer, last = self.axes
        row, column = self._at(outer)
        own: ir.Expression = b.index(0)
        for axis in outer:
            own = b.add(b.multiply(own, axis.extent), axis.variable) if axis.rows else own
        total = ir.Load(self.buffer, (*self._place()[:-1], ir.Ramp(b.index(0), 1, last.extent)))
        return self._over(outer, place(Held(row, column, own, total)))

    def _at(self, axes: Sequence[_Axis]) -> tuple[ir.Expression, ir.Expression]:
        """Return the row and the column of a sum, the first along other axes than these."""
        row, column = self.row, self.column
        if self.instruction:
            warp = b.modulo(b.divide(self.unit, WARP), self.group // WARP)
            row = b.add(b.add(row, b.multiply(warp, 16)), b.divide(b.modulo(self.unit, WARP), 4))
            column = b.add(column, b.multiply(b.modulo(self.unit, 4), 2))
        for axis in axes:
            row = b.add(row, b.multiply(axis.variable, axis.rows))
            column = b.add(column, b.multiply(axis.variable, axis.columns))
        return row, column

    def _over(self, axes: Sequence[_Axis], body: ir.Statement) -> ir.Statement:
        return loops_over([(axis.variable, b.index(axis.extent)) for axis in axes], body, "unrolled")

    def _place(self) -> tuple[ir.Expression, ...]:
        """Return the place of a sum of this thread."""
        return (self.unit, *(axis.variable for axis in self.axes))

    # ---- Products ----

    def added(self, left: Tile | ir.Buffer, right: Tile) -> ir.Statement:
        """Return what adds the products of two tiles.

        A left factor in registers lies as the sums of another product do.
        """
        term = ir.Variable("term")
        row, column = self._at(self.axes)
        a = ir.Load(left.buffer, left.place(row, term)) if isinstance(left, Tile) else ir.Load(left, self._held(term))
        wide = [b.cast(one, self.buffer.dtype) for one in (a, ir.Load(right.buffer, right.place(column, term)))]
        added = multiply_add(wide[0], wide[1], ir.Load(self.buffer, self._place()))
        every = [(term, right.terms), *((axis.variable, axis.extent) for axis in self.axes)]
        nest = loops_over(
            [(one, b.index(extent)) for one, extent in every], ir.Store(self.buffer, self._place(), added)
        )
        if self.instruction:
            return self._by_warps(nest, left, right)
        return self._by_threads(nest, a.buffer, right.buffer, right.terms)

    def _held(self, term: ir.Expression) -> tuple[ir.Expression, ...]:
        """Return where a term of this thread's row lies, of a factor that lies as sums do: in another thread."""
        i, _, half, _ = self.axes
        other = b.add(b.multiply(b.divide(self.unit, 4), 4), b.divide(b.modulo(term, 8), 2))
        return other, i.variable, b.divide(term, 8), half.variable, b.modulo(term, 2)

    def _by_threads(self, nest: ir.Statement, left: ir.Buffer, right: ir.Buffer, terms: int) -> ir.Statement:
        """Return products of columns of the left tile by rows of the right one, both held in registers."""
        steps = f"""
        reorder term group row lane
        cache_read {left.name} at term in register -> left_here
        cache_read {right.name} at group in register -> right_here
        split left_here.1 {min(4, self.axes[0].extent)} -> left_here.part left_here.1
        vectorize left_here.1
        vectorize right_here.1
        vectorize lane
        """
        near = lower_loops(take(ir.Function("sums", (left, right), 0, nest), parse_schedule(steps)).body)
        written = "unroll left_here.part\nunroll group\nunroll row\n" + "unroll term\n" * (terms <= WRITTEN_OUT)
        return taken(near, parse_schedule(written))

    def _by_warps(self, nest: ir.Statement, left: Tile | ir.Buffer, right: Tile) -> ir.Statement:
        """Return the tensor instructions in the place of the loops that they mean.

        A warpgroup's adds all terms of a tile to 64 rows, and is complete when it returns.
        """
        is_group, how = self.group == WARPGROUP, [isinstance(left, Tile) and left.is_transposed, right.is_transposed]
        columns = self.own_columns if is_group else 0
        means = {self.instruction: meaning(left, right, self.buffer.dtype, columns)}
        before, behind = "reorder i j half lane term", "unroll i"
        if not is_group:
            before = f"split term {depth_of(right.dtype)} -> term k\nreorder term i j half lane k"
            behind = "unroll term\nunroll i\nunroll j"
        tensorized = Tensorize("j" if is_group else "half", self.instruction, means, (self.unit.name,))
        steps = (*parse_schedule(before), tensorized, *parse_schedule(behind))
        told = tuple(b.constant(int(one), "int64") for one in ([columns, right.terms] if is_group else []) + how)

        def rule(one: ir.Statement) -> ir.Statement:
            return ir.CallExtern(one.name, (*one.arguments, *told)) if isinstance(one, ir.CallExtern) else one

        found = taken(loops_over([(self.unit, b.index(self.units))], nest, "parallel"), steps)
        assert isinstance(found, ir.For), "a loop over units"
        return map_nested(found.body, rule)
