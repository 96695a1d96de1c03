"""Convolutions with channels last, of images of any extents, known or not: register tiles of pixels x output channels.

Vectors are of output channels, which are numbers; pixels of all images are counted through, so that neither a narrow
image nor a small batch leaves a tile half empty. Where windows leave the image, it is copied into one with a border of
zeros first, so that nothing is masked in the loops that count; a copy is small beside the products that read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.flat_stages import Layout, flatten
from graft.core.schedule.loops.nest import nest
from graft.core.schedule.parameters import ContractionParameters, Parameters, of_family
from graft.core.schedule.primitives.statements import column_mask, ramp, wide
from graft.core.schedule.primitives.vectorize import finished, lower_loops
from graft.core.schedule.products.accumulation import Reduced, accumulate, begin_with, finish_tile
from graft.core.schedule.products.convolution import Convolution, convolution_of
from graft.core.schedule.products.epilogue import Epilogue, epilogue_of
from graft.core.schedule.products.image_elements import ImageElements, elements_of, rounds
from graft.core.schedule.products.tile_candidates import best_tiles
from graft.core.schedule.products.tiling import RegisterTile, adjusted_tile, lanes_of, ranked_tiles, with_dot
from graft.core.schedule.strategies.convolutions.channel_order import has_any_order, saved
from graft.core.schedule.strategies.convolutions.direct_panels import Panels
from graft.core.schedule.strategies.strategy import (
    CONVOLUTIONS,
    OTHER_FORM,
    Anchor,
    Answer,
    Channels,
    Preference,
    Strategy,
)
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.anchors import Window, Windows
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.statements import bind
from graft.core.types import element_bits

USUAL = 128
"""The pixels that tiles are chosen for."""
NEAR = 1.005
"""Tiles that take so much of the fewest cycles are as good: one that leaves no channels over needs half the code."""
MOST_PIXELS = 8
"""Pixels of a tile at the most: where each begins stays in a register for addresses."""
DEPTHWISE_PIXELS = 8
"""Pixels of a tile of a depthwise convolution."""
NEAR_SHARE = 0.5
"""Weights that fill no more than this part of the first-level cache are read whole for each tile of pixels."""
BLOCK_SHARE = 0.5
"""Pixels are taken in blocks whose inputs fill this part of the second-level cache, where they stay for all panels."""
LEAST_TILES = 4
"""The tiles of a block at the least, but where threads would have none."""
FETCHED_SHARE = 2 / 3
"""What weights come with that are not fetched ahead, as a part of the bandwidth of memory."""
MOVED = 3
"""Cycles to round an element of an image and to put it where channels are last."""
TASKS = 4
"""Blocks that there should be for several threads."""

Place = dict[int, ir.Expression]
"""The index along each axis of an image but its channels, by the axis' number."""


@dataclass(frozen=True, slots=True)
class _Pixels:
    """The pixels of a tile: the number of the first, and the places of all."""

    first: ir.Expression
    places: tuple[Place, ...]


def schedule_images(
    kernel: Kernel, stages: Sequence[ir.Stage], target: Target, parameters: ContractionParameters | None = None
) -> Scheduled | None:
    """Return a kernel around a convolution by constant weights; None for any other."""
    direct = direct_sums(kernel, stages, target, parameters)
    if direct is None:
        return None
    panels, tile = direct.panels, direct.tile
    weights, dot = direct.elements.weights, direct.elements.multiply.dot
    knobs: dict[str, int | str] = {"pixels": tile.rows, "vectors": tile.vectors}

    def function() -> ir.Function:
        layout = Layout(Simplifier())
        body = lower_loops(direct.loops(target, layout))
        return layout.function(kernel.function(body, {weights: panels.buffer}))

    return Scheduled(
        function,
        {weights: panels.packed(direct.elements)},
        knobs={**knobs, "dot": dot} if dot else knobs,
    )


