"""Winograd's algorithm for images whose extents are known only when a kernel runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graft.core.machine.rows import ROWS
from graft.core.machine.target import Target, target_named
from graft.core.schedule.selection.select import schedule
from tests.core.schedule.strategies.convolutions.varying_images import Kind, computed, kernel_of, with_channels_last

SIZES = [(2, 9, 11), (1, 2, 1), (0, 8, 8)]
"""Images for Winograd's algorithm, for the direct sums, and for nothing."""
KINDS: dict[str, Kind] = {
    "of every pixel": ((16, 16, 3, 3), {"pads": [1, 1, 1, 1]}),
    "of every second pixel": ((32, 32, 3, 3), {"pads": [0, 1, 1, 2], "strides": [2, 2]}),
    "odd channels": ((19, 13, 3, 3), {"pads": [1, 1, 1, 1]}),
}
WHERE = [
    ("of every pixel", "x86-64-v2"),
    ("of every second pixel", "x86-64-v4"),
    ("of every pixel", "armv8-a"),
    ("odd channels", "x86-64-v3"),
    ("odd channels", "x86-64-v4"),
    ("odd channels", "armv8-a"),
]


@pytest.mark.parametrize(("kind", "machine"), WHERE)
def test_large_and_small_images_have_the_same_sums(kind: str, machine: str) -> None:
    kernel, constants = kernel_of(*KINDS[kind])
    kernel = with_channels_last(kernel)
    assert computed(kernel, constants, KINDS[kind], machine, SIZES, tolerance=2e-4) == "winograd"


@pytest.mark.parametrize("size", [(9, 11), (12, 8)])
@pytest.mark.parametrize("kind", ["of every pixel", "odd channels"])
def test_images_of_one_size_are_cut_into_pieces(kind: str, size: tuple[int, int]) -> None:
    kernel, constants = kernel_of(*KINDS[kind], size=size)
    kernel = with_channels_last(kernel)
    target = Target(ROWS["x86-64-v3"])
    assert schedule(kernel, target).knobs["image"] == "winograd"
    computed(kernel, constants, KINDS[kind], target, [(2, *size), (0, *size)], tolerance=2e-4)


@pytest.mark.parametrize("machine", ["x86-64-v4+avx512bf16", "x86-64-v3"])
def test_images_of_any_extent_are_summed_in_pairs_in_bfloat16(machine: str) -> None:
    kind = ((48, 32, 3, 3), {"pads": [1, 1, 1, 1]})
    kernel, constants = kernel_of(*kind)
    target = replace(target_named(machine), precision="bf16")
    kernel, sizes = with_channels_last(kernel), [(2, 9, 11), (1, 2, 1), (3, 14, 14), (0, 8, 8)]
    scheduled = schedule(kernel, target)
    assert scheduled.knobs["pieces"] == 2
    # Small integers, and quarters of them, are exact in bfloat16.
    assert computed(kernel, constants, kind, target, sizes) == "winograd"


def test_windows_that_move_by_two_are_summed_directly_in_bfloat16() -> None:
    kernel, _ = kernel_of((32, 32, 3, 3), {"strides": [2, 2]})
    scheduled = schedule(with_channels_last(kernel), replace(target_named("x86-64-v4"), precision="bf16"))
    assert scheduled.strategy == "direct_nhwc"
    assert "windows that move by one pixel" in str(scheduled.refusals["winograd"])


def test_the_knobs_say_from_how_many_pixels_on() -> None:
    kernel, _ = kernel_of(*KINDS["of every pixel"])
    knobs = schedule(with_channels_last(kernel), Target(ROWS["x86-64-v4"])).knobs
    assert knobs["pieces"] == 4
    assert 0 < int(knobs["from_pixels"]) < 2 * 9 * 11


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ((16, 16, 3, 1), "shape: no convolution of 3 x 3 windows that move by one or two pixels, without groups"),
        ((16, 7, 3, 3), "size: channels are few, or vectors short"),
    ],
)
def test_other_convolutions_are_refused_with_the_reason(weights: tuple[int, ...], said: str) -> None:
    kernel, _ = kernel_of(weights, {})
    scheduled = schedule(with_channels_last(kernel), Target(ROWS["x86-64-v4"]))
    assert scheduled.strategy == "direct_nhwc"
    assert str(scheduled.refusals["winograd"]) == said


def test_images_with_channels_first_are_refused_in_bfloat16() -> None:
    kernel, _ = kernel_of((16, 16, 3, 3), {})
    scheduled = schedule(kernel, replace(target_named("x86-64-v4"), precision="bf16"))
    assert str(scheduled.refusals["winograd"]) == "layout: channels are not last"
