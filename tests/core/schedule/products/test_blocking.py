from dataclasses import replace

import pytest

from graft.core.schedule.products import blocking
from graft.core.schedule.products.tiling import choose_tile, split_evenly
from tests.core.schedule.strategies.contractions.test_blocked_product import WIDE


@pytest.mark.parametrize("threads", [0, 1, 2, 8])
def test_blocks_cover_all_tiles_panels_and_terms(threads: int) -> None:
    target = replace(WIDE, threads=threads)
    for rows, panels, terms in ((128, 24, 3072), (1, 16, 4096), (1500, 3, 64), (64, 1571, 768)):
        tile = choose_tile(rows, panels * 32, "float32", target)
        tiles = split_evenly(rows, tile.rows)
        tasks = blocking.wanted_tasks(target)
        found = blocking.choose_blocking(tile, tiles, panels, terms, 4, tasks, True, machine=target.machine)
        assert sum(count * size for count, size in found.rows.sizes) == tiles.count
        assert sum(count * size for count, size in found.groups.sizes) == panels
        assert (found.spans - 1) * found.span < terms <= found.spans * found.span
        most = tiles.count * panels
        assert found.rows.count * found.groups.count >= min(blocking.wanted_tasks(target), most) // 2
