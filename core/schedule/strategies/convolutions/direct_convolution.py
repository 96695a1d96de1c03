"""The schedule of convolutions in NCHW.

Over flat pixels it is a contraction: ``out[n, g, o, pixel] = sum over k of weight[g, o, k] * patch[k, pixel]``,
with ``k`` over the kernel's window and the group's channels. The 1x1 convolution reads its patches where they
lie; others copy them into panels, row by row of the output. A depthwise convolution has no such product: it is computed
directly, a vector of a row at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.collapse import with_sources
from graft.core.schedule.parameters import COLUMNS, ContractionParameters, Parameters, of_family
from graft.core.schedule.primitives.statements import ramp, wide
from graft.core.schedule.primitives.vectorize import vectorize_expression
from graft.core.schedule.products.blocking import Panel
from graft.core.schedule.products.contraction import ContractionScheduler
from graft.core.schedule.products.convolution import Convolution
from graft.core.schedule.products.dot_grouping import Sum, group
from graft.core.schedule.products.epilogue import epilogue_of
from graft.core.schedule.products.factors import Outer
from graft.core.schedule.products.product_axes import Contraction, analyse
from graft.core.schedule.products.tile_candidates import UNROLLS, best_tiles, blocks
from graft.core.schedule.strategies.convolutions.channel_order import direct_cycles
from graft.core.schedule.strategies.convolutions.flat_images import Flattened, flatten, uses_pixels_apart
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, OTHER_FORM, Anchor, Answer, Strategy
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.anchors import Window, weakened
from graft.core.tensor_ir.rewriting.simplify import simplify
from graft.core.tensor_ir.statements import bind
from graft.core.tensor_ir.verifying.anchor_rules import factors_of
from graft.core.tensor_ir.visit import free_variables, substitute


def schedule_direct(
    kernel: Kernel,
    stages: tuple[ir.Stage, ...],
    window: Window,
    target: Target,
    wanted: ContractionParameters | None = None,
) -> Scheduled | None:
    """Return a convolution as a product of weights and patches; None if it is none."""
    anchor = channels_innermost(stages[0], window)
    plain = (anchor, *stages[1:])
    grouped = group(anchor, kernel.constants, target)
    packed = grouped and _product(kernel, (grouped.anchor, *plain[1:]), window.groups, target, wanted, grouped.sums)
    return packed or _product(kernel, plain, window.groups, target, wanted)


def _product(
    kernel: Kernel,
    stages: tuple[ir.Stage, ...],
    groups: int,
    target: Target,
    wanted: ContractionParameters | None,
    sums: Sequence[Sum] = (),
) -> Scheduled | None:
    """Return the product of weights and patches; None if it is none, or its start needs sums that are not known."""
    found = _flat_product(kernel, stages, groups)
    if found is None:
        return None
    flat, parts = found
    sums = flat.of(sums)
    scheduler = ContractionScheduler(flat.kernel, parts, target, wanted, sums)
    if uses_pixels_apart(parts.right, parts.column):
        scheduler = _PatchScheduler(flat, parts, target, wanted, sums)
    scheduled = scheduler.scheduled()
    return with_sources(scheduled, flat.original) if scheduled and scheduler.starts.are_known else None


def _flat_product(kernel: Kernel, stages: tuple[ir.Stage, ...], groups: int) -> tuple[Flattened, Contraction] | None:
    """Return a convolution over flat pixels, and the parts of that product; None if it is none."""
    flat = flatten(kernel, stages, groups)
    epilogue = None if flat is None else epilogue_of(flat.stages, flat.kernel.outputs)
    parts = None if epilogue is None else analyse(epilogue)
    return None if flat is None or parts is None or parts.varies or parts.columns != 3 else (flat, parts)


def channels_innermost(anchor: ir.Stage, window: Window) -> ir.Stage:
    """Return the anchor with the sum over channels innermost, so that a window's bounds are looked at once for all.

    Window axes of extent 1 are left out.
    """
    reduction = anchor.reduction
    assert reduction is not None
    channel = reduction.axes[window.reduced.index(0)]
    single = {axis.variable: b.index(0) for axis in reduction.axes if axis is not channel and axis.extent == b.index(1)}
    axes = (*(axis for axis in reduction.axes if axis is not channel and axis.variable not in single), channel)
    value = simplify(substitute(anchor.value, single))
    changed = ir.Reduction("add", axes, reduction.initial)
    return replace(anchor, value=value, reduction=changed, structure=weakened(window))


class _PatchScheduler(ContractionScheduler):
    """A contraction whose right factor is a patch of the input: panels are filled by runs of an output row."""

    def __init__(
        self,
        flat: Flattened,
        parts: Contraction,
        target: Target,
        wanted: ContractionParameters | None = None,
        sums: Sequence[Sum] = (),
    ) -> None:
        super().__init__(flat.kernel, parts, target, wanted, sums)
        self.flat = flat
        self.row_length = flat.extents[-1]
        self.row_count = math.prod(flat.extents[:-1])
        if self.row_length % self.tile.columns:
            self.spill = -(-min(self.row_length, self.tile.columns) // self.tile.lanes) * self.tile.lanes

    def must_pack(self) -> bool:
        """A patch is always copied."""
        return True

    def pack(self, outer: Outer, panel: Panel) -> ir.Statement:
        """Return the loops that fill a panel: for each window position and channel, the runs of pixels in it."""
        width, length = panel.vectors * self.tile.lanes, self.row_length
        row, column = ir.Variable("row"), ir.Variable("column")
        body = self._run(outer, panel, row, column)
        if length % width:
            runs = self._runs(outer, panel, row, column)
            body = ir.If(b.less_equal(b.add(column, width), length), body, runs) if width <= length else runs
        return bind([(row, b.divide(panel.begin, length)), (column, b.modulo(panel.begin, length))], body)

    def _run(self, outer: Outer, panel: Panel, row: ir.Expression, column: ir.Expression) -> ir.Statement:
        """Return the loops that fill a panel whose pixels are all of one row."""
        assert self.buffer is not None
        stores: list[ir.Statement] = []
        for vector in range(panel.vectors):
            start = vector * self.tile.lanes
            value = self.patch(outer, row, b.add(column, start), None)
            stores.append(ir.Store(self.buffer, (self.panel_place(panel, start),), value))
        return self.over_depth(ir.Block(tuple(stores)), is_masked=True)

    def _runs(self, outer: Outer, panel: Panel, row: ir.Expression, column: ir.Expression) -> ir.Statement:
        """Return the loops that fill a panel with pixels of several rows.

        Whole vectors are stored, since a mask makes a store many times as slow on some processors: what is behind the
        end of a run is replaced by the next run, behind the last by the next term, and behind the last term is room.
        """
        assert self.buffer is not None
        lanes, width, length = self.tile.lanes, panel.vectors * self.tile.lanes, self.row_length
        limits: list[tuple[ir.Variable, ir.Expression]] = []
        stores: list[ir.Statement] = []
        if self.columns.is_cut(panel):
            # What no run fills is multiplied all the same, and old memory may hold numbers that are slow to multiply.
            last = self.panel_place(panel, width - lanes)
            stores.append(ir.Store(self.buffer, (last,), wide(b.constant(0, self.kind.dtype), lanes)))
        for run in range(min(-(-(width - 1) // length) + 1, self.row_count)):
            first = column if run == 0 else b.index(0)
            offset = b.index(0) if run == 0 else b.minimum(b.subtract(b.index(run * length), column), b.index(width))
            limit, place = ir.Variable(f"limit{run}"), ir.Variable(f"offset{run}")
            limits += [(limit, self._limit(b.add(row, run), first, offset, width)), (place, offset)]
            for start in range(0, min(length, width), lanes):
                value = self.patch(
                    outer, b.add(row, run), b.add(first, start), b.less(ramp(start, lanes), wide(limit, lanes))
                )
                stores.append(ir.Store(self.buffer, (self.panel_place(panel, b.add(place, start)),), value))
        return bind(limits, self.over_depth(ir.Block(tuple(stores))))

    def _limit(self, row: ir.Expression, first: ir.Expression, offset: ir.Expression, width: int) -> ir.Expression:
        """Return how many pixels of a run lie in its row, in the panel and in the image."""
        room = b.minimum(b.subtract(b.index(self.row_length), first), b.subtract(b.index(width), offset))
        return b.select(b.less(row, self.row_count), room, 0)

    def patch(
        self, outer: Outer, row: ir.Expression, column: ir.Expression, mask: ir.Expression | None
    ) -> ir.Expression:
        """Return the vector of the right factor at ``column`` of an output row, for the current term of the sum."""
        anchor = self.flat.anchor
        factors = factors_of(anchor) or ()
        (patch,) = [one for one in factors if not isinstance(one, str) and self.flat.spatial[-1] in free_variables(one)]
        group = self.parts.shape[2]
        places: dict[ir.Variable, ir.Expression] = {anchor.axes[0]: outer[0]}
        places[anchor.axes[1]] = b.multiply(outer[1], group)
        rest = row
        for axis, extent in reversed(list(zip(self.flat.spatial[:-1], self.flat.extents[:-1], strict=True))):
            places[axis] = b.modulo(rest, extent) if axis is not self.flat.spatial[0] else rest
            rest = b.divide(rest, extent)
        scalar = simplify(substitute(patch, places))
        return vectorize_expression(scalar, {self.flat.spatial[-1]: ramp(column, self.tile.lanes)}, mask)


def _applies(anchor: Anchor, target: Target) -> Answer:
    found = anchor.convolution
    if found is None or found.has_few_channels:
        return Reject("shape", "no convolution, or one of groups of few channels")
    return Reject("layout", "channels are last") if found.window.stores_channels_last else True


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    assert anchor.stages is not None and anchor.convolution is not None, anchor.kernel.name
    wanted = of_family(anchor.parameters, ContractionParameters)
    return schedule_direct(anchor.kernel, anchor.stages, anchor.convolution.window, target, wanted) or OTHER_FORM


def _candidates(anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    own = of_family(anchor.parameters, ContractionParameters) or ContractionParameters()
    found = anchor.convolution
    if found is None or found.anchor.value.type.is_integer:
        return []
    if stage == 0:
        return [next(_tiles(found, target, ContractionParameters(columns=columns))) for columns in COLUMNS]
    if stage == 1:
        # The schedule's own choice of columns is not known here: both then.
        wanted = COLUMNS if own.columns is None else (own.columns,)
        return [one for columns in wanted for one in _tiles(found, target, replace(own, columns=columns))]
    return [*blocks(own, target), *(replace(own, unroll=unroll) for unroll in UNROLLS)]


def _tiles(found: Convolution, target: Target, own: ContractionParameters) -> Iterator[ContractionParameters]:
    """The tiles of a direct convolution, whose rows are channels and whose columns are pixels, or the reverse."""
    shape = (found.window.outputs, math.prod(found.windows.target))
    height, width = reversed(shape) if own.columns == "channels" else shape
    for tile in best_tiles(height, width, found.anchor.value.type.dtype, target):
        yield replace(own, rows=tile.rows, vectors=tile.vectors)


def _cost(anchor: Anchor, target: Target) -> float:
    assert anchor.convolution is not None, anchor.kernel.name
    return direct_cycles(anchor.convolution.window, target)


def _rounds(anchor: Anchor, target: Target) -> bool | None:
    assert anchor.stages is not None and anchor.convolution is not None, anchor.kernel.name
    kernel, window, (first, *rest) = anchor.kernel, anchor.convolution.window, anchor.stages
    grouped = group(channels_innermost(first, window), kernel.constants, target)
    found = None if grouped is None else _flat_product(kernel, (grouped.anchor, *rest), window.groups)
    return found is not None and found[1].multiply.dot == "dot2_bf16"


STRATEGY = Strategy("direct_convolution", CONVOLUTIONS, _build, _applies, _candidates, rounds=_rounds, cost=_cost)
