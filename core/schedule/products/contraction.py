"""The loops of one contraction: panels, blocks and tiles in the order in which caches want them.

The right factor is packed into panels as wide as a register tile (at compile time if it is constant), unless its rows
can be read as they lie; a constant left factor is packed into columns as high as a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from graft.core.machine.instructions import DOTS
from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import loop
from graft.core.schedule.kernel import Scheduled
from graft.core.schedule.loops.flat_stages import Layout
from graft.core.schedule.primitives.statements import counter, nest, over, ramp, scratch, wide
from graft.core.schedule.primitives.vectorize import instantiate, vectorize_expression
from graft.core.schedule.products import accumulation
from graft.core.schedule.products.blocking import Panel, Part, Place, Range, RowBlock
from graft.core.schedule.products.branch_stores import finish_branches
from graft.core.schedule.products.factor_packing import PackedFactor
from graft.core.schedule.products.factors import Factors, Outer
from graft.core.schedule.products.fetching import Ahead, Fetching, Streams, streams_of
from graft.core.schedule.products.packed_dot import copied_rows
from graft.core.schedule.products.panel_copy import PanelCopy
from graft.core.schedule.products.tiling import RegisterTile, Split, halves
from graft.core.tensor_ir.anchors import VARIES
from graft.core.tensor_ir.ir import (
    Bitcast,
    Block,
    Buffer,
    Expression,
    For,
    Function,
    Let,
    Load,
    LoopKind,
    Statement,
    Store,
    Variable,
)
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.statements import allocate, bind
from graft.core.tensor_ir.visit import substitute

AHEAD_SHARE = 0.25
"""A packed factor of so much of the second-level cache is fetched there ahead of use."""

Totals = Callable[[Buffer], Statement]


class ContractionScheduler(Factors):
    """Builds the loops of one contraction. Outer axes are given as ``outer``: the index of each."""

    # ---- The whole function ----

    def scheduled(self) -> Scheduled | None:
        """Decide where the factors come from, and build the function; None if the right one cannot be read."""
        self.pack_constants()
        self.blocking = self._blocked()
        self.mode = self.choose_mode()
        if self.mode is None:
            return None
        needs_copy = self._needs_groups()
        if self.mode == "packed by panel" and needs_copy:
            self.mode = "packed at once"
        if self.mode == "packed by panel" and not self.parts.varies:
            one = Split(1, self.split.count, 0)
            self.blocking = replace(self.blocking, rows=one, groups=Split(self.panels, 1, 0))
        if needs_copy:
            multiply, sums = self.parts.multiply, self.starts.of_left is not None
            self.grouped_rows = copied_rows(
                self.small, self._block_rows, self.parts.terms, multiply, self.tile.lanes, sums
            )
        if self.mode != "packed by panel" and self._rows_conflict():
            self.copied_rows = scratch("rows", self.kind.dtype, self._block_rows, self.parts.terms + self.tile.lanes)
        elif self.mode != "packed by panel" and self.lie_apart(self._block_rows):
            self.copied_columns = scratch("columns", self.kind.dtype, self._block_rows * self.parts.terms)
        packed = [factor for factor in (self.left_packed, self.right_packed) if factor is not None]
        replaced = {factor.source: factor.buffer for factor in packed}
        knobs: dict[str, int | str] = {
            "rows": self.tile.rows, "vectors": self.tile.vectors, "unroll": self.tile.unroll, "factor": self.mode,
        }  # fmt: skip
        if self.parts.multiply.dot:
            knobs["dot"] = self.parts.multiply.dot
        stored = {factor.source: factor.stored for factor in packed}
        return Scheduled(lambda: self._function(replaced), stored, knobs=knobs)

    def _function(self, replaced: Mapping[Buffer, Buffer]) -> Function:
        function = self.kernel.function(self._body(), replaced)
        if self.copy_layout is not None:
            for buffer in function.parameters:
                self.copy_layout.flat(buffer)
            function = self.copy_layout.function(function)
        return replace(function, body=instantiate(function.body, {})) if self.parts.varies else function

    @property
    def _block_rows(self) -> int:
        """The rows of the largest block."""
        return self.blocking.largest_block * self.tile.rows

    def _body(self) -> Statement:
        outer = {axis: b.counted(self.parts.extents[axis]) for axis in self.parts.outer}
        if self.mode in ("in place", "packed before"):
            return nest("outer", outer, "parallel", self._blocks)
        if self.parts.varies:
            self.copy_layout = Layout(Simplifier())
            return nest("outer", outer, "parallel", self._blocks)
        width, count = (self.tile.columns, 1) if self.mode == "packed by panel" else (self.padded, self.panels)
        self.buffer = scratch("panels", self.kind.dtype, width * self.parts.terms + count * self.spill)
        if self.starts.of_right is not None:
            self.starts.columns = scratch("column_sums", "int32", width)
        match self.mode:
            case "packed by panel":
                return nest("outer", outer, "parallel", self._packed_panels)
            case "packed by product":
                return nest("outer", outer, "parallel", lambda place: self._allocated(self._packed_product(place)))
        return self._allocated(nest("outer", outer, "serial", self._packed_product))

    def _allocated(self, body: Statement) -> Statement:
        return allocate([one for one in (self.starts.columns, self.buffer) if one is not None], body)

    def _packed_product(self, outer: Outer) -> Statement:
        fill = self.columns.over("parallel", lambda panel: self._filled(outer, panel))
        return Block((fill, self._blocks(outer)))

    def _filled(self, outer: Outer, panel: Panel) -> Statement:
        """Return what fills a panel and sums its columns if that is wanted."""
        fill, columns, lanes = self.pack(outer, panel), self.starts.columns, self.tile.lanes
        if columns is None or self.buffer is None:
            return fill
        begin = b.index(0) if self.mode == "packed by panel" else panel.begin
        kind = self.parts.multiply.kind(of_left=False)
        totals = Buffer("sums", "int32", (b.index(panel.vectors * lanes),), memory="register")
        places = [ramp(b.index(vector * lanes), lanes) for vector in range(panel.vectors)]
        clearing = [Store(totals, (place,), wide(b.constant(0, "int32"), lanes)) for place in places]
        adding = []
        for vector, place in enumerate(places):
            elements = Bitcast(Load(self.buffer, (self.panel_place(panel, vector * lanes),)), kind)
            total = self.parts.multiply.summed(elements, Load(totals, (place,)), of_left=False)
            adding.append(Store(totals, (place,), total))
        storing = [
            Store(columns, (ramp(b.add(begin, vector * lanes), lanes),), Load(totals, (place,)))
            for vector, place in enumerate(places)
        ]
        summing = instantiate(Block((*clearing, self.over_depth(Block(tuple(adding))), *storing)), {})
        return Block((fill, allocate((totals,), summing)))

    def _packed_panels(self, outer: Outer) -> Statement:
        rows = self._block_of(Range(b.index(0), b.index(self.split.count)))

        def panel(panel: Panel) -> Statement:
            return self._allocated(Block((self._filled(outer, panel), self._sums(outer, panel, rows))))

        return self.columns.over("parallel", panel)

    def _blocks(self, outer: Outer) -> Statement:
        """Return the loops over blocks of rows and groups of panels."""
        rows, groups, count = self.blocking.rows, self.blocking.groups, self.parts.row_count
        block = counter("block", rows.count)
        if self.parts.height != VARIES:
            number: b.Count = rows.count
            kind: LoopKind = "parallel"
            own = self._block_of(Range(rows.begin(block), rows.length(block)))
        else:
            number, block = b.divide(b.add(count, self._block_rows - 1), self._block_rows), Variable("block")
            kind = "parallel" if self.panels == 1 else "serial"  # threads share what all rows read
            first = b.multiply(block, self._block_rows)
            own = RowBlock(first, b.minimum(b.subtract(count, first), self._block_rows))
        if self.parts.varies:
            body = self.columns.over("parallel", lambda panel: self._copied(outer, panel, own))
        elif self.blocking.spans == 1:
            body = self.columns.over("parallel", lambda panel: self._rows(outer, panel, own))
        else:

            def spans(group: Expression) -> Statement:
                return self._spans(outer, Range(groups.begin(group), groups.length(group)), own)

            body = loop(groups.count, spans, "parallel", "group")
        return over(block, number, kind, self._with_copied_rows(outer, own, body))

    def _block_of(self, tiles: Range) -> RowBlock:
        first = self.split.begin(tiles.first)
        return RowBlock(first, b.subtract(self.split.begin(b.add(tiles.first, tiles.count)), first), tiles)

    def _copied(self, outer: Outer, panel: Panel, rows: RowBlock) -> Statement:
        """Return the sums of a panel, behind the copy of its columns if they lie apart."""
        layout = self.copy_layout
        if layout is None:
            return self._sums(outer, panel, rows)
        places = {self.parts.axes[axis]: index for axis, index in outer.items()}
        right = substitute(self.parts.right, places)
        copy = PanelCopy.of(right, self.parts.depth, self.parts.column, self.tile.columns, layout, self.target.machine)
        self.buffer = copy.panel
        begin = b.subtract(panel.begin, panel.offset)
        return copy.before(self._sums(outer, panel, rows), begin, panel.exist or self.tile.columns)

    def _sums(self, outer: Outer, panel: Panel, rows: RowBlock) -> Statement:
        """Return the sums of one panel, span by span if there are several."""
        if self.blocking.spans == 1:
            return self._rows(outer, panel, rows)
        part = self._part(Range(panel.number, b.index(1)))
        return self._over_spans(part, self._rows(outer, panel, rows, part))

    def _spans(self, outer: Outer, panels: Range, rows: RowBlock) -> Statement:
        """Return the loops over the spans of the sums of a group of panels, and over those panels."""
        part = self._part(panels)
        return self._over_spans(
            part, self.columns.over("serial", lambda panel: self._rows(outer, panel, rows, part), panels)
        )

    def _part(self, panels: Range) -> Part:
        sums = self.blocking.largest_group * self._waiting * self.tile.columns
        return Part(Variable("span"), panels, scratch("partial", self.parts.total.dtype, sums))

    @property
    def _waiting(self) -> int:
        """The rows of a panel whose sums wait; where the number of rows varies, those that two tiles share twice."""
        return self._block_rows + (self.tile.rows if self.parts.height == VARIES else 0)

    def _over_spans(self, part: Part, body: Statement) -> Statement:
        assert isinstance(part.number, Variable), part.number
        return allocate((part.buffer,), For(part.number, b.index(self.blocking.spans), "serial", body))

    # ---- Loops ----

    def _rows(self, outer: Outer, panel: Panel, rows: RowBlock, part: Part | None = None) -> Statement:
        """Return the loop over tiles of a panel; tiles are of one or two heights where their number is known."""
        tiles = rows.tiles
        if tiles is None:
            return self._open_rows(halves(self.tile.rows), b.index(0), outer, panel, rows, part)
        step = b.index(0) if tiles.count == b.index(1) else Variable("tile")
        number = b.add(tiles.first, step)
        place = Place(self.split.begin(number), b.multiply(step, self.tile.rows), step, rows, panel, part)
        body = self.split.choose(number, lambda size: self._tile(outer, place, size))
        return over(step, tiles.count, "serial", body)

    def _open_rows(
        self, heights: Sequence[int], done: Expression, outer: Outer, panel: Panel, rows: RowBlock, part: Part | None
    ) -> Statement:
        """Return tiles of the rows behind ``done`` of a block, the highest first, each height with code of its own.

        The last tile of a height ends where the rows end, if it has more rows than are left, and computes some twice:
        where the next lower height would not do, and if there are so many rows at all.
        """
        (height, *lower), own = heights, rows.count
        number, count, after = Variable("tile"), Variable("tiles"), Variable("done")
        slot = b.add(done, b.multiply(number, height))
        begin = b.add(rows.first, b.minimum(slot, b.subtract(own, height)))
        is_first = done == b.index(0)
        step, of = (number, count) if is_first else (b.add(done, number), b.index(1))
        place = Place(begin, slot, step, rows, panel, part, of)
        tiles = For(number, count, "serial", self._tile(outer, place, height, 0 if is_first else 1))
        covered = b.add(b.subtract(own, done), height - 1 - (lower[0] if lower else 0))
        whole = b.select(b.less(own, height), b.index(0), b.divide(covered, height))
        if not lower:
            return Let(count, whole, tiles)
        done = b.minimum(b.add(done, b.multiply(count, height)), own)
        further = Let(after, done, self._open_rows(lower, after, outer, panel, rows, part))
        return Let(count, whole, Block((tiles, further)))

    # ---- One tile ----

    def _tile(self, outer: Outer, place: Place, height: int, unroll: int = 0) -> Statement:
        """Return a tile of sums and its epilogue; one pass adds ``unroll`` terms, 0: as many as others do."""
        panel, begin, rows = place.panel, place.begin, place.rows
        lanes, unroll = panel.lanes or self.tile.lanes, unroll or self.tile.unroll
        tile = RegisterTile(height, panel.vectors, lanes, 1 if self.parts.terms == VARIES else unroll)
        bound, at = self._bound_rows(begin, height)
        own = b.subtract(begin, rows.first)

        def left(row: int) -> Expression:
            if self.left_packed is not None:
                start = b.add(self.left_packed.begin(outer), b.multiply(begin, self.parts.terms))
                step = b.add(b.multiply(self.parts.term(), height), row)
                return Load(self.left_packed.buffer, (b.add(start, step),))
            if self.grouped_rows is not None:
                return self.grouped_rows.packed_operand(b.add(own, row), self.parts.term())
            if self.small is not None:
                width = DOTS[self.parts.multiply.dot].width
                operand = self.small.packed_operand(self.parts.depth[0].variable, width)
                return substitute(operand, at(outer, row))
            if self.copied_columns is not None:
                start = b.multiply(own, self.parts.terms)
                step = b.add(b.multiply(self.parts.term(), height), row)
                return Load(self.copied_columns, (b.add(start, step),))
            if self.copied_rows is not None:
                return Load(self.copied_rows, (b.add(own, row), self.parts.depth[0].variable))
            return substitute(self.parts.left, at(outer, row))

        def right(vector: int) -> Expression:
            offset = vector * tile.lanes
            if self.right_packed is not None:
                place = b.add(self.right_packed.begin(outer), b.multiply(panel.begin, self.parts.terms))
                if self.is_streamed:
                    place = b.add(place, b.add(b.multiply(self.parts.term(), tile.lanes), offset * self.parts.terms))
                else:
                    place = b.add(place, b.add(b.multiply(self.parts.term(), tile.columns), offset))
                return Load(self.right_packed.buffer, (ramp(place, tile.lanes),))
            if self.buffer is not None:
                return Load(self.buffer, (self.panel_place(panel, offset, tile.lanes),))
            return self._right_at(outer, b.add(panel.begin, offset), self.columns.mask(panel, vector), tile.lanes)

        def store(totals: Buffer) -> Statement:
            return self.store(outer, place, tile, totals)

        start: Totals = accumulation.clear(tile, self.parts.epilogue.initial)
        if self.starts.sums:
            start = accumulation.begin_with(tile, lambda row, vector: self._initial(outer, place, tile, row, vector))
        finish: Totals = store
        span = None
        if place.part is not None:
            span = self._span(place.part, tile.unroll)
            start, finish = self._continued(place, tile, start, finish)
        ahead = self._ahead(outer, place, tile)
        multiply, depth = self.parts.multiply, self.parts.depth
        if self.parts.terms == VARIES:
            depth = (replace(depth[0], extent=1),)
            span = accumulation.Span(b.index(0), self.parts.last_terms, 0)
        body = accumulation.accumulate(tile, self.parts.total, start, depth, left, right, finish, span, ahead, multiply)
        return bind(bound, body)

    def _bound_rows(
        self, begin: Expression, height: int
    ) -> tuple[list[tuple[Variable, Expression]], Callable[[Outer, int], dict[Variable, Expression]]]:
        """Return what is bound around a tile, and what gives the indices of its rows: divided once for all terms."""
        axes, before = self.parts.axes, self.parts.before
        if not before:
            return [], lambda outer, row: self._places(outer, b.add(begin, row))
        rows = [self.parts.at_row(b.add(begin, row)) for row in range(height)]
        names = [{axis: Variable(axes[axis].name) for axis in places} for places in rows]
        bound = [(own[axis], places[axis]) for own, places in zip(names, rows, strict=True) for axis in own]
        return bound, lambda outer, row: {axes[axis]: index for axis, index in {**outer, **names[row]}.items()}

    def store(self, outer: Outer, place: Place, tile: RegisterTile, totals: Buffer) -> Statement:
        """Return the stores of a tile of sums, behind the epilogue."""
        panel, begin = place.panel, place.begin

        def point(row: Expression, column: Expression) -> list[Expression]:
            places = {**outer, **self.parts.at_row(b.add(begin, row))}
            first = b.multiply(panel.number, self.tile.columns // self.parts.epilogue.turns)
            places[self.parts.columns] = ramp(b.add(b.add(first, panel.offset), column), tile.lanes)
            return [places[axis] for axis in range(len(self.parts.shape))]

        if self.parts.epilogue.branches:
            return finish_branches(self.parts, tile, self.tile, totals, panel.number, point)
        return accumulation.finish_tile(
            self.parts.epilogue, tile, totals, point, lambda vector: self.columns.mask(panel, vector)
        )

    def _initial(self, outer: Outer, place: Place, tile: RegisterTile, row: int, vector: int) -> Expression:
        """Return what the sums of a vector of a tile start from, where that is not one number."""
        panel, offset = place.panel, vector * tile.lanes
        columns = b.index(0) if self.mode == "packed by panel" else panel.begin
        column = ramp(b.add(columns, offset), tile.lanes)
        own = b.add(b.subtract(place.begin, place.rows.first), row)
        value, sums = self.starts.read(self.parts.epilogue.initial, self.grouped_rows, own, column)
        places = {**self._places(outer, b.add(place.begin, row)), **sums}
        places[self.parts.column] = ramp(b.add(panel.begin, offset), tile.lanes)
        return wide(vectorize_expression(value, places, self.columns.mask(panel, vector)), tile.lanes)

    # ---- Parts of sums ----

    def _span(self, part: Part, unroll: int) -> accumulation.Span:
        """Return the terms of a part; the last part may be shorter."""
        return accumulation.part_span(self.parts.terms, self.blocking.span, unroll, part.number)

    def _continued(self, place: Place, tile: RegisterTile, start: Totals, finish: Totals) -> tuple[Totals, Totals]:
        """Return how a tile starts and finishes whose sums are kept between parts: each part is a sum of its own."""
        assert place.part is not None
        part, blocking = place.part, self.blocking
        panel = b.subtract(place.panel.number, part.panels.first)
        slot = b.add(b.multiply(panel, self._waiting), place.slot)
        sums = accumulation.Partial(part.buffer, b.multiply(slot, self.tile.columns), tile)
        ends = b.equal(part.number, 0), b.equal(part.number, blocking.spans - 1)
        return accumulation.continued(sums, self.parts.total.dtype, ends, start, finish)

    def _ahead(self, outer: Outer, place: Place, tile: RegisterTile) -> Fetching | None:
        """Return what to fetch of constants while a tile is summed."""
        if place.count is not None:
            return self._streams(outer, place, place.count, tile.unroll)
        return self._right_ahead(outer, place) or self._left_ahead(outer, place, tile.rows)

    @property
    def line(self) -> int:
        """The bytes of a line of the cache into which constants are fetched."""
        return self.target.machine.cache(2).line

    def _is_near(self, packed: PackedFactor) -> bool:
        """Whether a factor is so small that it stays in that cache."""
        return packed.contents.nbytes < AHEAD_SHARE * self.target.machine.working_set(2)

    def _streams(self, outer: Outer, place: Place, count: Expression, unroll: int) -> Streams | None:
        """Return what tile ``place.step`` of ``count`` fetches of the right factor: its share of what comes next."""
        packed, width = self.right_packed, self.tile.columns
        if packed is None or self._is_near(packed):
            return None
        first = b.index(0) if place.part is None else b.multiply(place.part.number, self.blocking.span)
        begin = b.add(b.multiply(place.panel.begin, self.parts.terms), b.multiply(first, width))
        following = b.add(b.add(packed.begin(outer), begin), self.blocking.span * width)
        line = self.line // self.bytes
        return streams_of(
            packed.buffer, packed.contents.size, following, self.blocking.span // unroll, unroll * width, line,
            place.step, count,
        )  # fmt: skip

    def _left_ahead(self, outer: Outer, place: Place, height: int) -> Ahead | None:
        """Return what to fetch of the left factor: the rows of the next tile."""
        packed = self.left_packed
        if packed is None or self._is_near(packed) or not self.parts.depth:
            return None
        term = substitute(self.parts.term(), {self.parts.depth[-1].variable: b.index(0)})
        if place.part is not None:
            term = b.multiply(place.part.number, self.blocking.span)
        row = b.multiply(b.add(place.begin, height), self.parts.terms)
        begin = b.add(b.add(packed.begin(outer), row), b.multiply(term, height))
        return Ahead(packed.buffer, begin, self.tile.unroll * height, self.line)

    def _right_ahead(self, outer: Outer, place: Place) -> Ahead | None:
        """Return what to fetch of the right factor: a tile's share of the panel, or part of one, that is read next."""
        packed, panel, part = self.right_packed, place.panel, place.part
        if packed is None or self.is_streamed or self._is_near(packed) or len(self.parts.depth) != 1:
            return None
        following = b.add(panel.number, 1)
        row: Expression = b.index(0)
        if part is not None:
            wraps = b.less_equal(b.add(part.panels.first, part.panels.count), following)
            again = b.less(part.number, self.blocking.spans - 1)
            row = b.select(wraps, b.select(again, b.add(part.number, 1), 0), part.number)
            row = b.multiply(row, self.blocking.span)
            following = b.select(b.both(wraps, again), part.panels.first, following)
        begin = b.multiply(b.add(b.multiply(following, self.parts.terms), row), self.tile.columns)
        line = self.line // self.bytes
        lines = -(-self.tile.unroll * self.tile.columns // (self.blocking.largest_block * line))
        advance = lines * line
        share = self.blocking.span // self.tile.unroll * advance
        begin = b.add(b.add(packed.begin(outer), begin), b.multiply(place.step, share))
        return Ahead(packed.buffer, begin, advance, self.line)
