"""Tiles of products as data: what a block, a thread or warp and a stage have, what that costs, and the choice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import log2
from typing import Literal

from graft.core.machine.machine import Machine
from graft.core.schedule.parameters import BlockTileParameters, Unit
from graft.plugins.cuda.machines import SPEEDS, WARP, WARPGROUP

USUAL = 1024
"""Rows or columns where their number varies."""
RESIDENT = 2048
"""Threads of a multiprocessor."""
REGISTERS = 65536
BUSY = 320
"""Threads of a multiprocessor that keep its arithmetic busy (an H200: 256 of them reach 0.8 of what 384 do)."""
WORTH = 1.2
"""Terms are split where the model says that it takes so many times less."""
WAVE = 400.0
"""Cycles that a block takes to begin and to end."""
L2_BYTES = 48.0
"""Bytes per cycle that a multiprocessor gets from the second-level cache."""
ISSUED = 8.0
"""Instructions of a thread for 16 bytes that it copies past its registers: where from, where to, the copy itself."""
COMPUTED = 24.0
"""Instructions of a thread for an element of a window that it computes: where it lies, whether it exists, rounding."""
LANES = 128
"""Threads of which a multiprocessor begins an instruction at one time."""
LINE = 128
"""Bytes of a swizzled line of a factor for wgmma: the terms of a stage."""


Side = Literal["", "rows", "columns"]
"""A factor of a product, or none."""


@dataclass(frozen=True, slots=True)
class BlockTiling:
    """A block has ``rows x columns`` sums and ``terms`` of each in a stage, of which ``stages`` are in memory.

    Without an ``instruction`` a thread has ``own_rows x own_columns`` sums, with one a warp has, or a warpgroup. The
    factor ``bulk`` comes by bulk copies.
    """

    rows: int
    columns: int
    terms: int
    own_rows: int
    own_columns: int
    stages: int = 1
    splits: int = 1
    instruction: str = ""
    bulk: Side = ""

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.rows // self.own_rows * (self.columns // self.own_columns) * self.unit

    @property
    def is_of_group(self) -> bool:
        """Whether the instruction is a warpgroup's."""
        return self.instruction.startswith("wgmma")

    @property
    def unit_name(self) -> Unit:
        """What has its own part of the sums."""
        return "warpgroup" if self.is_of_group else "warp" if self.instruction else "thread"

    @property
    def unit(self) -> int:
        """The threads that have their sums together."""
        return (WARPGROUP if self.is_of_group else WARP) if self.instruction else 1

    @property
    def knobs(self) -> dict[str, int | str]:
        """What reports show."""
        tile, own = f"{self.rows}x{self.columns}x{self.terms}", f"{self.own_rows}x{self.own_columns}"
        shown: dict[str, int | str] = {"block": tile, self.unit_name: own}
        shown |= {"stages": self.stages} if self.stages > 1 else {}
        shown |= {"splits": self.splits} if self.splits > 1 else {}
        shown |= {"bulk": self.bulk} if self.bulk else {}
        return shown | ({"instruction": self.instruction} if self.instruction else {})


def shared_bytes(tiles: BlockTiling, size: int) -> int:
    """Return the bytes of shared memory of a block, for elements of ``size`` bytes."""
    if tiles.instruction:
        pad = 0 if tiles.is_of_group else 16
        return tiles.stages * (tiles.rows + tiles.columns) * (tiles.terms * size + pad)
    return tiles.stages * tiles.terms * (tiles.rows + tiles.columns + 8) * size


