"""Depthwise convolutions of images whose extents are known only when they run, on several machines."""

from __future__ import annotations

import pytest

from graft.core.machine.rows import ROWS
from graft.core.machine.target import Target
from graft.core.schedule.parameters import ScheduleParameters
from graft.core.tuning.candidates import candidates
from tests.core.schedule.strategies.convolutions.varying_images import (
    MACHINES,
    Kind,
    computed,
    kernel_of,
    with_channels_last,
)

SIZES = [(2, 3, 21), (1, 1, 5), (1, 0, 3), (1, 2, 0)]
"""Images with tiles of pixels between their sides, and without."""
DEPTHWISE: dict[str, Kind] = {
    "of every second pixel": ((19, 1, 3, 3), {"pads": [1, 1, 1, 1], "group": 19, "strides": [2, 2]}),
    "larger than the image": ((5, 1, 5, 7), {"pads": [2, 3, 2, 3], "group": 5}),
    "more pads behind": ((16, 1, 2, 2), {"pads": [0, 0, 1, 2], "group": 16}),
    "one pixel in three": ((3, 1, 1, 1), {"group": 3, "strides": [3, 3]}),
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", DEPTHWISE)
def test_a_depthwise_convolution_takes_images_of_every_size(kind: str, machine: str) -> None:
    kernel, constants = kernel_of(*DEPTHWISE[kind])
    kernel = with_channels_last(kernel)
    assert computed(kernel, constants, DEPTHWISE[kind], machine, SIZES) == "depthwise_nhwc"


@pytest.mark.parametrize("machine", ["x86-64-v3", "x86-64-v4"])
def test_a_depthwise_convolution_with_channels_first_has_vectors_of_pixels(machine: str) -> None:
    kind = DEPTHWISE["more pads behind"]
    kernel, constants = kernel_of(*kind)
    assert computed(kernel, constants, kind, machine, SIZES, 1e-5) == "varying_depthwise_nchw"


def test_every_candidate_of_tuning_gives_the_same_image() -> None:
    kind = DEPTHWISE["of every second pixel"]
    kernel, constants = kernel_of(*kind)
    kernel = with_channels_last(kernel)
    found = candidates(kernel, Target(ROWS["x86-64-v3"]), 0, None)
    assert any(isinstance(one, ScheduleParameters) for one in found)
    for one in found:
        computed(kernel, constants, kind, "x86-64-v3", SIZES[:1], parameters=one)
