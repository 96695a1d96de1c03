"""Cache blocks: in which order the tiles of a product are computed, so that what they share stays in a cache.

Rows are cut into blocks of which the left factor stays in the second-level cache while all panels pass; long sums are
cut into spans, between which the sums of a group of panels wait in memory (Goto and van de Geijn, 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from graft.core.machine.machine import Machine
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.statements import column_mask, divided, over, ramp, wide
from graft.core.schedule.products.tiling import RegisterTile, Split, split_evenly
from graft.core.tensor_ir.anchors import VARIES
from graft.core.tensor_ir.ir import Block, Buffer, Expression, If, LoopKind, Statement, Variable
from graft.core.tensor_ir.statements import loops_over

BLOCK_SHARE = 0.75
"""Rows of the left factor are taken in blocks of this part of the second-level cache, which stay there."""
COPIED_SHARE = 0.25
"""Rows that are copied first are in that cache twice: then blocks are of this part of it."""
PARTIAL_SHARE = 1 / 8
"""Sums that wait for their next span take at most so much of it."""
SPAN_SHARE = 1 / 8
"""Terms of a row that are summed at one time, as a part of the first-level cache."""
TASKS_PER_THREAD = 4
UNKNOWN_TASKS = 16
"""The tasks that are wanted where the number of threads is not known."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """``rows`` cuts the tiles of a panel into blocks, ``groups`` the panels; sums go in ``spans`` of ``span`` terms."""

    rows: Split
    groups: Split
    spans: int
    span: int

    @property
    def largest_group(self) -> int:
        """The panels of the largest group."""
        return self.groups.sizes[0][1]

    @property
    def largest_block(self) -> int:
        """The tiles of the largest block of rows."""
        return self.rows.sizes[0][1]


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel of columns: which, where it begins, its vectors, and how many of its columns exist (None: all)."""

    number: Expression
    begin: Expression
    vectors: int
    exist: b.Count | None = None
    lanes: int = 0
    """The lanes of a vector; 0: those of the tile."""
    offset: Expression = field(default_factory=partial(b.index, 0))
    """Of the first column in what is packed of the panel."""


@dataclass(frozen=True, slots=True)
class Range:
    """``count`` tiles or panels from ``first`` on."""

    first: Expression
    count: Expression


@dataclass(frozen=True, slots=True)
class RowBlock:
    """``count`` rows from ``first`` on; as ``tiles`` where their number is known."""

    first: Expression
    count: Expression
    tiles: Range | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a product in panels as wide as a tile; the last may be narrower, and its last vector cut off.

    Where their number varies, ``extent`` gives it, and what is left over is in as few vectors as it fills; column by
    column on a machine that reads no vectors in part.
    """

    width: int
    tile: RegisterTile
    extent: Expression | None = None
    has_masks: bool = True

    @property
    def panels(self) -> int:
        """The number of panels; `VARIES` if that of the columns does."""
        return VARIES if self.width == VARIES else -(-self.width // self.tile.columns)

    @property
    def padded(self) -> int:
        """The columns in whole vectors; `VARIES` if their number does."""
        return VARIES if self.width == VARIES else -(-self.width // self.tile.lanes) * self.tile.lanes

    def over(self, kind: LoopKind, body: Callable[[Panel], Statement], panels: Range | None = None) -> Statement:
        """Return the loop over some of the panels, all if None."""
        if self.width == VARIES:
            return self._over_open(kind, body)
        panels = panels or Range(b.index(0), b.index(self.panels))
        step = b.index(0) if panels.count == b.index(1) else Variable("panel")
        number = b.add(panels.first, step)
        begin = b.multiply(number, self.tile.columns)
        full = self.width // self.tile.columns
        tail = self.padded // self.tile.lanes - full * self.tile.vectors
        bodies = [body(Panel(number, begin, self.tile.vectors))] if full else []
        left = self.width - full * self.tile.columns
        bodies += [body(Panel(number, begin, tail, left))] if tail else []
        chosen = bodies[0] if len(bodies) == 1 else If(b.less(number, full), *bodies)
        return over(step, panels.count, kind, chosen)

    def _over_open(self, kind: LoopKind, body: Callable[[Panel], Statement]) -> Statement:
        assert self.extent is not None, "columns whose number is known nowhere"
        number, (whole, rest) = Variable("panel"), divided(self.extent, self.tile.columns)
        all_of = Panel(number, b.multiply(number, self.tile.columns), self.tile.vectors)
        begin = b.multiply(whole, self.tile.columns)
        if self.has_masks:
            tail = body(Panel(whole, begin, self.tile.vectors, rest))
            for vectors in range(self.tile.vectors - 1, 0, -1):
                fewer = body(Panel(whole, begin, vectors, rest))
                tail = If(b.less_equal(rest, vectors * self.tile.lanes), fewer, tail)
        else:
            column = Variable("column")
            single = body(Panel(whole, b.add(begin, column), 1, None, 1, column))
            tail = loops_over([(column, rest)], single)
        return Block((loops_over([(number, whole)], body(all_of), kind), If(b.greater(rest, 0), tail)))

    def is_cut(self, panel: Panel) -> bool:
        """Whether the last vector of a panel may have lanes that are no columns."""
        return bool(panel.exist % self.tile.lanes) if isinstance(panel.exist, int) else panel.exist is not None

    def mask(self, panel: Panel, vector: int) -> Expression | None:
        """Return which lanes of a vector of a panel are columns; None if all are."""
        if panel.exist is None or not self.is_cut(panel) or vector != panel.vectors - 1:
            return None
        if isinstance(panel.exist, int):
            return column_mask(b.add(panel.begin, vector * self.tile.lanes), self.width, self.tile.lanes)
        return b.less(ramp(vector * self.tile.lanes, self.tile.lanes), wide(panel.exist, self.tile.lanes))


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the sums of a group of panels: its number, the panels, and where sums wait for the next part."""

    number: Expression
    panels: Range
    buffer: Buffer