Tiles = tuple[tuple[int, int, int, int], ...]
OF_GROUPS: Tiles = (
    (128, 256, 64, 256), (128, 128, 64, 128), (256, 128, 128, 128), (128, 64, 64, 64), (64, 256, 64, 256),
    (64, 128, 64, 128), (64, 64, 64, 64),
)  # fmt: skip
"""Rows and columns of a block, and of a warpgroup of it."""
OF_WARPS: Tiles = (
    (128, 128, 64, 32), (128, 64, 32, 32), (64, 128, 32, 32), (64, 64, 32, 16), (32, 64, 16, 32), (64, 32, 16, 32),
    (16, 64, 16, 16), (16, 32, 16, 8),
)  # fmt: skip
LARGEST: Tiles = ((128, 128, 64, 64), (256, 128, 64, 64), (128, 256, 64, 64), (64, 256, 64, 64), (256, 64, 64, 64))
"""Of warps, too: they leave no room for blocks that hide each other's copies."""
OF_THREADS: Tiles = (
    (128, 128, 8, 8), (128, 64, 8, 4), (64, 128, 8, 8), (64, 64, 4, 4), (32, 64, 4, 4), (64, 32, 4, 4), (32, 32, 2, 4),
    (16, 64, 2, 4), (8, 64, 1, 4), (16, 32, 1, 4), (1, 128, 1, 4),
)  # fmt: skip


