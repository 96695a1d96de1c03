"""Convolutions of single pixels by tiles of flat pixels: which get them, and that they compute the same."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from graft.core.machine.target import Target, target_named
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.parameters import ContractionParameters, ScheduleParameters
from graft.core.schedule.primitives.schedule_text import apply_schedule, print_schedule
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.strategies.convolutions import pointwise_tiles
from graft.core.schedule.strategies.strategy import Anchor
from graft.core.schedule.templates import tiled_sum
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import walk_statements
from graft.core.tuning.candidates import candidates
from graft.errors import ScheduleError
from tests.core.schedule.convolutions import NARROW, WIDE, check, convolution

OVERLAPPING = target_named("x86-64-v3")
TAKEN = {
    "pixels of a row that fill no vector": convolution((1, 8, 12, 10), (13, 8, 1, 1)),
    "three images, and an addition": convolution((3, 5, 4, 8), (9, 5, 1, 1), residual=True),
    "one channel": convolution((1, 6, 16, 6), (1, 6, 1, 1)),
    "rows that begin at one place of a way": convolution((1, 3, 32, 32), (26, 3, 1, 1)),
    "one axis, and a long sum": convolution((1, 521, 32), (3, 521, 1)),
    "three axes": convolution((1, 4, 2, 6, 8), (5, 4, 1, 1, 1)),
    "computed weights": convolution((1, 8, 8, 8), (7, 8, 1, 1), constant=False),
}


@pytest.mark.parametrize("target", [WIDE, OVERLAPPING], ids=["masks", "overlapping"])
@pytest.mark.parametrize(("kernel", "arrays"), TAKEN.values(), ids=TAKEN)
def test_pixels_are_one_axis(kernel: Kernel, arrays: list[np.ndarray], target: Target) -> None:
    made = schedule(kernel, target)
    assert made.strategy == "pointwise_tiles"
    verify(made.function, target.machine)
    check(kernel, arrays, target)


@pytest.mark.parametrize("target", [WIDE, OVERLAPPING], ids=["masks", "overlapping"])
@pytest.mark.parametrize(("kernel", "_"), TAKEN.values(), ids=TAKEN)
def test_each_step_is_legal_and_has_a_text(
    kernel: Kernel, _: list[np.ndarray], target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = pointwise_tiles.STRATEGY.build(Anchor(kernel), target)
    monkeypatch.setattr(tiled_sum, "take", lambda function, steps: apply_schedule(function, print_schedule(steps)))
    checked = pointwise_tiles.STRATEGY.build(Anchor(kernel), target)
    assert isinstance(plain, Scheduled) and isinstance(checked, Scheduled)
    assert str(plain.function) == str(checked.function)


@pytest.mark.parametrize(("kernel", "_"), TAKEN.values(), ids=TAKEN)
def test_a_text_that_rewrites_the_kernel_first_gives_the_same_loops(kernel: Kernel, _: list[np.ndarray]) -> None:
    own = schedule(kernel, WIDE)
    given = schedule(kernel, WIDE, ScheduleParameters(own.steps))
    assert own.steps.startswith("rewrite flat_pixels\n") and given.steps == own.steps
    assert str(given.function) == str(own.function)
    packed = {buffer: own.packed.get(buffer, kernel.constants.get(buffer)) for buffer in given.packed}
    assert all((given.packed[one] == array.reshape(given.packed[one].shape)).all() for one, array in packed.items())


def test_a_search_has_tiles_of_whole_images() -> None:
    found = candidates(TAKEN["pixels of a row that fill no vector"][0], WIDE, 0, None)
    texts = [one.steps for one in found if isinstance(one, ScheduleParameters)]
    assert texts and all(one.startswith("rewrite flat_pixels\n") for one in texts)


@pytest.mark.parametrize(("text", "reason"), [
    ("parallel n\nrewrite flat_pixels\n", "line 2: cannot 'rewrite flat_pixels': the loops are there already"),
    ("rewrite pixels\n", "line 1: cannot 'rewrite pixels': there is no such rewrite; there are flat_pixels"),
    ("rewrite flat_pixels\nsplit y 4 -> y0 y\n", "line 2: cannot 'split y 4 -> y0 y': there is no loop 'y'"),
])  # fmt: skip
def test_why_a_text_is_refused_is_said(text: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=re.escape(reason)):
        schedule(TAKEN["one axis, and a long sum"][0], WIDE, ScheduleParameters(text))
    with pytest.raises(ScheduleError, match="cannot 'rewrite flat_pixels': it is not for this kernel"):
        schedule(convolution((1, 8, 10, 10), (8, 8, 3, 3))[0], WIDE, ScheduleParameters("rewrite flat_pixels\n"))


def buffers(kernel: Kernel) -> set[str]:
    function = schedule(kernel, WIDE).function
    return {one.buffer.name for one in walk_statements(function.body) if isinstance(one, ir.Allocate)}


def test_pixels_are_copied_where_rows_compete_for_lines_and_sums_begin_anew_where_they_are_long() -> None:
    assert "near" in buffers(TAKEN["rows that begin at one place of a way"][0])
    assert "near" not in buffers(TAKEN["pixels of a row that fill no vector"][0])
    assert "subtotal" in buffers(TAKEN["one axis, and a long sum"][0])
    assert "subtotal" not in buffers(convolution((1, 511, 32), (3, 511, 1))[0])


@pytest.mark.parametrize(("kernel", "target", "code"), [
    (convolution((1, 8, 10, 10), (8, 8, 3, 3))[0], WIDE, "shape"),
    (convolution((1, 8, 1, 10), (8, 8, 1, 1))[0], WIDE, "size"),
    (convolution((1, 8, 10, 10), (8, 8, 1, 1))[0], NARROW, "unavailable"),
    (convolution((1, 8, 10, 10), (8, 8, 1, 1))[0], replace(WIDE, precision="bf16"), "dtype"),
    (convolution((1, 64, 20, 10), (128, 64, 1, 1))[0], WIDE, "cost"),
    (convolution((1, 64, 64, 64), (3, 64, 1, 1))[0], OVERLAPPING, "cost"),
])  # fmt: skip
def test_why_a_convolution_gets_none_is_said(kernel: Kernel, target: Target, code: str) -> None:
    assert schedule(kernel, target).refusals["pointwise_tiles"].code == code


def test_with_parameters_it_is_a_product() -> None:
    scheduled = schedule(TAKEN["one axis, and a long sum"][0], WIDE, ContractionParameters())
    assert (scheduled.strategy, scheduled.refusals["pointwise_tiles"].code) == ("direct_convolution", "user-excluded")
