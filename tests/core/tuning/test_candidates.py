"""Candidates: enough of them, all different, and none that is switched off."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graft.core.machine.target import Target
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.parameters import (
    AttentionParameters,
    ContractionParameters,
    Parameters,
    ScheduleParameters,
    WinogradParameters,
)
from graft.core.schedule.products.tile_candidates import best_tiles
from graft.core.schedule.products.tiling import split_evenly
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.templates.space import schedules
from graft.core.tuning.candidates import STAGES, candidates, is_tunable
from tests.core.schedule.convolutions import NARROW, WIDE, convolution
from tests.core.schedule.strategies.attention.test_fused_attention import attention_kernel
from tests.core.schedule.strategies.contractions.test_blocked_product import matmul
from tests.core.schedule.strategies.nests.test_fused_rows import SOFTMAX, kernel_of

KERNELS = {
    "matmul": (matmul((128, 64), (64, 96), constant=True)[0], ContractionParameters),
    "conv1x1": (convolution((1, 16, 14, 14), (32, 16, 1, 1))[0], ContractionParameters),
    "conv3x3": (convolution((1, 16, 14, 14), (32, 16, 3, 3), pads=[1] * 4)[0], WinogradParameters),
    "depthwise": (convolution((1, 8, 14, 14), (8, 1, 3, 3), group=8, pads=[1] * 4)[0], ScheduleParameters),
    "attention": (attention_kernel(2, 40, 50, 16, 16), AttentionParameters),
}


@pytest.mark.parametrize("target", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize(("kernel", "family"), KERNELS.values(), ids=KERNELS)
def test_every_family_has_candidates_that_differ_in_code(
    kernel: Kernel, family: type[Parameters], target: Target
) -> None:
    assert is_tunable(kernel)
    found = candidates(kernel, target, 0, None)
    assert any(isinstance(one, family) for one in found)
    assert len(set(found)) == len(found)
    codes = {str(schedule(kernel, target, one).function) for one in [None, *found]}
    assert len(codes) >= 2


@pytest.mark.parametrize(("kernel", "family"), KERNELS.values(), ids=KERNELS)
def test_later_stages_vary_the_best_and_leave_it_out(kernel: Kernel, family: type[Parameters]) -> None:
    best = next(one for one in candidates(kernel, WIDE, 0, None) if isinstance(one, family))
    for stage in range(1, STAGES):
        found = candidates(kernel, WIDE, stage, best)
        assert best not in found
        assert all(isinstance(one, family) for one in found)


def test_the_own_choice_is_varied_by_its_own_family() -> None:
    kernel, _ = KERNELS["conv3x3"]
    channels = convolution((1, 128, 28, 28), (128, 128, 3, 3), pads=[1] * 4)[0]
    assert all(isinstance(one, WinogradParameters) for one in candidates(channels, WIDE, 1, None))
    without = replace(WIDE, without=frozenset({"winograd"}))
    for stage in range(STAGES):
        assert not any(isinstance(one, WinogradParameters) for one in candidates(kernel, without, stage, None))


@pytest.mark.parametrize(("size", "strides"), [(7, 4), (3, 3), (3, 4), (5, 1)])
def test_windows_that_winograd_is_not_for_have_candidates_of_others(size: int, strides: int) -> None:
    kernel = convolution((1, 16, 30, 30), (32, 16, size, size), strides=[strides] * 2)[0]
    found = candidates(kernel, WIDE, 0, None)
    assert found and not any(isinstance(one, WinogradParameters) for one in found)


def test_tiles_that_cut_rows_alike_are_measured_once() -> None:
    tiles = best_tiles(64, 3136, "float32", WIDE)
    assert len({(tile.vectors, tile.rows) for tile in tiles}) == len(tiles)
    assert len({tile.vectors for tile in tiles}) >= len(tiles) // 2
    assert all(split_evenly(64, tile.rows).sizes[0][1] == tile.rows for tile in tiles)


def test_kernels_without_parameters_are_not_tuned() -> None:
    kernel, _ = KERNELS["matmul"]
    assert not is_tunable(replace(kernel, anchor=Trait.SCATTER))
    posit = replace(kernel.stages[0].buffer, dtype="custom[posit]16")
    assert not is_tunable(replace(kernel, stages=(replace(kernel.stages[0], buffer=posit),)))
    assert candidates(replace(kernel, anchor=Trait.SCATTER), WIDE, 0, None) == []


def test_rows_are_tuned_by_the_tiles_of_their_template() -> None:
    kernel = kernel_of(SOFTMAX, Trait.ROW_WISE)
    assert is_tunable(kernel)
    assert candidates(kernel, WIDE, 0, None) == schedules(kernel, WIDE, 0, None) != []


def test_a_contraction_of_no_two_factors_has_no_candidates() -> None:
    kernel, _ = KERNELS["matmul"]
    stage = kernel.stages[0]
    single = replace(kernel, stages=(replace(stage, value=stage.value.left),))  # type: ignore[attr-defined]
    assert candidates(single, WIDE, 0, None) == []
    assert np.all([candidates(single, WIDE, number, None) == [] for number in range(STAGES)])
