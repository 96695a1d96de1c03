import re
from dataclasses import replace

import numpy as np
import pytest

from graft.core.machine.target import Target
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.parameters import WinogradParameters
from graft.core.schedule.products.epilogue import Epilogue, fused_stages
from graft.core.schedule.strategies.convolutions.winograd import schedule_winograd
from graft.core.schedule.strategies.convolutions.winograd_plan import UNROLL, chosen_plan, taken_apart
from tests.core.schedule.convolutions import WIDE, convolution, outputs_of


def scheduled(kernel: Kernel, target: Target, pieces: int, block: int = 1, rows: int | None = None) -> Scheduled | None:
    """The kernel with vectors of pieces of a given size, and blocks of about as many."""
    parameters = WinogradParameters(pieces, block, rows=rows, columns="pixels")
    return schedule_winograd(kernel, fused_stages(kernel) or (), target, parameters)


def test_a_wide_row_is_transformed_in_a_loop() -> None:
    kernel, arrays = convolution((1, 2, 6, 90), (3, 2, 3, 3), pads=[1, 1, 1, 1])
    found = scheduled(kernel, WIDE, 4)
    assert found is not None
    (result,), (expected,) = outputs_of(kernel, found, arrays)
    np.testing.assert_allclose(result, expected, atol=2e-4)


def test_all_weights_of_the_next_tile_are_fetched_ahead() -> None:
    kernel, _ = convolution((1, 16, 12, 12), (20, 16, 3, 3), pads=[1, 1, 1, 1])
    found = scheduled(kernel, WIDE, 4, rows=20)
    assert found is not None
    lines = re.findall(r"call prefetch\(\w+\[([^\]]*)\]", str(found.function))
    assert len(lines) == 20 * UNROLL // 16, "a step of a tile of 20 channels fetches 20 elements for each term"


@pytest.mark.parametrize(
    ("channels", "size", "outputs", "columns"),
    [
        (24, 128, 24, "pixels"),  # channels would leave a quarter of all vectors empty
        (32, 96, 32, "pixels"),
        (73, 24, 64, "channels"),
        (48, 12, 48, "channels"),  # a row has three pieces
        (64, 28, 64, "channels"),
    ],
)
def test_channels_and_size_choose_what_vectors_are_of(channels: int, size: int, outputs: int, columns: str) -> None:
    kernel, _ = convolution((1, channels, size, size), (outputs, channels, 3, 3), pads=[1, 1, 1, 1])
    own = taken_apart(kernel, fused_stages(kernel) or (), WIDE)
    assert own is not None
    plan = chosen_plan(own, WIDE)
    assert plan is not None and plan.columns == columns


def test_heavy_epilogues_of_several_blocks_want_vectors_of_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, _ = convolution((1, 64, 66, 66), (32, 64, 3, 3), pads=[1, 1, 1, 1])
    own, target = taken_apart(kernel, fused_stages(kernel) or (), WIDE), replace(WIDE, threads=1)
    assert own is not None
    for is_heavy, columns in ((False, "channels"), (True, "pixels")):
        monkeypatch.setattr(Epilogue, "is_heavy", is_heavy)
        plan = chosen_plan(own, target)
        assert plan is not None and plan.columns == columns


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_several_threads_have_as_many_blocks_each(threads: int) -> None:
    kernel, _ = convolution((1, 24, 96, 96), (24, 24, 3, 3), pads=[1, 1, 1, 1])
    target = replace(WIDE, threads=threads)
    own = taken_apart(kernel, fused_stages(kernel) or (), target)
    assert own is not None
    plan = chosen_plan(own, target)
    assert plan is not None and plan.columns == "pixels"
    assert -(-own.pieces(plan.transform) // plan.most) % threads == 0
