"""Blocks of pieces: how many, which tiles, and where the transformed weights lie."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graft.core.machine.target import Target, target_named
from graft.core.schedule.loops.inline import constant_shape
from graft.core.schedule.parameters import WinogradParameters
from graft.core.schedule.products.epilogue import fused_stages
from graft.core.schedule.strategies.convolutions.winograd_plan import ImageInPieces, Plan, chosen_plan, taken_apart
from graft.core.schedule.strategies.convolutions.winograd_transform import Transform
from tests.core.schedule.convolutions import convolution
from tests.core.schedule.strategies.convolutions.varying_images import kernel_of, with_channels_last

FLOAT32 = target_named("x86-64-v4")
BFLOAT16 = replace(target_named("x86-64-v4+avx512bf16"), precision="bf16")


def parts(target: Target, outputs: int = 144) -> tuple[ImageInPieces, Plan, np.ndarray]:
    kernel, constants = kernel_of((outputs, 32, 3, 3), {"pads": [1, 1, 1, 1]})
    kernel = with_channels_last(kernel)
    found = taken_apart(kernel, fused_stages(kernel) or (), target)
    assert found is not None
    plan = chosen_plan(found, target)
    assert plan is not None
    return found, plan, next(array for one, array in constants.items() if constant_shape(one) == (outputs, 32, 3, 3))


def of_known(channels: int, size: int, outputs: int, stride: int) -> ImageInPieces:
    kernel, _ = convolution((1, channels, size, size), (outputs, channels, 3, 3), pads=[1] * 4, strides=[stride] * 2)
    found = taken_apart(kernel, fused_stages(kernel) or (), FLOAT32)
    assert found is not None
    return found


def transformed(plan: Plan, weights: np.ndarray, output: int, channel: int) -> np.ndarray:
    matrix = plan.transform.weight_matrix()
    return (matrix @ weights[output, channel].astype(np.float64) @ matrix.T).reshape(-1)


def test_float32_has_all_products_of_a_panel_behind_each_other() -> None:
    _, plan, weights = parts(FLOAT32)
    packed, columns = plan.packed(weights), plan.tile.columns
    assert plan.group == plan.outputs == 144 and packed.size == plan.transform.products * 144 * 32
    for output, channel in ((0, 0), (columns + 1, 31), (143, 7)):
        panel = output // columns
        width = min(columns, 144 - panel * columns)
        places = (
            np.arange(plan.transform.products) * 144 * 32 + panel * columns * 32 + channel * width + output % columns
        )
        np.testing.assert_allclose(packed[places], transformed(plan, weights, output, channel), rtol=1e-6, atol=1e-6)


def test_bfloat16_has_pairs_of_channels_and_one_panel_after_another() -> None:
    _, plan, weights = parts(BFLOAT16)
    packed, columns = plan.packed(weights), plan.tile.columns
    assert (plan.transform, plan.width, plan.depth, plan.group) == (Transform(2), 2, 16, columns)
    for output, channel in ((0, 0), (columns + 1, 31), (143, 7)):
        panel = output // columns
        width = min(columns, 144 - panel * columns)
        begin = panel * columns * 16 * plan.transform.products
        places = begin + (np.arange(16) * 16 + channel // 2) * width + output % columns
        halves = (packed[places].view(np.uint32) >> 16 * (channel % 2) << 16).view(np.float32)
        np.testing.assert_allclose(halves, transformed(plan, weights, output, channel), rtol=2**-8)


@pytest.mark.parametrize("target", [FLOAT32, BFLOAT16])
def test_blocks_are_whole_tiles_that_fit_the_second_level_cache(target: Target) -> None:
    _, plan, _ = parts(target)
    size = 4 // plan.width * plan.inputs + 4 * plan.group
    assert plan.most % plan.tile.rows == plan.tile.rows % 2 == 0
    assert plan.most * plan.transform.products * size <= target.machine.working_set(2)


def test_a_block_of_few_known_pieces_has_tiles_for_them() -> None:
    found, plan, _ = parts(BFLOAT16)
    assert found.pieces(plan.transform) > 9
    few = replace(found, found=replace(found.found, shape=(1, 5, 6, 144)), direct=None)
    assert few.pieces(plan.transform) == 9
    of_few = Plan.of(plan.transform, few, BFLOAT16)
    assert 9 <= of_few.most < 9 + of_few.tile.rows and of_few.most % of_few.tile.rows == 0


def test_more_pixels_take_more_cycles() -> None:
    _, plan, _ = parts(FLOAT32)
    assert plan.pays and 0 < plan.least < 1000
    assert plan.once < plan.cycles(1) < plan.cycles(1000)


@pytest.mark.parametrize(
    ("channels", "size", "outputs", "stride", "pieces"),
    [
        (64, 56, 64, 1, 4),
        (128, 28, 128, 1, 4),
        (512, 14, 512, 1, 4),
        (512, 7, 512, 1, 2),
        (128, 56, 128, 2, 2),
        (512, 14, 512, 2, None),
    ],
)
def test_channels_and_size_choose_the_pieces(
    channels: int, size: int, outputs: int, stride: int, pieces: int | None
) -> None:
    plan = chosen_plan(of_known(channels, size, outputs, stride), FLOAT32)
    assert (None if plan is None else plan.transform.outputs) == pieces


def test_threads_share_few_pieces_whose_weights_no_cache_has() -> None:
    for channels, size, apart in ((64, 14, True), (64, 56, True), (512, 14, False), (512, 56, True)):
        plan = chosen_plan(of_known(channels, size, channels, 1), replace(FLOAT32, threads=2))
        assert plan is not None and plan.apart == apart
    plan = chosen_plan(of_known(64, 14, 64, 1), replace(FLOAT32, threads=2))
    assert plan is not None and plan.most == 8  # of 16 pieces


def test_tiles_fill_blocks_of_few_pieces() -> None:
    plan = chosen_plan(of_known(512, 14, 512, 1), target_named("x86-64-v3"))
    assert plan is not None and (plan.most, plan.tile.rows, plan.tile.vectors) == (16, 4, 3)


def test_few_pieces_read_weights_once_that_come_from_memory() -> None:
    far, near = (Plan.of(Transform(4, 1), of_known(channels, 14, channels, 1), FLOAT32) for channels in (128, 64))
    assert (far.most, far.tile.rows, far.tile.vectors) == (16, 16, 1)
    assert near.most == 16 and near.tile.rows < 16


def test_what_is_wanted_is_followed() -> None:
    plan = chosen_plan(of_known(512, 14, 512, 2), FLOAT32, WinogradParameters(4, 20, rows=7, vectors=1))
    assert plan is not None and (plan.transform.outputs, plan.most, plan.tile.rows, plan.tile.vectors) == (2, 18, 6, 1)
