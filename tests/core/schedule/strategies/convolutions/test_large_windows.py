"""Convolutions of large windows and few pixels: which get sums along rows, and that these compute the same."""

from __future__ import annotations

import re

import numpy as np
import pytest

from graft.core.machine.target import Target, target_named
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.parameters import ScheduleParameters
from graft.core.schedule.primitives.schedule_text import apply_schedule, print_schedule
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.strategies.convolutions import large_windows
from graft.core.schedule.strategies.strategy import Anchor
from graft.core.tensor_ir.verifying.verifier import verify
from tests.core.schedule.convolutions import NARROW, WIDE, check, convolution

NO_MASKS = target_named("x86-64-v3")
SCALAR = target_named("thumbv7em")
MACHINES = {"masks": WIDE, "AVX2": NO_MASKS, "SSE": NARROW, "no vectors": SCALAR}
TAKEN = {
    "whole vectors": convolution((4, 2, 18, 34), (8, 2, 16, 32), constant=False),
    "rows that end within a vector": convolution((2, 3, 12, 25), (4, 3, 10, 23), constant=False),
    "rows of less than a vector": convolution((2, 3, 12, 13), (4, 3, 10, 11), constant=False),
    "one axis": convolution((2, 3, 50), (5, 3, 47), constant=False),
    "three axes": convolution((2, 1, 5, 6, 18), (4, 1, 4, 5, 16), constant=False),
    "groups": convolution((2, 6, 10, 18), (8, 3, 8, 16), group=2, constant=False),
    "a group for each channel": convolution((1, 4, 10, 18), (4, 1, 8, 16), group=4, constant=False),
    "rows two pixels apart, and an addition": convolution(
        (3, 2, 20, 18), (6, 2, 9, 16), dilations=[2, 1], residual=True, constant=False
    ),
    "constant weights, odd extents": convolution((3, 5, 9, 21), (7, 5, 8, 19)),
    "many vectors of terms": convolution((1, 4, 34, 82), (2, 4, 32, 80), constant=False),
}


@pytest.mark.parametrize("target", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize(("kernel", "arrays"), TAKEN.values(), ids=TAKEN)
def test_sums_go_along_the_rows_of_windows(kernel: Kernel, arrays: list[np.ndarray], target: Target) -> None:
    made = schedule(kernel, target)
    assert made.strategy == "large_windows"
    verify(made.function, target.machine)
    check(kernel, arrays, target)


@pytest.mark.parametrize("target", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize(("kernel", "_"), TAKEN.values(), ids=TAKEN)
def test_each_step_is_legal_and_has_a_text(
    kernel: Kernel, _: list[np.ndarray], target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = large_windows.STRATEGY.build(Anchor(kernel), target)
    monkeypatch.setattr(large_windows, "take", lambda function, steps: apply_schedule(function, print_schedule(steps)))
    checked = large_windows.STRATEGY.build(Anchor(kernel), target)
    assert isinstance(plain, Scheduled) and isinstance(checked, Scheduled)
    assert str(plain.function) == str(checked.function)
    given = schedule(kernel, target, ScheduleParameters(plain.steps))
    assert str(given.function) == str(plain.function)


@pytest.mark.parametrize("target", MACHINES.values(), ids=MACHINES)
def test_sums_of_a_tile_stay_in_registers(target: Target) -> None:
    for kernel, _ in TAKEN.values():
        found = large_windows.large_windows(kernel, target)
        assert isinstance(found, large_windows.LargeWindows)
        tile = found.tile()
        assert all(found.axes[axis] % count == 0 for axis, count in tile.items())
        assert tile["n"] * tile["c"] * tile["x"] < target.machine.registers


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (convolution((1, 2, 18, 34), (4, 2, 3, 3), constant=False), "shape: its windows are not by far larger"),
        (convolution((1, 2, 40, 6), (4, 2, 38, 4), constant=False), "shape: its windows are not by far larger"),
        (
            convolution((1, 2, 18, 34), (4, 2, 16, 32), pads=[1, 1, 1, 1], constant=False),
            "layout: rows of image or windows do not lie in one piece, or reach beyond the image",
        ),
        (
            convolution((1, 2, 18, 66), (4, 2, 16, 32), dilations=[1, 2], constant=False),
            "layout: rows of image or windows do not lie in one piece, or reach beyond the image",
        ),
    ],
)
def test_others_are_refused_with_the_reason(kernel: tuple[Kernel, list[np.ndarray]], reason: str) -> None:
    found = large_windows.large_windows(kernel[0], WIDE)
    assert isinstance(found, Reject)
    assert re.match(re.escape(reason), str(found))
    assert schedule(kernel[0], WIDE).strategy != "large_windows"