def candidates(instruction: str, size: int, is_deep: bool) -> Iterator[BlockTiling]:
    """Yield the tiles that are worth a look; ``is_deep`` says that copies may be under way for several stages."""
    tables: list[tuple[Tiles, int, tuple[int, ...]]]
    if instruction.startswith("wgmma"):
        tables = [(OF_GROUPS, LINE // size, (4, 3, 2))]
    elif instruction:
        tables = [(LARGEST, 64 // size, (4, 3, 2)), (OF_WARPS, 64 // size, (3, 2))]
    else:
        tables = [(OF_THREADS, 16, (3, 2))]
    for table, terms, deep in tables:
        for stages, (rows, columns, own_rows, own_columns) in product(deep if is_deep else (1,), table):
            yield BlockTiling(rows, columns, terms, own_rows, own_columns, stages, 1, instruction)


def _issued(tiles: BlockTiling, line: int) -> float:
    """Return the cycles in which a block's threads begin copies of lines of so many bytes, and multiply nothing."""
    lines = {"": tiles.rows + tiles.columns, "rows": tiles.columns, "columns": tiles.rows}[tiles.bulk]
    return lines * line / 16 * ISSUED / WARPGROUP


def _reuse(tiles: BlockTiling, least: float) -> float:
    """Return which part of the arithmetic's rate a thread or warp reaches that reads its factors from shared memory."""
    own = tiles.own_rows * tiles.own_columns / (tiles.own_rows + tiles.own_columns)
    return min(1.0, own / (4.0 * least / 1.6)) if least > 1 else min(1.0, own / 3.2)


def _registers(tiles: BlockTiling) -> int:
    sums = tiles.own_rows * tiles.own_columns // tiles.unit
    if tiles.is_of_group:
        return 40 + sums
    return 40 + sums + 2 * (tiles.own_rows + tiles.own_columns) // (4 if tiles.instruction else 1)


@dataclass(frozen=True, slots=True)
class Problem:
    """A product to find tiles for: its extents, and the bytes of a factor in shared memory.

    ``ways`` are the instructions that there are, and whether copies for several stages may be under way with each.
    """

    rows: int
    columns: int
    terms: int
    batch: int
    size: int
    ways: Mapping[str, bool]
    bulk: Side = ""
    """The factor that bulk copies may bring to a warpgroup's stages."""
    computed: Side = ""
    """The factor that threads bring to tensor instructions element by element."""

    def cycles(self, tiles: BlockTiling, machine: Machine) -> float:
        """Return a model of the cycles with some tiles: arithmetic or the cache, in waves of blocks.

        Terms are split only where that is worth it.
        """
        count = -(-self.rows // tiles.rows) * -(-self.columns // tiles.columns) * self.batch * tiles.splits
        depth = -(-self.terms // tiles.splits)
        work = tiles.rows * tiles.columns * depth
        speed = SPEEDS[machine.cpu]
        if tiles.is_of_group:
            arithmetic = work / (speed.best * 2 / self.size * min(1.0, tiles.own_columns / 128))
        elif tiles.instruction:
            arithmetic = work / (speed.tensor * 2 / self.size * _reuse(tiles, 16.0))
        else:
            arithmetic = work / (machine.costs.fused * _reuse(tiles, 1.0))
        loaded = (tiles.rows + tiles.columns) * depth * self.size / L2_BYTES
        memory = machine.memory("shared")
        beside = max(1, min(
            (memory.bytes if memory else 0) // max(1, shared_bytes(tiles, self.size)), RESIDENT // tiles.threads,
            REGISTERS // (tiles.threads * min(255, _registers(tiles))),
        ))  # fmt: skip
        waves = -(-count // (speed.multiprocessors * beside))
        together = min(beside, -(-count // speed.multiprocessors))
        arithmetic /= min(1.0, together * tiles.threads / BUSY)
        hidden = 1.0 if tiles.stages > 1 else 0.6 + 0.4 / together
        each = max(arithmetic, loaded) if tiles.stages > 1 else arithmetic + hidden * loaded
        if tiles.instruction and tiles.stages > 1:  # what one stage alone has under way comes after it is needed
            each += loaded / (together * (tiles.stages - 1) ** 2)
        each += _issued(tiles, depth * self.size) if tiles.is_of_group else 0.0
        each += {"": 0, "rows": tiles.rows, "columns": tiles.columns}[self.computed] * depth * COMPUTED / LANES
        whole = waves * (each * together + WAVE)
        if tiles.splits == 1:
            return whole
        sums = self.rows * self.columns * self.batch * tiles.splits
        return WORTH * (whole + 2.0 * sums * 4 / machine.far.bandwidth)


def ranked(problem: Problem, machine: Machine) -> list[BlockTiling]:
    """Return the tiles that fit a machine, those that cost least first."""
    memory, terms = machine.memory("shared"), problem.terms
    most = memory.bytes if memory else 0
    found: dict[BlockTiling, tuple[float, int]] = {}
    ways = problem.ways.items()
    every = (tiles for instruction, is_deep in ways for tiles in candidates(instruction, problem.size, is_deep))
    for number, tiles in enumerate(every):
        for splits, bulk in product((1, 2, 4, 8, 16, 32), ("", problem.bulk)):
            one = replace(tiles, splits=splits, bulk=bulk if tiles.is_of_group and tiles.stages > 1 else "")
            enough = splits == 1 or terms // splits >= 8 * tiles.terms
            enough = enough and (tiles.stages == 1 or terms % (splits * tiles.terms) == 0)
            if shared_bytes(one, problem.size) <= most and enough:
                found[one] = problem.cycles(one, machine), number
    return sorted(found, key=lambda one: found[one])


def chosen(problem: Problem, machine: Machine, wanted: BlockTileParameters | None = None) -> BlockTiling:
    """Return the tiles that cost least, or among those that are nearest to what is wanted."""
    every = ranked(problem, machine)
    return every[0] if wanted is None else min(every, key=lambda one: _distance(one, wanted))


def parameters_of(tiles: BlockTiling) -> BlockTileParameters:
    """Return what tuning remembers of tiles."""
    return BlockTileParameters(
        tiles.rows, tiles.columns, tiles.own_rows, tiles.own_columns, tiles.unit_name, tiles.stages, tiles.splits,
        bool(tiles.bulk) if tiles.is_of_group else None,
    )  # fmt: skip


def _distance(tiles: BlockTiling, wanted: BlockTileParameters) -> float:
    """Return how far tiles are from what is wanted, in powers of two; another unit is far."""
    own = parameters_of(tiles)
    pairs = (
        (own.rows, wanted.rows), (own.columns, wanted.columns), (own.own_rows, wanted.own_rows),
        (own.own_columns, wanted.own_columns), (own.stages, wanted.stages), (own.splits, wanted.splits),
    )  # fmt: skip
    far = sum(abs(log2(one / other)) for one, other in pairs if one is not None and other is not None)
    far += 1 if wanted.bulk not in (None, own.bulk) else 0
    return far + (100 if own.unit != wanted.unit else 0)