@dataclass(frozen=True, slots=True)
class Place:
    """One tile: its first row, its panel, and the part of its sums, which wait from row ``slot`` of their buffer on.

    It is tile ``step`` of its block, of ``count`` (None: as many as the largest block has).
    """

    begin: Expression
    slot: Expression
    step: Expression
    rows: RowBlock
    panel: Panel
    part: Part | None
    count: Expression | None = None


def wanted_tasks(target: Target) -> int:
    """Return how many tasks of one product keep all threads busy to the end."""
    if not target.threads:
        return UNKNOWN_TASKS
    return 1 if target.threads == 1 else target.threads * TASKS_PER_THREAD


def choose_blocking(
    tile: RegisterTile,
    tiles: Split,
    panels: int,
    terms: int,
    size: int,
    tasks: int,
    is_cuttable: bool,
    is_copied: bool = False,
    *,
    machine: Machine,
    block_bytes: int | None = None,
    span_bytes: int | None = None,
) -> Blocking:
    """Return the blocks of a product of ``tiles`` by ``panels`` with sums of ``terms`` elements of ``size`` bytes.

    ``tasks`` blocks are wanted at least; sums are cut only if ``is_cuttable``. With
    ``is_copied`` the rows of a block are copied before use. ``block_bytes`` and ``span_bytes`` replace the
    sizes that are parts of the machine's caches.
    """
    second = machine.working_set(2)
    spans, span = cut_in_spans(terms, tile.unroll, size, machine, span_bytes) if is_cuttable else (1, terms)
    row_bytes = max(span * size * tile.rows, 1)
    wanted = max(1, -(-tasks // panels))
    most = (block_bytes or int(BLOCK_SHARE * second)) // row_bytes
    if is_copied and spans == 1 and tiles.count > most:
        most = (block_bytes or int(COPIED_SHARE * second)) // row_bytes
    rows = split_evenly(tiles.count, max(1, min(most, tiles.count // wanted)))
    most = int(PARTIAL_SHARE * second) // (rows.sizes[0][1] * tile.rows * tile.columns * size)
    wanted = max(1, -(-tasks // rows.count))
    groups = split_evenly(panels, max(1, min(most, panels // wanted)))
    return Blocking(rows, groups, spans, span)


def cut_in_spans(
    terms: int, unroll: int, size: int, machine: Machine, span_bytes: int | None = None
) -> tuple[int, int]:
    """Return in how many spans sums of elements of ``size`` bytes go, and the terms of one but the last."""
    longest = max((span_bytes or int(SPAN_SHARE * machine.working_set(1))) // size, unroll)
    if terms <= longest * 5 // 4:
        return 1, terms
    span = -(-terms // (-(-terms // longest) * unroll)) * unroll
    return -(-terms // span), span
