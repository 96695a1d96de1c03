"""What the loops of a tile are like, in numbers: what a model of its cost may learn from."""

from __future__ import annotations

import math
from collections.abc import Collection

from graft.core.machine.machine import Machine
from graft.core.schedule.templates.tiled_sum import TYPICAL, Factor, Tile, TiledSum

Features = dict[str, float]
CYCLES = "cycles"
"""What the model of cycles says."""


def features(found: TiledSum, tile: Tile, machine: Machine) -> Features:
    """Return the numbers of a tile by name; counts, bytes and cycles as powers of two, per multiply-add of a vector."""
    nest = _Nest(found, tile, machine)
    axes, reduced, costs = nest.axes, nest.reduced, machine.costs
    sums = tile.vectors * tile.count
    loads = [found.loads_of(factor, tile) for factor in found.factors]
    terms = math.prod(axes.values()) * math.prod(reduced.values())
    columns, rows = nest.trips[f"{found.last}0"], nest.trips.get(f"{tile.rows}0", 1)
    cycles = found.cycles(tile, machine)
    first, second = (machine.cache(level).size for level in (1, 2))
    inner = list(reduced.values())[-1]
    return {
        CYCLES: cycles,
        "cycles of a term": _log(cycles / terms),
        "sums": sums,
        "vectors": tile.vectors,
        "rows": tile.count,
        "order": tile.order,
        "unrolled": tile.unroll,
        "shares rows": tile.skew,
        "is masked": found.reads_masked(tile),
        "axis of rows": list(axes).index(tile.rows) - len(axes) if tile.rows else 0,
        "useful columns": axes[found.last] / (columns * tile.vectors * found.lanes),
        "useful rows": axes[tile.rows] / (rows * tile.count) if tile.rows else 1,
        "terms": _log(terms),
        "terms of a sum": _log(math.prod(reduced.values())),
        "terms of the innermost loop": _log(inner),
        "tiles of columns": _log(columns),
        "tiles of rows": _log(rows),
        "divides the last axis": _log(axes[found.last] & -axes[found.last]),
        "loads of the first factor": loads[0] / sums,
        "loads of the second factor": loads[1] / sums,
        "loads beside products": sum(loads) / costs.loads / (sums / costs.fused),
        "bytes of a tile": _log(nest.bytes_inside(()) / first),
        "bytes of a row of tiles": _log(nest.bytes_inside(nest.inside(-1)) / first),
        "traffic of the first cache": _log(nest.traffic(first) / terms * found.lanes),
        "traffic of the second cache": _log(nest.traffic(second) / terms * found.lanes),
    }


class _Nest:
    """The loops around a tile, the outermost first."""

    def __init__(self, found: TiledSum, tile: Tile, machine: Machine) -> None:
        self.found, self.tile = found, tile
        self.axes = {name: extent or TYPICAL for name, extent in found.axes.items()}
        self.reduced = {name: extent or TYPICAL for name, extent in found.reduced.items()}
        sizes = {found.last: tile.vectors * found.lanes, **({tile.rows: tile.count} if tile.rows else {})}
        self.sizes = sizes
        self.trips = {f"{axis}0": -(-self.axes[axis] // size) for axis, size in sizes.items()}
        self.outer = found.outer(tile)
        self.element = (machine.vector_bytes or 4) // found.lanes

    def inside(self, begin: int) -> tuple[str, ...]:
        """Return the axes of the loops from a number on."""
        return tuple(self._axis(name) for name in self.outer[begin:])

    def _axis(self, loop: str) -> str:
        return loop[:-1] if loop in self.trips else loop

    def _bytes(self, factor: Factor, whole: Collection[str]) -> int:
        """Return what is read of a factor while the loops of some axes run from begin to end."""
        extents = {**dict.fromkeys(self.axes, 1), **self.sizes, **self.reduced}
        extents |= {axis: self.axes[axis] for axis in whole}
        return math.prod(extents[axis] for axis in factor.axes) * self.element

    def bytes_inside(self, whole: Collection[str]) -> int:
        """Return the same of both factors."""
        return sum(self._bytes(factor, whole) for factor in self.found.factors)

    def traffic(self, cache: int) -> float:
        """Return the bytes that come into a cache of so many, half of which keeps what loops read again."""
        total = 0
        for factor in self.found.factors:
            moved = self._bytes(factor, self.inside(0))
            for number, name in enumerate(self.outer):
                is_lost = self.bytes_inside(self.inside(number + 1)) > cache / 2
                if self._axis(name) not in factor.axes and is_lost:
                    moved *= self.trips.get(name, self.axes[self._axis(name)])
            total += moved
        return total


def _log(value: float) -> float:
    return math.log2(max(value, 1e-9))
