"""One template for every sum of products: register tiles of a result, as steps for its plain loops.

Iterations of the result's last axis become vectors, and those of another axis, the *rows*, stand side by side, so that
what one of them loads serves all. Products of matrices, convolutions of both layouts and of any rank, with constant or
computed factors, extents that are numbers or vary: only the names of the loops differ (`products.plain_kernel`). All
that may be chosen is a `Tile`; sums keep the order that the operator states.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from graft.core.machine.machine import Machine
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.flat_stages import stride
from graft.core.schedule.loops.inline import constant_shape
from graft.core.schedule.loops.loop_frames import TASKS
from graft.core.schedule.primitives.bounds import Clip, Guard, Hoist, Overlap, Skew, Unswitch
from graft.core.schedule.primitives.loop_kinds import Parallel, Unroll, Vectorize
from graft.core.schedule.primitives.loop_order import Reorder, Split
from graft.core.schedule.primitives.packing import Pack
from graft.core.schedule.primitives.plain_nest import Product
from graft.core.schedule.primitives.rewrite import Rewrite
from graft.core.schedule.primitives.rfactor import Subtotal
from graft.core.schedule.primitives.schedule_text import print_schedule, take
from graft.core.schedule.primitives.staging import CacheRead, ComputeAt
from graft.core.schedule.primitives.statements import multiply_add
from graft.core.schedule.primitives.step import Step
from graft.core.schedule.primitives.vectorize import lowered
from graft.core.schedule.products.convolution import convolution_of
from graft.core.schedule.products.epilogue import Epilogue
from graft.core.schedule.products.plain_kernel import names_of, plain_products, sum_of
from graft.core.schedule.products.tiling import lanes_of
from graft.core.tensor_ir.ir import Binary, Constant, Load, Variable
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import free_variables, loads

TYPICAL = 256
"""What an extent that varies counts as."""
MASKED = 2.0
"""What a vector of an image with a border costs, in vectors without."""
BORDER = 0.1
"""What such a vector costs besides, in the first and the last tile of a row, whose loads alone have masks."""
STORED = 3.0
"""Cycles to begin a sum and to store it."""
APART = 8.0
"""What a vector of an image's row costs where more rows than `STREAMS` are read and written side by side, which lie on
more than one page."""
STREAMS, PAGE = 32, 4096
PAIRS = 2
"""How far apart elements of a vector lie at the most where channels are many: of two vectors, half of the lanes."""
GATHERED = 8
"""The same where all of few channels are summed: by the samples of a waveform; frames further apart are copied."""
HIDDEN = 0.75
"""The share of loads of weights, one for each row of a tile, that products hide, where windows are `SMALL`."""
SMALL = 49
WIDER, TALL, TALLER = 1.15, 10, 1.08
"""What such a tile takes more with each vector beside the first, and with more rows than some (on a Zen 5, AVX-512)."""
SPARE = 4
"""Registers besides those of sums, of what a step loads, and of weights that stay."""
HEAVY = 4
"""Registers that a vector of a long epilogue takes: as many as fit are side by side."""
PARALLEL = 3
"""Loops that threads share, at the most."""
BORDER_COPY = "border"
"""How the names of loops end in tiles that lie beside an image."""
ENOUGH = 8
"""Iterations that suffice where more would cost whole tiles."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What may be chosen: ``vectors`` of the last axis by ``count`` iterations of the axis ``rows``.

    The outer loops are in one of three orders: behind all others those over tiles of vectors, then of rows (0), or the
    other way round (1), or with the tiles of vectors outermost (2). Of the innermost sum ``unroll`` terms are written
    out. With ``skew`` what neighbouring rows share of a window is loaded once; with ``near`` a tile of vectors is
    copied first, so that rows of an image that lie apart lie side by side; after ``span`` terms, if that is not 0, a
    sum begins anew.
    """

    vectors: int
    rows: str = ""
    count: int = 1
    order: int = 0
    unroll: int = 1
    skew: bool = False
    near: bool = False
    span: int = 0


@dataclass(frozen=True, slots=True)
class Factor:
    """What one factor of a sum reads: the axes that it moves with, and the constants that may be packed."""

    axes: frozenset[str]
    constants: tuple[tuple[str, str, int], ...]
    """Name of a buffer, name of an axis that is an index of it, and the number of that index."""
    alike: int = 1
    """How many neighbouring output channels read the same of an image: those of a group."""

    def loads(self, axis: str, count: int) -> int:
        """Return how many different elements so many neighbours along an axis read."""
        is_one = axis not in self.axes or (axis == "c" and self.alike % count == 0)
        return 1 if is_one else count


@dataclass(frozen=True, slots=True)
class TiledSum:
    """A sum taken apart: extents of its axes and of those summed over, in order, by name; 0 stands for varying ones."""

    epilogue: Epilogue
    axes: dict[str, int]
    reduced: dict[str, int]
    factors: tuple[Factor, Factor]
    lanes: int
    masked: frozenset[str]
    """The axes along which a factor is zero beside its image."""
    skewed: tuple[str, int, int] | None
    """Of windows for few channels: the axis along which tiles of them slide, the stride and the dilation."""
    overlaps: bool = False
    """Whether the last tile of vectors ends where the last axis does, on a machine that switches no lanes off."""
    registers: int = 0
    """Those of the machine."""
    apart: int = 1
    """How far elements of a vector lie apart in windows of many channels: so many vectors are loaded for one."""
    multiply: Product = multiply_add
    """What adds a product to a sum."""
    rewrite: str = ""
    """The name of the rewrite that made the kernel what it is, "" if none did."""

    @property
    def last(self) -> str:
        """The axis of the vectors."""
        return last_of(self.axes)

    def scheduled(self, kernel: Kernel, tile: Tile) -> Scheduled:
        """Return the kernel after the steps for a tile, which are known to be legal."""
        steps = tuple(self.steps(tile))
        buffers = {buffer.name: buffer for buffer in kernel.constants}
        packs = {buffers[step.buffer]: step for step in steps if isinstance(step, Pack)}
        plain = partial(plain_products, kernel, self.epilogue, self.multiply)
        return Scheduled(
            lambda: replace(lowered(take(plain(), steps)), origin=kernel.origin),
            {buffer: step.contents(kernel.constants[buffer]) for buffer, step in packs.items()},
            knobs={"vectors": tile.vectors, **({tile.rows: tile.count} if tile.rows else {}), "order": tile.order},
            steps=self.text(steps),
        )

    def text(self, steps: Sequence[Step]) -> str:
        """Return the text of a schedule of the kernel as it was before it was rewritten."""
        return print_schedule([*([Rewrite(self.rewrite)] if self.rewrite else []), *steps])

    def cycles(self, tile: Tile, machine: Machine) -> float:
        """Return about how many cycles the sums take: those of a step of a tile, times the steps of all tiles.

        A step is limited by its multiply-adds, its loads, or the time until a sum is there again.
        """
        costs, extents = machine.costs, {name: extent or TYPICAL for name, extent in self.axes.items()}
        tiles = -(-extents.pop(self.last) // (tile.vectors * self.lanes))
        if tile.rows:
            tiles *= -(-extents.pop(tile.rows) // tile.count)
        tiles *= math.prod(extents.values())
        steps = math.prod(extent or TYPICAL for extent in self.reduced.values())
        loaded = sum(self.loads_of(factor, tile) + self._picked(factor, tile) for factor in self.factors)
        products = tile.vectors * tile.count / costs.fused
        step = max(products, loaded / costs.loads, costs.latency) + costs.load * loaded
        stored, apart = STORED * tile.vectors * tile.count, APART * self._rows_apart(tile, machine)
        return tiles * (steps * step + stored + apart) * self._slower(tile)

    @property
    def _is_small_window(self) -> bool:
        return 0 < math.prod(self.reduced.values()) <= SMALL

    def _slower(self, tile: Tile) -> float:
        """Return by what wide and tall tiles of windows that share rows are slower than their loads and products."""
        if not tile.skew or self.overlaps or self.last == "c" or not self._is_small_window:
            return 1.0
        is_tall = tile.count > (2 * TALL if self.axes[tile.rows] == tile.count else TALL)
        return float(WIDER ** (tile.vectors - 1) * (TALLER if is_tall else 1))

    def _rows_apart(self, tile: Tile, machine: Machine) -> int:
        """Return the vectors of an image's rows that a tile reads, if these are too many to be fetched ahead."""
        if not tile.skew or self.skewed is None or self.skewed[2] > 1 or self.last == "c":
            return 0  # with dilations, tall tiles were measured faster as often as slower
        axis, stride, _ = self.skewed
        rows = (tile.count - 1) * stride + self.reduced[f"k{axis}"]
        size = (self.axes[self.last] or TYPICAL) * machine.vector_bytes // self.lanes
        return rows * tile.vectors if rows + tile.count > STREAMS and rows * size > PAGE else 0

    def loads_of(self, factor: Factor, tile: Tile) -> float:
        """Return how many loads one step of a tile needs for a factor."""
        count = float(factor.loads(self.last, tile.vectors) * factor.loads(tile.rows, tile.count))
        if tile.skew and self.skewed:
            window = self.reduced[f"k{tile.rows}"]
            rows = ((tile.count - 1) * self.skewed[1] + window) / window
            # Rows are at different places of the window at a time: where no registers are left for all weights, with
            # AVX-512 tiles wait for them, but not with AVX2 (measured on a Zen 5).
            kept = math.prod(self.reduced.values()) + (tile.count + 1) * tile.vectors + SPARE <= self.registers
            hidden = HIDDEN if self._is_small_window else 0.0
            again = 1 if self.overlaps or kept else tile.count - hidden * (tile.count - 1)
            count = tile.vectors * rows if tile.rows in factor.axes else count * again
        if self.last in factor.axes and not factor.constants:
            count *= self.apart
        if self.last not in self.masked & factor.axes:
            return count
        columns = -(-(self.axes[self.last] or TYPICAL) // (tile.vectors * self.lanes))
        return count * (MASKED + (BORDER * min(1, 2 / columns) if tile.skew else 0))

    def _picked(self, factor: Factor, tile: Tile) -> float:
        """Return how often one step of a tile picks elements that lie apart out of two vectors."""
        is_apart = self.last in factor.axes and not factor.constants
        return self.loads_of(factor, tile) * (self.apart - 1) / self.apart if is_apart else 0.0

    def fits(self, tile: Tile, machine: Machine) -> bool:
        """Whether the sums of a tile stay in registers, beside what a step loads and, where it is a vector, a mask."""
        mask = int(self.reads_masked(tile) and not machine.masks)
        return tile.vectors * tile.count + tile.vectors + 1 + mask <= max(machine.registers, 3 + mask)

    def reads_masked(self, tile: Tile) -> bool:
        """Whether vectors of a factor are read in part: beside an image, or at the end of what is in no panels."""
        columns, extent = tile.vectors * self.lanes, self.axes[self.last]
        ends_within = (extent == 0 or extent % columns > 0) and not self._overlaps(tile)
        beside = any(self.last in self.masked & factor.axes for factor in self.factors)
        return beside or (ends_within and not self._has_panels(self.last, columns))

    def _overlaps(self, tile: Tile) -> bool:
        """Whether tiles of vectors share elements of the last axis: not where they would begin within a panel."""
        columns, extent = tile.vectors * self.lanes, self.axes[self.last]
        divides = extent > 0 and (extent % columns == 0 or extent < columns)
        return self.overlaps and not divides and not self._has_panels(self.last, columns)

    def _repeats(self, tile: Tile) -> bool:
        """Whether tiles of rows, where each has all of its rows, share some."""
        return self.axes[tile.rows] % tile.count > 0 or not self.axes[tile.rows]

    def _tests_columns(self, tile: Tile) -> bool:
        """Whether it is asked of each row that windows share whether the image has it: where vectors are asked, too.

        Without, there would be four bodies: tiles and vectors may lie inside or not.
        """
        return tile.skew and tile.rows in self.masked and self.last in self.masked

    def steps(self, tile: Tile) -> Iterator[Step]:
        """Yield the schedule."""
        last, rows, columns = self.last, tile.rows, tile.vectors * self.lanes
        heavy = self.epilogue.is_heavy
        outer = self.outer(tile)
        shared = list(self._shared(outer, tile))
        yield (Overlap if self._overlaps(tile) else Split)(last, columns, f"{last}0", last)
        is_cut = bool(rows) and self.axes[rows] != tile.count
        if is_cut:
            # Tiles that overlap would be computed by two threads, or begin within a panel.
            apart = f"{rows}0" in shared or self._has_panels(rows, tile.count)
            cut = Split if self._repeats(tile) and apart else Overlap
            yield cut(rows, tile.count, f"{rows}0", rows)
        yield Reorder((*outer, *([rows] if rows else []), last))
        yield from (ComputeAt(name, outer[-1]) for name in ([*(["sums"] if heavy else []), "total"]))
        if tile.near:
            yield from self._copied()
        border = Unswitch(f"{rows}0", BORDER_COPY)
        copies = ("", f".{border.rest}") if is_cut and self._has_own_borders(tile) else ("",)
        if len(copies) > 1:
            yield border
        for copy in copies:
            yield from self._body(tile, copy)
        if not is_cut and rows in self.masked and last not in self.masked:
            yield Guard("total")
        packed = self._packed(tile).items()
        yield from (Pack(name, number, width, f"{name}_packed") for name, (_, number, width) in packed)
        inside = copies if outer[-1] == f"{last}0" else ("",)
        yield from (Unswitch(f"{last}0{copy}", "last") for copy in inside)
        if is_cut and len(copies) == 1 and not self._tests_columns(tile):
            yield border
        yield from map(Parallel, shared)

    def _copied(self) -> Iterator[Step]:
        """Yield the steps that copy what a tile of vectors reads."""
        (load,) = (one for one in loads(self.epilogue.anchor.value) if self._along in free_variables(one))
        lane, vector = f"near.{len(load.indices) - 1}", "near.v"
        yield CacheRead(load.buffer.name, f"{self.last}0", "scratch", "near")
        yield Split(lane, self.lanes, vector, lane)
        yield Vectorize(lane)
        yield Unroll(vector)

    @property
    def _along(self) -> Variable:
        """The variable of the last axis."""
        return self.epilogue.anchor.axes[list(self.axes).index(self.last)]

    def _has_own_borders(self, tile: Tile) -> bool:
        """Whether tiles beside an image have an order of their own: each pixel's bounds of the window, no conditions.

        All conditions of a tile that ends where a row does, at once, would take the registers of its sums.
        """
        *_, inner = self.reduced
        is_masked = tile.rows in self.masked and self.last not in self.masked
        return is_masked and not tile.skew and inner == f"k{tile.rows}" and self._repeats(tile)

    def _body(self, tile: Tile, copy: str) -> Iterator[Step]:
        """Yield the steps inside a tile; ``copy`` is how the names of loops end, of tiles beside an image."""
        last, rows, heavy = self.last, tile.rows, self.epilogue.is_heavy
        nests = [f"{nest}{copy}" for nest in (".zero", ".sum", "", *([".copy"] if heavy else []))]
        yield from (Split(f"{last}{nest}", self.lanes, f"v{nest}", f"{last}{nest}") for nest in nests)
        yield from self._border_sums(tile, copy) if copy else self._sums(tile)
        yield from (Vectorize(f"{last}{nest}") for nest in nests)
        side = [f"{axis}{nest}" for nest in nests for axis in ([rows] if rows else []) + ["v"]]
        looped = ([f"{rows}{copy}"] if heavy else []) + ([f"{rows}.sum"] if tile.skew else [])
        looped += [f"v{copy}"] if heavy and HEAVY * tile.vectors > self.registers else []
        written = [one for one in side if one not in looped]
        yield from map(Unroll, written)

    def outer(self, tile: Tile) -> list[str]:
        """Return the outer loops in order."""
        others = [name for name in self.axes if name not in (self.last, tile.rows)]
        vectors = f"{self.last}0"
        rows = [f"{tile.rows}0"] if tile.rows and self.axes[tile.rows] != tile.count else []
        orders = ([*others, vectors, *rows], [*others, *rows, vectors], [vectors, *others, *rows])
        return orders[tile.order]

    def _shared(self, outer: Sequence[str], tile: Tile) -> Iterator[str]:
        """Yield the loops that threads share: the outermost ones, until there are enough iterations.

        Tiles of rows may rather overlap, if there are `ENOUGH` without them or what is shared already varies.
        """
        columns, rows = f"{self.last}0", f"{tile.rows}0"
        count = {columns: tile.vectors * self.lanes, rows: tile.count}
        iterations, many, varies = 1, 0, False
        for name in outer:
            extent = self.axes.get(name, self.axes.get(name[:-1], 0))
            extent = -(-extent // count.get(name, 1))
            if extent == 1:
                continue
            if iterations >= TASKS or many == PARALLEL or (name == columns and self._overlaps(tile)):
                return
            if name == rows and self._repeats(tile) and (varies or iterations >= ENOUGH):
                return
            yield name
            iterations, many, varies = iterations * max(extent, 1), many + 1, varies or extent == 0

    def _sums(self, tile: Tile) -> Iterator[Step]:
        """Yield the order of the loops that sum."""
        *before, inner = self.reduced
        rows, last, names = ([f"{tile.rows}.sum"] if tile.rows else []), f"{self.last}.sum", list(self.axes)
        single = [f"{name}.sum" for name in names[names.index(self.last) + 1 :]]
        if tile.skew and self.skewed:
            axis, step, dilation = self.skewed
            number = list(self.reduced).index(f"k{axis}")
            before, inside = list(self.reduced)[:number], list(self.reduced)[number:]
            yield Reorder((*single, *before, "v.sum", *rows, *inside, last))
            yield Skew(f"{tile.rows}.sum", step, f"k{axis}", dilation, "column")
            if self._tests_columns(tile):
                yield Hoist(f"k{axis}")
        elif tile.span:
            yield Split(inner, tile.span, "span", inner)
            yield Reorder((*single, *before, "span", inner, *rows, "v.sum", last))
            yield from self._in_spans(tile)
        else:
            yield Reorder((*single, *before, inner, *rows, "v.sum", last))
        if self.masked:
            yield from (Clip(name) for name in before if name.startswith("k"))
        if tile.skew and self.skewed:
            yield from map(Unroll, ("column", *inside))
        elif tile.span:
            is_whole = self.reduced[inner] % tile.span == 0
            yield from () if is_whole else (Clip(inner),)
            yield Split(inner, tile.unroll, inner, f"{inner}.part", () if is_whole else (f"{inner}.left",))
            yield Unroll(f"{inner}.part")
        elif 1 < self.reduced[inner] <= tile.unroll:
            yield Unroll(inner)
        elif tile.unroll > 1 and self.reduced[inner] > tile.unroll and self.reduced[inner] % tile.unroll == 0:
            yield Split(inner, tile.unroll, inner, f"{inner}.part")
            yield Unroll(f"{inner}.part")

    def _in_spans(self, tile: Tile) -> Iterator[Step]:
        """Yield the steps that let a sum begin anew in each span of its terms."""
        yield Subtotal("total", "span", "register", "subtotal")
        for way in ("subtotal.in", "subtotal.out"):
            lane, row = (f"{way}.{[*self.axes].index(name)}" for name in (self.last, tile.rows or self.last))
            yield Split(lane, self.lanes, f"{way}.v", lane)
            yield Vectorize(lane)
            yield from map(Unroll, ([row] if tile.rows else []) + [f"{way}.v"])

    def _border_sums(self, tile: Tile, copy: str) -> Iterator[Step]:
        """Yield the order of the loops that sum in tiles beside an image."""
        *before, inner = (f"{name}{copy}" for name in self.reduced)
        names = list(self.axes)
        single = [f"{name}.sum{copy}" for name in names[names.index(self.last) + 1 :]]
        yield Reorder((*single, *before, f"{tile.rows}.sum{copy}", inner, f"v.sum{copy}", f"{self.last}.sum{copy}"))
        yield from (Clip(name) for name in (*before, inner) if name.startswith("k"))

    def _has_panels(self, axis: str, width: int) -> bool:
        """Whether tiles of so many iterations of an axis read constants that are laid out for them."""
        return width > 1 and any(own == axis for factor in self.factors for _, own, _ in factor.constants)

    def _packed(self, tile: Tile) -> dict[str, tuple[str, int, int]]:
        """Return the constants that are laid out in the order in which tiles read them: axis, its number, width."""
        found = dict[str, tuple[str, int, int]]()
        for axis, width in ((self.last, tile.vectors * self.lanes), (tile.rows, tile.count)):
            for name, own, number in (one for factor in self.factors for one in factor.constants):
                if own == axis and name not in found and width > 1:
                    found[name] = axis, number, width
        return found


def tiled_sum(kernel: Kernel, target: Target, multiply: Product = multiply_add) -> TiledSum | None:
    """Return the sum of products, which ``multiply`` adds, that a kernel is; None for others."""
    epilogue = None if target.machine.is_device else sum_of(kernel)
    if epilogue is None:
        return None
    anchor = epilogue.anchor
    total = anchor.value.type
    if not anchor.axes or total.is_custom or not isinstance(anchor.value, Binary):
        return None
    assert anchor.reduction is not None, "a sum of products is a sum"
    terms = [axis.variable for axis in anchor.reduction.axes]
    axes, reduced = names_of(anchor)
    names = dict(zip([*anchor.axes, *terms], [*axes, *reduced], strict=True))
    extents = [*anchor.buffer.shape, *(axis.extent for axis in anchor.reduction.axes)]
    known = {n: int(e.value) if isinstance(e, Constant) else 0 for n, e in zip(names.values(), extents, strict=True)}
    read = [list(loads(side)) for side in (anchor.value.left, anchor.value.right)]
    masks = [one.mask for side in read for one in side if one.mask is not None]
    found = convolution_of(anchor)
    slides = found is not None and found.has_few_channels
    most = GATHERED if found is not None and found.window.is_first else PAIRS
    if not (total.is_float or slides or multiply is not multiply_add):
        return None
    last = last_of({name: known[name] for name in axes})
    along = anchor.axes[axes.index(last)]
    if not all(_is_near(one, along, kernel, None if slides else most) for side in read for one in side):
        return None
    left, right = (_factor(side, names, kernel) for side in read)
    if found is not None and found.window.groups > 1:
        image = left if found.window.image == "left" else right
        left, right = (replace(one, alike=found.window.outputs) if one is image else one for one in (left, right))
    skewed, steps = None, 1
    if found is not None and not slides and last in "zyx":
        steps = found.windows.strides["zyx"[-found.windows.rank :].index(last)]
    if found is not None and slides:
        space = "zyx"[-found.windows.rank :]
        across = (space if last == "c" else space[: space.index(last)] if last in space else space[:-1])[-1:]
        if across and known[f"k{across}"] > 1:
            number = space.index(across)
            skewed = (across, found.windows.strides[number], found.windows.dilations[number])
    return TiledSum(
        epilogue,
        {name: known[name] for name in axes},
        {name: known[name] for name in reduced},
        (left, right),
        lanes_of(total.dtype, target),
        frozenset(names[one] for one in free_variables(*masks) if one in names),
        skewed,
        not target.machine.masks,
        target.machine.registers,
        steps,
        multiply,
    )


def last_of(axes: Mapping[str, int]) -> str:
    """Return the last axis, of an image the last of more than one pixel: neighbours along it lie side by side."""
    *_, last = axes
    return next((name for name in "xyz" if axes.get(name, 1) != 1), last) if last == "x" else last


def _factor(read: Sequence[Load], names: dict[Variable, str], kernel: Kernel) -> Factor:
    moved = {names[one] for one in free_variables(*read) if one in names}
    constants = tuple(
        (load.buffer.name, names[index], number)
        for load in read
        if load.buffer in kernel.constants and constant_shape(load.buffer) is not None
        for number, index in enumerate(load.indices)
        if isinstance(index, Variable) and index in names
    )
    return Factor(frozenset(moved), constants)


def _is_near(load: Load, axis: Variable, kernel: Kernel, most: int | None) -> bool:
    """Whether what neighbours in a vector load lies at most so far apart, None for any, is one, or can be packed."""
    moving = [number for number, index in enumerate(load.indices) if axis in free_variables(index)]
    if not moving:
        return True
    if load.buffer in kernel.constants and len(moving) == 1 and load.indices[moving[0]] is axis:
        return True
    step = stride(load.indices[moving[0]], axis, Simplifier())
    is_last = len(moving) == 1 and all(extent == b.index(1) for extent in load.buffer.shape[moving[0] + 1 :])
    return is_last and step is not None and 1 <= step <= (most or step)
