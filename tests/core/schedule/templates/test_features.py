"""The numbers of a tile's loops."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from graft.core.schedule.kernel import Kernel
from graft.core.schedule.templates.features import CYCLES, features
from graft.core.schedule.templates.space import Cost, first, points, schedules
from graft.core.schedule.templates.tiled_sum import Tile, TiledSum, tiled_sum
from tests.core.schedule.strategies.contractions.test_blocked_product import WIDE, matmul


def product(m: int, k: int, n: int) -> tuple[Kernel, TiledSum]:
    kernel, _ = matmul((m, k), (k, n), constant=True)
    found = tiled_sum(kernel, WIDE)
    assert found is not None
    return kernel, found


def test_numbers_say_what_a_tile_does() -> None:
    _, found = product(64, 32, 96)
    one = features(found, Tile(2, "i", 4, unroll=4), WIDE.machine)
    lanes = found.lanes
    assert (one["sums"], one["vectors"], one["rows"], one["unrolled"]) == (8, 2, 4, 4)
    assert one["terms"] == math.log2(64 * 32 * 96)
    assert one["tiles of columns"] == math.log2(-(-96 // (2 * lanes)))
    assert one["tiles of rows"] == 4
    assert (one["loads of the first factor"], one["loads of the second factor"]) == (4 / 8, 2 / 8)
    size = (4 * 32 + 32 * 2 * lanes) * 4
    assert one["bytes of a tile"] == math.log2(size / WIDE.machine.cache(1).size)
    assert one[CYCLES] == found.cycles(Tile(2, "i", 4, unroll=4), WIDE.machine)
    other = features(found, Tile(2, "i", 4), WIDE.machine)
    assert one != other


def test_factors_that_leave_the_cache_are_read_again() -> None:
    _, small = product(64, 32, 96)
    _, large = product(1024, 1024, 1024)
    wide, narrow = Tile(2, "i", 4), Tile(1, "i", 2)
    least = (64 * 32 + 32 * 96) * 4 / (64 * 32 * 96) * small.lanes
    assert features(small, wide, WIDE.machine)["traffic of the first cache"] == pytest.approx(math.log2(least))
    traffic = [features(large, tile, WIDE.machine)["traffic of the first cache"] for tile in (wide, narrow)]
    assert traffic[0] < traffic[1]


def test_all_tiles_have_the_same_finite_numbers() -> None:
    _, found = product(7, 13, 29)
    rows = [features(found, tile, WIDE.machine) for tile in points(found, WIDE)]
    assert len({tuple(row) for row in rows}) == 1
    assert all(math.isfinite(value) for row in rows for value in row.values())


class Backwards(Cost):
    """Prefers what the model of cycles does not."""

    def __init__(self) -> None:
        self.described = {}

    def seconds(self, rows):
        return [-row[CYCLES] for row in rows]


def test_a_model_that_has_learnt_ranks_tiles_and_is_told_of_them() -> None:
    kernel, found = product(64, 32, 96)
    cost = Backwards()
    worst = first(found, WIDE, cost)
    assert found.cycles(worst[0], WIDE.machine) > found.cycles(first(found, WIDE)[-1], WIDE.machine)
    wanted = schedules(kernel, WIDE, 0, None, cost)
    assert list(cost.described) == wanted
    assert cost.described[wanted[0]] == features(found, worst[0], WIDE.machine)
    near = schedules(kernel, WIDE, 1, wanted[0], cost)
    assert set(near) <= set(cost.described)
    assert schedules(replace(kernel, name="other"), WIDE, 1, wanted[0]) == near
