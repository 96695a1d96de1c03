import itertools
from dataclasses import replace

import pytest

from graft.core.machine.machine import Costs
from graft.core.machine.target import target_named
from graft.core.operators.definition import build as b
from graft.core.schedule.products.tiling import (
    EMULATED_REGISTERS,
    RegisterTile,
    adjusted_tile,
    choose_tile,
    halves,
    lanes_of,
    ranked_tiles,
    split_evenly,
    with_dot,
)
from graft.core.tensor_ir.ir import Block, If

WIDE, NARROW = target_named("x86-64-v4"), target_named("x86-64")


@pytest.mark.parametrize(("length", "most"), [*itertools.product([1, 5, 16, 17, 31], [1, 4, 16, 40])])
def test_pieces_of_an_even_split_cover_a_length_and_differ_by_one_at_most(length: int, most: int) -> None:
    split = split_evenly(length, most)
    sizes = [size for count, size in split.sizes for _ in range(count)]
    assert sum(sizes) == length and len(sizes) == split.count == -(-length // most)
    assert max(sizes) <= most and max(sizes) - min(sizes) <= 1
    begins = [split.begin(b.index(piece)) for piece in range(split.count)]
    assert begins == [b.index(sum(sizes[:piece])) for piece in range(split.count)]
    assert [split.length(b.index(piece)) for piece in range(split.count)] == [b.index(size) for size in sizes]


def test_pieces_of_two_sizes_have_a_branch_each() -> None:
    asked: list[int] = []

    def body(size: int) -> Block:
        asked.append(size)
        return Block(())

    piece = b.variables(1)[0]
    assert isinstance(split_evenly(7, 4).choose(piece, body), If)
    assert split_evenly(8, 4).choose(piece, body) == Block(())
    assert asked == [4, 3, 4]


def test_heights_halve_down_to_one() -> None:
    assert [halves(height) for height in (1, 6, 8)] == [[1], [6, 3, 1], [8, 4, 2, 1]]


@pytest.mark.parametrize(("dtype", "lanes"), [("float32", 16), ("float64", 8), ("int8", 64)])
def test_lanes_fill_a_register(dtype: str, lanes: int) -> None:
    assert lanes_of(dtype, WIDE) == lanes


@pytest.mark.parametrize("target", [WIDE, NARROW])
@pytest.mark.parametrize("busy", [0, 4])
def test_a_tile_leaves_registers_for_a_row_a_scalar_and_what_is_busy(target, busy) -> None:
    for _, tile in ranked_tiles(100, 1000, "float32", target, busy):
        assert tile.rows * tile.vectors + tile.vectors + 2 <= target.machine.registers - busy or tile.rows == 1


def test_tiles_are_ranked_by_cycles_and_the_first_is_chosen() -> None:
    ranked = ranked_tiles(64, 64, "float32", WIDE)
    assert [cycles for cycles, _ in ranked] == sorted(cycles for cycles, _ in ranked)
    assert choose_tile(64, 64, "float32", WIDE) == ranked[0][1]


def test_a_step_takes_as_long_as_its_products_its_loads_or_its_latency() -> None:
    costs = Costs(fused=2, loads=4, latency=3, load=0.25)
    target = replace(WIDE, machine=replace(WIDE.machine, costs=costs))
    found = {(tile.rows, tile.vectors): cycles for cycles, tile in ranked_tiles(6, 32, "float32", target)}
    assert found[6, 2] == max(6 * 2 / 2, (6 + 2) / 4, 3) + 0.25 * (6 + 2)
    assert found[1, 1] == 6 * 2 * (3 + 0.25 * 2)  # twelve tiles, each as long as its latency
    assert found[4, 2] == 2 * (3 + 0.25 * 5)  # two of three rows


def test_columns_that_are_left_over_are_a_narrower_tile() -> None:
    costs = Costs(fused=2, loads=4, latency=1, load=0.5)
    target = replace(WIDE, machine=replace(WIDE.machine, costs=costs))
    found = {(tile.rows, tile.vectors): cycles for cycles, tile in ranked_tiles(8, 5 * 16 - 3, "float32", target)}
    wide, rest = 8 * 2 / 2 + 0.5 * 10, 8 * 1 / 2 + 0.5 * 9
    assert found[8, 2] == 2 * wide + rest
    assert found[8, 1] == 5 * rest
    assert max(vectors for _, vectors in found) == 5


def test_a_machine_whose_code_is_dear_takes_one_shape_of_tiles() -> None:
    """128 columns one at a time on a Cortex-M4: 4 x 32 of them, although 5 x 25 and 3 take fewer cycles."""
    board = target_named("thumbv7em")
    free = replace(board, machine=replace(board.machine, costs=replace(board.machine.costs, code=0)))
    dear, cheap = (
        {tile.vectors: cycles for cycles, tile in ranked_tiles(1, 128, "float32", one)} for one in (board, free)
    )
    assert choose_tile(1, 128, "float32", free, 3).vectors == 5
    assert choose_tile(1, 128, "float32", board, 3).vectors == 4
    assert dear[4] == cheap[4] and dear[5] == cheap[5] * (1 + board.machine.costs.code)


@pytest.mark.parametrize(
    ("dtype", "registers", "unroll"), [("float32", 32 - 3, WIDE.machine.unroll), ("custom[p]16", 11, 1)]
)
def test_tiles_use_all_registers_that_they_may(dtype: str, registers: int, unroll: int) -> None:
    tiles = [tile for _, tile in ranked_tiles(100, 1000, dtype, WIDE, 3)]
    for vectors in {tile.vectors for tile in tiles}:
        highest = max(tile.rows for tile in tiles if tile.vectors == vectors)
        assert highest == max((registers - 2 - vectors) // vectors, 1)
    assert {tile.unroll for tile in tiles} == {unroll}
    assert {tile.columns // tile.lanes for tile in tiles} <= set(range(1, 9))


def test_of_equal_tiles_the_wider_and_then_the_higher_is_taken() -> None:
    free = replace(WIDE, machine=replace(WIDE.machine, costs=Costs(fused=1e9, loads=1e9, latency=1, load=0)))
    (_, first), (_, second), *_ = ranked_tiles(2, 32, "float32", free)
    assert [(one.vectors, one.rows) for one in (first, second)] == [(2, 2), (2, 1)]


def test_a_tile_is_a_value() -> None:
    assert len({RegisterTile(6, 2, 16), RegisterTile(6, 2, 16), RegisterTile(6, 3, 16)}) == 2


def test_a_tile_is_no_larger_than_its_result() -> None:
    assert all(tile.rows <= 3 and tile.vectors == 1 for _, tile in ranked_tiles(3, 16, "float32", WIDE))


def test_there_is_a_tile_even_where_none_fits() -> None:
    assert choose_tile(4, 4, "float32", NARROW, NARROW.machine.registers).rows == 1


def test_what_is_wanted_of_a_tile_is_taken_as_far_as_it_fits() -> None:
    tile = RegisterTile(6, 2, 16, 2)
    assert adjusted_tile(tile, 100, 100, None, None) == tile
    assert adjusted_tile(tile, 4, 16, 9, 3, 4) == RegisterTile(4, 1, 16, 4)
    assert adjusted_tile(tile, 1000, 1000, 1000, 1000, 1000) == RegisterTile(32, 8, 16, 16)


def test_dot_products_without_an_instruction_take_longer_and_registers() -> None:
    assert with_dot("", WIDE) == (WIDE, 0)
    assert with_dot("dot2_s16", WIDE) == (WIDE, 0)
    assert with_dot("dot2_bf16", WIDE) == (WIDE, EMULATED_REGISTERS)
    bytewise, busy = with_dot("dot4_u8s8", WIDE)
    assert busy == EMULATED_REGISTERS
    plain, pairs = (choose_tile(64, 64, "int32", one) for one in (WIDE, bytewise))
    costs, slower = WIDE.machine.costs, bytewise.machine.costs
    assert slower.fused == costs.fused / 2 and slower.load > costs.load
    assert plain.lanes == pairs.lanes