def direct_sums(
    kernel: Kernel, stages: Sequence[ir.Stage], target: Target, parameters: ContractionParameters | None = None
) -> DirectSums | None:
    """Take apart a convolution by constant weights; None if it is none."""
    epilogue = epilogue_of(stages, kernel.outputs)
    found = None if epilogue is None else convolution_of(epilogue.anchor)
    if epilogue is None or found is None or epilogue.branches or epilogue.picks:
        return None
    elements = elements_of(stages, found, kernel, target)
    if elements is None:
        return None
    kind, window = epilogue.anchor.value.type.dtype, found.window
    columns = window.groups if window.is_depthwise else window.outputs
    shaped, busy = with_dot(elements.multiply.dot, target)
    ranked = [row for row in ranked_tiles(USUAL, columns, kind, shaped, busy) if row[1].rows <= MOST_PIXELS]
    good = [tile for cycles, tile in ranked if cycles <= NEAR * ranked[0][0]]
    tile = min(good, key=lambda tile: -(-columns // tile.lanes) % tile.vectors > 0)
    if window.is_depthwise:
        tile = RegisterTile(min(DEPTHWISE_PIXELS, tile.rows * tile.vectors), 1, tile.lanes)
    elif parameters is not None:
        tile = adjusted_tile(tile, MOST_PIXELS, columns, parameters.rows, parameters.vectors)
    return DirectSums(epilogue, found, elements, Panels.of(elements, window, tile), tile)


@dataclass(frozen=True, slots=True)
class DirectSums:
    """A convolution taken apart, its weights in panels, and the tile of pixels x output channels."""

    epilogue: Epilogue
    found: Convolution
    elements: ImageElements
    panels: Panels
    tile: RegisterTile

    def loops(self, target: Target, layout: Layout) -> ir.Statement:
        """Return the loops over all tiles; a copy of the image is flat in the layout."""
        return _Loops(self.epilogue, self.found, self.elements, self.panels, self.tile, target).body(layout)


class _Loops:
    """Writes the loops of one convolution."""

    def __init__(
        self,
        epilogue: Epilogue,
        found: Convolution,
        elements: ImageElements,
        panels: Panels,
        tile: RegisterTile,
        target: Target,
    ) -> None:
        self.epilogue, self.window, self.panels, self.tile = epilogue, found.window, panels, tile
        self.machine, self.threads = target.machine, target.threads
        self.elements, self.image, self.kind = elements, elements.image, epilogue.anchor.value.type
        place = {number: axis for axis, number in enumerate(self.window.result)}
        shape = epilogue.anchor.buffer.shape
        self.extents = {axis: shape[place[axis]] for axis in range(len(shape)) if axis != 1}
        """The extents of the result by the numbers of an image's axes."""
        self.pixels: ir.Expression = b.index(1)
        for extent in self.extents.values():
            self.pixels = b.multiply(self.pixels, extent)
        channels = self.window.groups * self.window.inputs
        """The channels of the image."""
        self.channels = -(-channels // elements.width) * elements.width
        is_read_there = self.window.reads_channels_last and self.channels == channels and not elements.is_copied
        self.padded = None if is_read_there and not self.windows.leaves else self._padded()

    @property
    def windows(self) -> Windows:
        return self.window.windows

    def body(self, layout: Layout) -> ir.Statement:
        """Return the copy of the image, if it needs one, and the loops over tiles of pixels and panels of weights."""
        near = self.panels.groups * self.panels.count * self.panels.size * element_bits(self.kind.dtype) // 8
        is_near = near <= NEAR_SHARE * self.machine.working_set(1)
        body = self._by_tiles() if self.window.is_depthwise or is_near else self._by_panels()
        if self.padded is None:
            return body
        copy = finished(nest(flatten(self._copy(self.padded), layout), layout.simplifier, self.machine, True))
        return ir.Allocate(layout.flat(self.padded), ir.Block((copy, body)))

    # ---- The image with a border ----

    def _padded(self) -> ir.Buffer:
        """Return the image that windows read: channels last, as much of each axis as they see."""
        w, shape = self.windows, [self.extents[0]]
        for d in range(w.rank):
            reach = (w.kernel[d] - 1) * w.dilations[d] + 1
            last = b.multiply(b.subtract(self.extents[2 + d], 1), w.strides[d])
            shape.append(b.maximum(b.add(last, reach), 0))
        channels = b.index(self.channels)
        return ir.Buffer(f"{self.image.name}_padded", self.elements.dtype, (*shape, channels), None, "scratch", 64)

    def _copy(self, padded: ir.Buffer) -> ir.Stage:
        axes = b.variables(len(padded.shape), "p")
        w, extents = self.windows, dict(zip(self.window.layout, self.image.shape, strict=True))
        places: Place = {0: axes[0], 1: axes[-1]}
        channels = self.window.groups * self.window.inputs
        conditions: list[ir.Expression] = [] if self.channels == channels else [b.less(axes[-1], channels)]
        for d in range(w.rank):
            place = places[2 + d] = b.subtract(axes[1 + d], w.begins[d])
            conditions += [b.greater_equal(place, 0)] if w.begins[d] > 0 else []
            conditions += [b.less(place, extents[2 + d])] if w.passes(d) else []
        raw = b.masked_load(self.image, [places[number] for number in self.window.layout], conditions)
        element, mask = self.elements.element(raw), b.all_of(conditions)
        if mask is not None and self.elements.border is not None:
            element = b.select(mask, element, self.elements.border)
        return ir.Stage(padded, axes, element)

    # ---- Tiles ----

    def _by_tiles(self) -> ir.Statement:
        """Return tiles of pixels, each with all panels: the weights stay in the nearest cache."""
        return self._tiles(b.index(0), self.pixels, self._panels, "parallel")

    def _by_panels(self) -> ir.Statement:
        """Return blocks of pixels, in each all panels, for each all tiles of the block."""
        tile, panels = self.tile, self.panels
        each = self.channels * prod(self.windows.strides) * element_bits(self.elements.dtype) // 8
        most = max(LEAST_TILES, int(BLOCK_SHARE * self.machine.working_set(2)) // (each * tile.rows))
        tiles: ir.Expression = b.index(most)
        if self.threads != 1:
            shared = b.divide(b.add(self.pixels, TASKS * tile.rows - 1), TASKS * tile.rows)
            tiles = b.maximum(b.minimum(shared, most), 1)
        block, group, panel = (ir.Variable(name) for name in ("block", "group", "panel"))
        size = b.multiply(tiles, tile.rows)
        height = size if isinstance(size, ir.Constant) else ir.Variable("height")
        first = b.multiply(block, height)
        count = b.minimum(b.subtract(self.pixels, first), height)
        whole, rest = divmod(panels.outputs, panels.width)
        parts: list[ir.Statement] = []
        if whole:
            tiles_of = self._tiles(first, count, lambda pixels: self._panel(pixels, group, panel, None))
            parts.append(ir.For(panel, b.index(whole), "parallel", tiles_of))
        if rest:
            last = self._tiles(first, count, lambda pixels: self._panel(pixels, group, b.index(whole), rest))
            parts.append(last)
        body: ir.Statement = ir.Block(tuple(parts)) if len(parts) > 1 else parts[0]
        body = self._over_groups(group, body)
        count = b.divide(b.subtract(b.add(self.pixels, height), 1), height)
        loop = ir.For(block, count, "parallel", body)
        return bind([(height, size)] if isinstance(height, ir.Variable) else (), loop)

    def _over_groups(self, group: ir.Variable, body: ir.Statement) -> ir.Statement:
        if self.panels.groups == 1:
            return ir.Let(group, b.index(0), body)
        return ir.For(group, b.index(self.panels.groups), "serial", body)

    def _panels(self, pixels: _Pixels) -> ir.Statement:
        """Return all panels of a tile of pixels."""
        whole, rest = divmod(self.panels.outputs, self.panels.width)
        group, panel = ir.Variable("group"), ir.Variable("panel")
        parts: list[ir.Statement] = []
        if whole:
            parts.append(ir.For(panel, b.index(whole), "serial", self._panel(pixels, group, panel, None)))
        if rest:
            parts.append(self._panel(pixels, group, b.index(whole), rest))
        return self._over_groups(group, ir.Block(tuple(parts)))

    def _tiles(
        self,
        first: ir.Expression,
        count: ir.Expression,
        body: Callable[[_Pixels], ir.Statement],
        kind: ir.LoopKind = "serial",
    ) -> ir.Statement:
        """Return tiles of the pixels from ``first`` on; the last one ends where all pixels end.

        Some are then computed twice, which is cheaper than one by one; of an image of fewer than a tile the last is.
        """
        number, height = ir.Variable("tile"), self.tile.rows
        begin = b.minimum(b.add(first, b.multiply(number, height)), b.subtract(self.pixels, height))
        placed = self._placed(b.maximum(begin, 0), height, body)
        return ir.For(number, b.divide(b.add(count, height - 1), height), kind, placed)

    def _placed(self, begin: ir.Expression, count: int, body: Callable[[_Pixels], ir.Statement]) -> ir.Statement:
        """Return the body with the places of ``count`` pixels from number ``begin`` on: only the first is divided."""
        axes = [axis for axis, extent in self.extents.items() if extent != b.index(1)]
        known: list[tuple[ir.Variable, ir.Expression]] = []

        def named(name: str, value: ir.Expression) -> ir.Variable:
            variable = ir.Variable(name)
            known.append((variable, value))
            return variable

        first = named("at", begin)
        place: Place = {axis: named(f"x{axis}", index) for axis, index in self._divided(first).items()}
        places = [place]
        for number in range(1, count):
            place = dict(place)
            carry: ir.Expression = b.select(b.less(number, self.pixels), b.index(1), b.index(0))
            for axis in reversed(axes):
                moved = b.add(place[axis], carry)
                if axis == axes[0]:
                    place[axis] = named(f"x{axis}", moved)
                    break
                moved = named("moved", moved)
                is_over = b.equal(moved, self.extents[axis])
                place[axis] = named(f"x{axis}", b.select(is_over, b.index(0), moved))
                carry = named("carry", b.select(is_over, b.index(1), b.index(0)))
            places.append(place)
        return bind(known, body(_Pixels(first, tuple(places))))

    def _divided(self, number: ir.Expression) -> Place:
        """Return the place of a pixel from its number."""
        place: Place = dict.fromkeys(self.extents, b.index(0))
        axes = [axis for axis, extent in self.extents.items() if extent != b.index(1)]
        for axis in reversed(axes):
            is_first = axis == axes[0]
            place[axis] = number if is_first else b.modulo(number, self.extents[axis])
            number = number if is_first else b.divide(number, self.extents[axis])
        return place

    def _panel(self, pixels: _Pixels, group: ir.Expression, panel: ir.Expression, rest: int | None) -> ir.Statement:
        """Return the sums of some pixels for one panel of weights, of whose channels ``rest`` exist (None: all)."""
        vectors = self.tile.vectors if rest is None else -(-rest // self.tile.lanes)
        tile = replace(self.tile, rows=len(pixels.places), vectors=vectors)
        return self._sums(tile, pixels, (group, panel), rest)

    def _sums(
        self,
        tile: RegisterTile,
        pixels: _Pixels,
        of: tuple[ir.Expression, ir.Expression],
        rest: int | None,
    ) -> ir.Statement:
        """Return one tile of sums for the channels of a panel."""
        (group, panel), w, panels, lanes = of, self.windows, self.panels, tile.lanes
        column = b.add(b.multiply(group, panels.outputs), b.multiply(panel, panels.width))
        start = b.multiply(b.add(b.multiply(group, panels.count), panel), panels.size)
        taps = [Reduced(ir.Variable(f"k{d}"), w.kernel[d]) for d in range(w.rank)]
        term = Reduced(ir.Variable("c"), panels.inputs)

        def left(row: int) -> ir.Expression:
            channel: ir.Expression = b.add(b.multiply(group, panels.inputs), term.variable)
            if self.elements.width > 1:
                channel = ramp(b.multiply(channel, self.elements.width), self.elements.width)
            if self.window.is_depthwise:
                channel = ramp(column, lanes)
            return self._pixel(pixels.places[row], [tap.variable for tap in taps], channel, mask(0))

        def right(vector: int) -> ir.Expression:
            number: ir.Expression = b.index(0)
            for tap in (*taps, term):
                number = b.add(b.multiply(number, tap.extent), tap.variable)
            begin = b.add(b.add(start, b.multiply(number, panels.width)), vector * lanes)
            return ir.Load(panels.buffer, (ramp(begin, lanes),))

        def begin(row: int, vector: int) -> ir.Expression:
            sums = b.multiply(b.add(b.multiply(group, panels.count), panel), panels.width)
            place = b.add(sums, panels.tail + vector * lanes)
            return self._start(ir.Load(panels.buffer, (ramp(place, lanes),)))

        def mask(vector: int) -> ir.Expression | None:
            is_whole = rest is None or (vector + 1) * lanes <= rest
            return None if is_whole or rest is None else column_mask(b.index(vector * lanes), rest, lanes)

        def point(row: ir.Expression, ahead: ir.Expression) -> list[ir.Expression]:
            place = pixels.places[int(row.value)] if isinstance(row, ir.Constant) else divided(row)
            channels = ramp(b.add(column, ahead), lanes)
            return [channels if axis == 1 else place[axis] for axis in self.window.result]

        def divided(row: ir.Expression) -> Place:
            return self._divided(b.minimum(b.add(pixels.first, row), b.subtract(self.pixels, 1)))

        def finish(totals: ir.Buffer) -> ir.Statement:
            return finish_tile(self.epilogue, tile, totals, point, mask)

        multiply = self.elements.multiply if self.elements.multiply.dot else None
        starts = begin_with(tile, begin)
        return accumulate(tile, self.kind, starts, (*taps, term), left, right, finish, multiply=multiply)

    def _start(self, sums: ir.Expression) -> ir.Expression:
        """Return what a vector of sums starts from; ``sums`` are those of the weights."""
        initial, point, lanes = self.epilogue.initial, self.elements.point, sums.type.lanes
        if point is None:
            return wide(initial, lanes)
        return b.subtract(wide(initial, lanes), b.multiply(wide(point, lanes), sums))

    def _pixel(
        self, place: Place, taps: Sequence[ir.Expression], channel: ir.Expression, mask: ir.Expression | None
    ) -> ir.Expression:
        """Return what a window at a place sees."""
        w, copied = self.windows, self.padded is not None
        spatial: list[ir.Expression] = []
        for d, tap in enumerate(taps):
            moved = b.add(b.multiply(place[2 + d], w.strides[d]), b.multiply(tap, w.dilations[d]))
            spatial.append(moved if copied else b.subtract(moved, w.begins[d]))
        own = mask if self.window.is_depthwise and channel.type.lanes > 1 else None
        loaded = ir.Load(self.padded or self.image, (place[0], *spatial, channel), own)
        return ir.Bitcast(loaded, "int32") if self.elements.width > 1 else b.cast(loaded, self.kind.dtype)


def _prefers(window: Window, target: Target) -> Preference | None:
    """Channels last, but for the image of a network's first convolution, which is copied anyway.

    Of known extents only where that saves something, or pairs of channels are multiplied; not where few channels leave,
    of a group or of all.
    """
    image: Channels = "first" if window.is_first else "last"
    if window.windows.rank != 2:
        return None
    if window.windows.is_open or (target.precision == "bf16" and window.groups == 1 and not window.is_first):
        return Preference(image, "last", gains=True)
    if not has_any_order(target) or window.groups > 1 or window.outputs <= lanes_of("float32", target) // 2:
        return None
    return Preference(image, "last", saves=saved(window, target))


def _applies(anchor: Anchor, target: Target) -> Answer:
    """Take any convolution of extents that vary, and those with channels last of others."""
    found = anchor.convolution
    if anchor.varies or (found is not None and found.window.stores_channels_last):
        return True
    return Reject("layout", "extents are known, and channels do not leave last")


def _rounds(anchor: Anchor, target: Target) -> bool | None:
    return None if anchor.convolution is None else rounds(anchor.convolution, target)


def pair_cycles(found: Convolution, pixels: int, weights: int, target: Target) -> float:
    """Return the cycles of one image in bfloat16: so many ``weights`` of each channel, all times so many ``pixels``."""
    window = found.window
    products = window.outputs * 2 * -(-window.inputs // 2) * weights
    rate = FETCHED_SHARE * target.machine.far.bandwidth
    return products * pixels / lanes_of("float32", target) / 2 + 2 * products / rate


def _cost(anchor: Anchor, target: Target) -> float | None:
    """Return the cycles of one image in bfloat16, if need be of copying it; other types are not compared."""
    found = anchor.convolution
    if found is None or anchor.varies or not rounds(found, target):
        return None
    moved = 0 if found.window.reads_channels_last else MOVED * prod(found.windows.source) * found.window.inputs
    return pair_cycles(found, prod(found.windows.target), prod(found.windows.kernel), target) + moved


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    parameters = of_family(anchor.parameters, ContractionParameters)
    return (anchor.stages and schedule_images(anchor.kernel, anchor.stages, target, parameters)) or OTHER_FORM


def _candidates(anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    """Register tiles of pixels and channels."""
    direct = None if anchor.stages is None or stage > 0 else direct_sums(anchor.kernel, anchor.stages, target)
    if direct is None or direct.found.window.is_depthwise:
        return []
    tiles = best_tiles(MOST_PIXELS, direct.found.window.outputs, direct.epilogue.anchor.value.type.dtype, target)
    return [ContractionParameters(rows=tile.rows, vectors=tile.vectors) for tile in tiles]


STRATEGY = Strategy(
    "direct_nhwc",
    CONVOLUTIONS,
    _build,
    _applies,
    _candidates,
    cost=_cost,
    prefers=_prefers,
    rounds=_rounds,
    varies=None,
)
"""Takes convolutions by constant weights in any layout; where channels are not last, copies or scatters."""
