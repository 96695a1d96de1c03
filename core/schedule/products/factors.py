"""The factors of a sum of products: the tile and blocks that suit them, and how they are packed or copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from graft.core.machine.instructions import DOTS
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.flat_stages import Layout, stride
from graft.core.schedule.loops.loop_frames import taken
from graft.core.schedule.loops.unswitch import unswitched
from graft.core.schedule.parameters import ContractionParameters, Packing
from graft.core.schedule.primitives.loop_kinds import Vectorize
from graft.core.schedule.primitives.statements import ramp, wide
from graft.core.schedule.primitives.vectorize import instantiate, lower_loops, vectorize_expression
from graft.core.schedule.products.blocking import (
    BLOCK_SHARE,
    COPIED_SHARE,
    Blocking,
    Columns,
    Panel,
    RowBlock,
    choose_blocking,
    cut_in_spans,
    wanted_tasks,
)
from graft.core.schedule.products.dot_grouping import Sum
from graft.core.schedule.products.factor_packing import PackedFactor, pack_left, pack_right
from graft.core.schedule.products.packed_dot import CopiedRows, SmallRows, Starts, copy_elements, copy_packed
from graft.core.schedule.products.product_axes import Contraction
from graft.core.schedule.products.tiling import (
    RegisterTile,
    Split,
    adjusted_tile,
    lanes_of,
    ranked_tiles,
    split_evenly,
    with_dot,
)
from graft.core.tensor_ir.anchors import VARIES
from graft.core.tensor_ir.ir import Allocate, Block, Buffer, Constant, Expression, For, Load, Statement, Store, Variable
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.statements import loops_over
from graft.core.tensor_ir.visit import free_variables, loads, substitute
from graft.core.types import Type, element_bits

USUAL_VECTORS = 2
"""The vectors across most tiles."""
PACK_SHARE = 1.0
"""The right factor is packed as a whole in the second-level cache if it takes no more of it."""
MIN_TASKS = 16
PACK_TILES = 3
"""A factor is packed at run time if at least so many tiles use each panel, or each tile of its rows ..."""
FAR_LINES, LARGE_SHARE = 16, 0.25
"""... and its rows are so many lines apart, and it takes so much of that cache, that reading it in place would miss."""
COLUMNS_SHARE = 4.0
"""What the rows of a block may take of the second-level cache where they are copied in columns: then they stream."""
CONFLICT_ROWS = 6
"""Rows at the distance of a way of the first-level cache share its sets: so many are too many, with what else passes.

