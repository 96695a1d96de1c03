"""The tiles of a kernel that are worth measuring: the best by a model of cycles, then those near the best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol

from graft.core.machine.target import Target
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.parameters import Parameters, ScheduleParameters, of_family
from graft.core.schedule.primitives.packing import Pack
from graft.core.schedule.primitives.schedule_text import INPUT, print_schedule
from graft.core.schedule.primitives.step import Step
from graft.core.schedule.products.tiling import MAX_ROWS, MAX_VECTORS
from graft.core.schedule.templates.descent import Point, Space
from graft.core.schedule.templates.features import Features, features
from graft.core.schedule.templates.recurrent_nests import recurrent_nests
from graft.core.schedule.templates.rewrites import Rewrites, sum_in
from graft.core.schedule.templates.tiled_nests import tiled_nests
from graft.core.schedule.templates.tiled_sum import Tile, TiledSum

FIRST = 8
"""Tiles that are measured first ..."""
ALIKE = 2
"""... and how many of them have the same rows and vectors."""
OPEN, OPEN_MASKED, MASKS = 4, 2, 9
"""Vectors of a tile at the most where the last axis varies: it may be short.

Beside an image all are masked; as many more as make no more masks, one for each place of the window and each vector,
are worth it (3 for windows of 3 pixels: 0.6 to 1.2 of the time of 2, ten sizes, Zen 5; 4 without masks 0.5).
"""
ORDERS = (0, 1, 2)
UNROLLS = (1, 2, 4, 8)
UNROLL = 4
"""Terms that are written out of a sum of many."""


class Tiled(Protocol[Point]):
    """A kernel as nests, and its tiles."""

    def first(self) -> list[Point]:
        """Return all tiles, the likely best first."""
        ...

    def steps(self, tile: Point) -> Iterator[Step]:
        """Yield the schedule."""
        ...


class Cost(Protocol):
    """A model of cost that has learnt."""

    described: dict[Parameters, Features]
    """Keeps the numbers of the candidates that are returned."""

    def seconds(self, rows: Sequence[Features]) -> Sequence[float]:
        """Return what tiles are likely to take, in any unit."""
        ...


def schedules(
    kernel: Kernel,
    target: Target,
    stage: int,
    best: Parameters | None,
    cost: Cost | None = None,
    rewrites: Rewrites = MappingProxyType({}),
) -> list[ScheduleParameters]:
    """Return the schedules of a kernel that are worth measuring in a stage of tuning, the likely fastest first.

    Those of stage 0 are chosen by the model alone, later ones are near ``best``; there are none for a kernel that no
    template takes, nor near what is no point of it. A sum of products is tiled after the first of the ``rewrites`` that
    takes it.
    """
    found, own = sum_in(kernel, target, rewrites), of_family(best, ScheduleParameters)
    if found is None:
        nests = nests_in(kernel, target)
        if nests is None or (stage and own is None):
            return []
        return texts_of(nests, own) if stage else texts_of(nests)[:FIRST]
    if stage == 0:
        tiles = first(found, target, cost)
    else:
        every = points(found, target) if own is not None else ()
        tile = next((one for one in every if text_of(found, kernel, one) == own), None)
        tiles = [] if tile is None else near(found, tile, target)
    texts = dict[ScheduleParameters, Tile]()
    for one in tiles:
        texts.setdefault(text_of(found, kernel, one), one)
    if cost is not None:
        cost.described |= {text: features(found, tile, target.machine) for text, tile in texts.items()}
    return [one for one in texts if stage == 0 or one != own]


def nests_in(kernel: Kernel, target: Target) -> Tiled[Any] | None:
    """Return a kernel that is no sum of products as nests; None if it is of another form."""
    return tiled_nests(kernel, target) or recurrent_nests(kernel, target)


def texts_of(found: Tiled[Point], best: ScheduleParameters | None = None) -> list[ScheduleParameters]:
    """Return the schedules of all tiles, the likely best first, or of those near ``best`` if that is given."""
    texts = {tile: ScheduleParameters(print_schedule([*found.steps(tile)])) for tile in found.first()}
    if best is not None:
        own = next((tile for tile, text in texts.items() if text == best), None)
        texts = {} if own is None else {tile: texts[tile] for tile in Space.of(texts).near(own)}
    return [one for one in dict.fromkeys(texts.values()) if one.steps and one != best]


def text_of(found: TiledSum, kernel: Kernel, tile: Tile) -> ScheduleParameters:
    """Return the schedule of a tile, in which constants are called by their numbers: in other models by other names."""
    numbers = {buffer.name: f"{INPUT}{number}" for number, buffer in enumerate(kernel.inputs)}
    steps = found.steps(tile)
    return ScheduleParameters(found.text([_unnamed(one, numbers) for one in steps]))


def _unnamed(step: Step, numbers: Mapping[str, str]) -> Step:
    if not isinstance(step, Pack):
        return step
    return replace(step, buffer=numbers[step.buffer], packed=f"{numbers[step.buffer]}_packed")


def points(found: TiledSum, target: Target, unrolls: Sequence[int] = UNROLLS) -> Iterator[Tile]:
    """Yield all tiles that fit the registers, with some numbers of terms that are written out."""
    width = found.axes[found.last] or _most_where_open(found) * found.lanes
    others = [name for name, extent in found.axes.items() if name != found.last and extent != 1]
    for vectors in range(1, min(MAX_VECTORS, -(-width // found.lanes)) + 1):
        for rows in ["", *others]:
            most = min(MAX_ROWS, found.axes[rows] or MAX_ROWS) if rows else 1
            for count in range(2 if rows else 1, most + 1):
                if not found.fits(Tile(vectors, rows, count), target.machine):
                    break
                skews = (False, True) if found.skewed is not None and found.skewed[0] == rows else (False,)
                for order in ORDERS:
                    for unroll in unrolls:
                        yield from (Tile(vectors, rows, count, order, unroll, skew) for skew in skews)


def _most_where_open(found: TiledSum) -> int:
    *_, window = found.reduced.values()
    return OPEN if found.last not in found.masked else max(OPEN_MASKED, MASKS // max(1, window))


def first(found: TiledSum, target: Target, cost: Cost | None = None) -> list[Tile]:
    """Return the tiles to begin with, by a model of cost; of equal ones those that write more terms out."""
    machine = target.machine
    inner = list(found.reduced.values())[-1]
    unroll = min((one for one in UNROLLS if one >= inner > 0), default=UNROLL)
    tiles = list(points(found, target, [unroll]))
    if cost is None:
        alike = dict[tuple[int, str, int, bool], float]()  # cycles know neither orders nor terms that are written out
        for tile in tiles:
            shape = (tile.vectors, tile.rows, tile.count, tile.skew)
            alike[shape] = alike.get(shape) or found.cycles(tile, machine)
        seconds = [alike[tile.vectors, tile.rows, tile.count, tile.skew] for tile in tiles]
    else:
        seconds = [*cost.seconds([features(found, tile, machine) for tile in tiles])]
    by_cost = sorted(zip(seconds, tiles, strict=True), key=lambda one: (one[0], one[1].order, -one[1].vectors))
    ranked = [tile for _, tile in by_cost]
    chosen: list[Tile] = []
    for tile in ranked:
        if sum((one.vectors, one.rows, one.count) == (tile.vectors, tile.rows, tile.count) for one in chosen) < ALIKE:
            chosen.append(tile)
        if len(chosen) == FIRST:
            break
    return chosen


def near(found: TiledSum, tile: Tile, target: Target) -> list[Tile]:
    """Return the tiles that differ from one in one choice."""
    return list(Space.of(points(found, target)).near(tile))