Found with eight ways. For twelve, nine rows were tried only together with larger blocks, which was not faster.
"""

STREAMS, FEW_ROWS = 8, 4
"""A large right factor that is read where it lies, for so few rows, is read so many of its rows at one time."""

USUAL = 128
"""The rows, columns or terms that are counted where their number varies ..."""
NARROW = 2
"""... but columns as vectors of a tile: of what is left over at their end, less is in vain ..."""
MOST_ROWS, NEAR = 8, 1.006
"""... and rows of a tile at the most, where they are not equally far apart: where each begins stays in a register.
Tiles that take so much of the fewest cycles are as good: the one with the least code is taken."""
LEAST_ROWS, MOST_COPIED = 256, 512
"""Rows of a block at the least where they vary: the right factor passes once for each, from farther than the left; and
at the most where they are copied first."""

Outer = dict[int, Expression]
Mode = Literal["in place", "packed before"] | Packing


def usual_size(parts: Contraction, target: Target) -> tuple[int, int]:
    """Return the rows and columns that tiles are chosen for: those of the product, or what is usual."""
    width = parts.width if parts.width != VARIES else NARROW * lanes_of(parts.left.type.dtype, target)
    return (USUAL if parts.height == VARIES else parts.height), width


def _chosen_tile(parts: Contraction, target: Target) -> RegisterTile:
    """Return the tile of fewest cycles; of those nearly as good, if extents vary, one that leaves no columns over."""
    (height, width), dtype = usual_size(parts, target), parts.left.type.dtype
    shaped, busy = with_dot(parts.multiply.dot, target)
    busy += parts.held_vectors(USUAL_VECTORS)
    ranked = [row for row in ranked_tiles(height, width, dtype, shaped, busy) if parts.epilogue.allows(row[1].columns)]
    if not parts.varies:
        return ranked[0][1]
    if parts.before or parts.terms == VARIES:
        ranked = [row for row in ranked if row[1].rows <= MOST_ROWS]
    good = [tile for cycles, tile in ranked if cycles <= NEAR * ranked[0][0]]
    return min(good, key=lambda tile: (-(-width // tile.lanes) % tile.vectors > 0, tile.vectors))


class Factors:
    """Decides about the factors of one contraction and copies them. Outer axes are given as ``outer``: index by axis.

    ``sums`` are those that the start of a sum reads, ``small`` the elements that packed left operands hold.
    """

    def __init__(
        self,
        kernel: Kernel,
        parts: Contraction,
        target: Target,
        parameters: ContractionParameters | None = None,
        sums: Sequence[Sum] = (),
        small: SmallRows | None = None,
    ) -> None:
        self.kernel, self.parts, self.target, self.small = kernel, parts, target, small
        self.parameters = wanted = parameters or ContractionParameters()
        self.kind = Type(parts.left.type.dtype)
        self.bytes = element_bits(self.kind.dtype) // 8
        height, width = usual_size(parts, target)
        chosen = _chosen_tile(parts, target)
        self.tile = adjusted_tile(chosen, height, width, wanted.rows, wanted.vectors, wanted.unroll)
        if not parts.epilogue.allows(self.tile.columns):
            self.tile = replace(self.tile, vectors=chosen.vectors)
        self.split = split_evenly(height, self.tile.rows)
        """The rows in tiles; where their number varies, as many as is usual."""
        machine, copies = target.machine, not self.lies_by_rows()
        has_masks = copies or machine.masks or machine.masked_loads or self.tile.lanes == 1
        self.columns = Columns(parts.width, self.tile, parts.extents[parts.columns], has_masks)
        self.panels, self.padded = self.columns.panels, self.columns.padded
        self.is_streamed = self.split.count == 1 and not parts.varies
        """Whether each element of the right factor is used by one tile only: then memory is the limit."""
        self.blocking: Blocking
        self.left_packed: PackedFactor | None = None
        self.right_packed: PackedFactor | None = None
        self.mode: Mode | None = "in place"
        self.buffer: Buffer | None = None
        """The panels that are filled at run time."""
        self.spill = 0
        """So many elements behind each panel may be written while it is filled."""
        self.copied_rows: Buffer | None = None
        """The rows of the left factor at a better distance, if they are copied at run time."""
        self.copied_columns: Buffer | None = None
        """The rows of the left factor in columns as high as a tile, if they are copied so at run time."""
        self.copy_layout: Layout | None = None
        """The flat buffers of what copies panels of which the number varies."""
        self.starts = Starts(sums, parts.multiply.swapped)
        self.grouped_rows: CopiedRows | None = None
        """The rows of the left factor in groups, if they are copied at run time."""

    def pack_constants(self) -> None:
        """Lay constant factors out, the sums of their elements behind them."""
        self.left_packed = pack_left(self.kernel, self.parts, self.split)
        self.right_packed = pack_right(self.kernel, self.parts, self.tile, self.padded, self.is_streamed)
        self.left_packed, self.right_packed = self.starts.packed(self.left_packed, self.right_packed)

    @property
    def _packable(self) -> int:
        """The bytes of a right factor that is packed as a whole."""
        return int(PACK_SHARE * self.target.machine.working_set(2))

    def _needs_groups(self) -> bool:
        """Whether the left factor has to be copied in groups."""
        if not self.parts.multiply.dot or self.left_packed is not None or isinstance(self.parts.left, Load):
            return False
        width = DOTS[self.parts.multiply.dot].width
        return self.small is None or self.starts.of_left is not None or not self.small.can_be_packed(width)

    def _blocked(self) -> Blocking:
        """Decide in which order tiles are computed."""
        parts, whole = self.parts, self.padded * self.parts.terms * self.bytes
        if parts.varies:
            return self._blocked_if_varying()
        tasks = max(1, wanted_tasks(self.target) // parts.batch)
        if not self.is_streamed:
            cuttable = len(parts.depth) == 1
            return choose_blocking(
                self.tile, self.split, self.panels, parts.terms, self.bytes, tasks, cuttable, self._rows_conflict(),
                machine=self.target.machine, block_bytes=self.parameters.block_bytes,
                span_bytes=self.parameters.span_bytes,
            )  # fmt: skip
        by_rows = (
            len(parts.depth) == 1 and self.right_packed is None and whole >= self._packable and not self.must_pack()
        )
        span = STREAMS if by_rows and parts.height <= FEW_ROWS else parts.terms
        groups = split_evenly(self.panels, -(-self.panels // min(tasks, self.panels)))
        return Blocking(split_evenly(1, 1), groups, -(-parts.terms // span), span)

    def _blocked_if_varying(self) -> Blocking:
        """Decide in which order tiles are computed of which the number varies: panel by panel."""
        parts, machine = self.parts, self.target.machine
        cuttable = len(parts.depth) == 1 and parts.rows is not None and parts.terms != VARIES
        terms, one = parts.terms if parts.terms != VARIES else USUAL, Split(1, 1, 0)
        if parts.height != VARIES:
            blocking = choose_blocking(
                self.tile, self.split, 1, terms, self.bytes, 1, cuttable, machine=machine,
                block_bytes=self.parameters.block_bytes, span_bytes=self.parameters.span_bytes,
            )  # fmt: skip
            return replace(blocking, groups=one)
        spans, span = cut_in_spans(terms, self.tile.unroll, self.bytes, machine, self.parameters.span_bytes)
        if not cuttable:
            spans, span = 1, terms
        most = self.parameters.block_bytes or int(BLOCK_SHARE * machine.working_set(2))
        rows = max(most // max(1, span * self.bytes), LEAST_ROWS)
        rows = min(rows, MOST_COPIED) if self._needs_groups() else rows
        tiles = -(-rows // self.tile.rows)
        return Blocking(Split(1, tiles, 0), one, spans, span)

    def choose_mode(self) -> Mode | None:
        """Decide when and how much of the right factor is packed at one time; None if there is no way.

        Where extents vary, panels are copied of a factor whose columns lie apart, if several rows read what is copied
        and a panel stays in a cache.
        """
        if self.right_packed is not None:
            return "packed before"
        if self.parts.varies:
            if self.parts.multiply.dot or self.lies_by_rows():
                return None if self.parts.multiply.dot else "in place"
            return "packed by panel" if self._is_worth_copying() else None
        if self.parameters.packing is not None and not self.is_streamed:
            return self.parameters.packing
        if not self.must_pack():
            return "in place"
        whole = self.padded * self.parts.terms * self.bytes
        if self.parts.batch >= MIN_TASKS // 4 and whole <= self._packable:
            return "packed by product"
        left = self.parts.height * self.parts.terms * self.bytes
        is_small = not self.target.machine.caches  # a microcontroller, whose memory is scarce
        enough = is_small or self.panels * self.parts.batch >= MIN_TASKS // 2
        return (
            "packed by panel" if enough and (left <= self._packable or whole > 4 * self._packable) else "packed at once"
        )

    def lies_by_rows(self) -> bool:
        """Whether neighbouring columns of the right factor are neighbours in memory."""
        column = self.parts.column

        def is_contiguous(load: Load) -> bool:
            *before, last = load.indices
            apart = column in free_variables(*before) or load.buffer.strides is not None
            return not apart and stride(last, column, Simplifier()) == 1

        along = (load for load in loads(self.parts.right) if column in free_variables(*load.indices))
        return all(map(is_contiguous, along))

    def _is_worth_copying(self) -> bool:
        parts = self.parts
        if parts.terms == VARIES or parts.height == 1:
            return False
        panel = parts.terms * self.tile.columns * element_bits(parts.right.type.dtype) // 8
        return panel <= COPIED_SHARE * self.target.machine.working_set(3)

    def must_pack(self) -> bool:
        """Whether the right factor is copied: its rows are not vectors in memory, or are far apart and used often."""
        right = self.parts.right
        if self.parts.multiply.dot:
            return True
        if not isinstance(right, Load) or right.mask is not None or right.buffer.strides is not None:
            return True
        *before, last = right.indices
        if last is not self.parts.column or self.parts.column in free_variables(*before):
            return True
        row = right.buffer.shape[-1]
        if not isinstance(row, Constant):
            return self.split.count >= PACK_TILES  # how far rows lie apart is known when the kernel runs
        stride = int(row.value) * self.bytes
        cache = self.target.machine.cache(2)
        is_large = (
            stride >= FAR_LINES * cache.line
            and self.parts.terms * stride >= LARGE_SHARE * self.target.machine.working_set(2)
        )
        return self.split.count >= PACK_TILES and (is_large or not self._stays_near(stride))

    def _stays_near(self, stride: int) -> bool:
        """Whether a panel of rows that lie ``stride`` bytes apart stays in the first-level cache from tile to tile."""
        if not self.target.machine.caches:
            return True
        cache, width = self.target.machine.cache(1), self.tile.columns * self.bytes
        lines = -(-width // cache.line) + (stride % cache.line > 0)
        reached = min(cache.sets, cache.sets_of(stride) * lines)
        return self.parts.terms * lines <= reached * cache.ways

    def _rows_conflict(self) -> bool:
        """Whether the rows of a tile of the left factor would compete for the same lines of the first-level cache."""
        left = self.parts.left
        if self.left_packed is not None or not isinstance(left, Load) or self.parts.rows is None or self.parts.varies:
            return False
        last = left.indices[-1]
        inner = self.parts.depth[-1]
        far = self.target.machine.cache(1).sets_of(inner.extent * self.bytes) == 1
        is_row = left.buffer.shape[-1] == b.index(inner.extent) and left.buffer.strides is None
        in_place = last is inner.variable and len(self.parts.depth) == 1 and is_row
        return far and in_place and self.split.size >= CONFLICT_ROWS and self.panels >= PACK_TILES

    def lie_apart(self, rows_of_block: int) -> bool:
        """Whether rows of the left factor are copied, for each of their terms lies in another line of the caches."""
        left, rows = self.parts.left, self.parts.rows
        if not self.target.machine.caches or self.panels < PACK_TILES or rows is None or self.parts.varies:
            return False
        if self.left_packed is not None or self.parts.multiply.dot:
            return False
        if rows_of_block * self.parts.terms * self.bytes > COLUMNS_SHARE * self.target.machine.working_set(2):
            return False
        if not isinstance(left, Load) or left.mask is not None or left.buffer.strides is not None:
            return False
        return self.split.size > 1 and not {loop.variable for loop in self.parts.depth} & free_variables(
            left.indices[-1]
        )

    def _with_copied_rows(self, outer: Outer, rows: RowBlock, body: Statement) -> Statement:
        """Return ``body`` behind the loops that copy a block of rows of the left factor, if rows are copied."""
        if self.grouped_rows is not None:
            return self._with_grouped_rows(self.grouped_rows, outer, rows, body)
        if self.copied_columns is not None:
            return self._with_copied_columns(self.copied_columns, outer, rows, body)
        if self.copied_rows is None:
            return body
        row, step, lane, lanes = Variable("row"), Variable("step"), Variable("lane"), self.tile.lanes
        place = b.add(b.multiply(step, lanes), lane)
        value = substitute(self._left_at(outer, b.add(rows.first, row)), {self.parts.depth[0].variable: place})
        axes = [(step, b.index(self.parts.terms // lanes)), (lane, b.index(lanes))]
        copy = lower_loops(taken(loops_over(axes, Store(self.copied_rows, (row, place), value)), [Vectorize("lane")]))
        return Allocate(self.copied_rows, Block((loops_over([(row, rows.count)], copy, "parallel"), body)))

    def _with_copied_columns(self, columns: Buffer, outer: Outer, rows: RowBlock, body: Statement) -> Statement:
        """Return ``body`` behind the loops that copy a block of rows: a tile after the other, term by term."""
        tile, first, tiles = Variable("tile"), rows.first, rows.tiles
        assert tiles is not None, "rows in columns whose number varies"
        begin = self.split.begin(b.add(tiles.first, tile))

        def copied(height: int) -> Statement:
            term = b.add(b.multiply(b.subtract(begin, first), self.parts.terms), b.multiply(self.parts.term(), height))
            stores: list[Statement] = []
            done = 0
            while done < height:
                lanes = min(self.tile.lanes, 1 << (height - done).bit_length() - 1)
                lane = Variable("lane")
                value = self._left_at(outer, b.add(b.add(begin, done), lane))
                store = Store(columns, (b.add(b.add(term, done), lane),), value)
                stores.append(taken(loops_over([(lane, b.index(lanes))], store), [Vectorize("lane")]))
                done += lanes
            return self.over_depth(lower_loops(Block(tuple(stores))))

        copy = self.split.choose(b.add(tiles.first, tile), copied)
        return Allocate(columns, Block((loops_over([(tile, tiles.count)], copy, "parallel"), body)))

    def _with_grouped_rows(self, copied: CopiedRows, outer: Outer, rows: RowBlock, body: Statement) -> Statement:
        row, multiply = Variable("row"), self.parts.multiply
        if self.small is not None and copied.buffer.dtype == self.small.dtype:
            places = self._places(outer, b.add(rows.first, row))
            copy = copy_elements(self.small, copied, row, places, multiply, self.tile.lanes)
        else:
            operand = self._left_at(outer, b.add(rows.first, row))
            copy = instantiate(copy_packed(operand, copied, row, self.parts.term(), multiply, self.over_depth), {})
        return copied.around(Block((loops_over([(row, rows.count)], copy, "parallel"), body)))

    def over_depth(self, body: Statement, *, is_masked: bool = False) -> Statement:
        """Return the loops of the reduction around ``body``; masks of loads are looked at before the innermost."""
        for loop in reversed(self.parts.depth):
            around = loops_over([(loop.variable, b.index(loop.extent))], body)
            is_first = is_masked and loop is self.parts.depth[-1]
            body = unswitched(around) if is_first and isinstance(around, For) else around
        return instantiate(body, {})  # the sums have loops over the same terms

    def pack(self, outer: Outer, panel: Panel) -> Statement:
        """Return the loops that copy the right factor's columns of ``panel`` into the buffer."""
        assert self.buffer is not None
        lanes = self.tile.lanes
        statements: list[Statement] = []
        for vector in range(panel.vectors):
            value = self._right_at(outer, b.add(panel.begin, vector * lanes), self.columns.mask(panel, vector), lanes)
            statements.append(Store(self.buffer, (self.panel_place(panel, vector * lanes),), value))
        return self.over_depth(Block(tuple(statements)))

    def panel_place(self, panel: Panel, offset: Expression | int, lanes: int = 0) -> Expression:
        """Return the index in the buffer of the vector ``offset`` elements into the current row of a panel."""
        before = b.add(b.multiply(panel.begin, self.parts.terms), b.multiply(panel.number, self.spill))
        begin = panel.offset if self.mode == "packed by panel" else before
        width = self.tile.columns if self.parts.varies else panel.vectors * self.tile.lanes
        row = b.add(begin, b.multiply(self.parts.term(), width))
        return ramp(b.add(row, offset), lanes or self.tile.lanes)

    def _right_at(self, outer: Outer, column: Expression, mask: Expression | None, lanes: int) -> Expression:
        places = {self.parts.axes[axis]: index for axis, index in outer.items()}
        places[self.parts.column] = ramp(column, lanes)
        return wide(vectorize_expression(self.parts.right, places, mask), lanes)

    def _left_at(self, outer: Outer, row: Expression) -> Expression:
        return substitute(self.parts.left, self._places(outer, row))

    def _places(self, outer: Outer, row: Expression) -> dict[Variable, Expression]:
        places = {**outer, **self.parts.at_row(row)}
        return {self.parts.axes[axis]: index for axis, index in places.items()}
