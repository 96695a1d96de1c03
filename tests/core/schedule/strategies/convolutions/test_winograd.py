from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.ir import For
from graft.core.tensor_ir.visit import walk_statements
from tests.core.schedule.convolutions import convolution, outputs_of
from tests.core.schedule.strategies.convolutions.channels_last import (
    DIRECT,
    SAME,
    SHORT,
    WIDE,
    check,
    with_channels_last,
)


@settings(max_examples=6, deadline=None)
@given(
    images=st.integers(1, 2),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    channels=st.sampled_from([16, 32]),
    outputs=st.sampled_from([16, 80]),
    pads=st.tuples(*[st.integers(0, 1)] * 4),
    wide=st.booleans(),
)
def test_winograd_of_any_extent(
    images: int, height: int, width: int, channels: int, outputs: int, pads: tuple[int, ...], wide: bool
) -> None:
    if height + pads[0] + pads[2] < 3 or width + pads[1] + pads[3] < 3:
        return
    shape = (images, channels, height, width)
    check(convolution(shape, (outputs, channels, 3, 3), residual=True, pads=list(pads)), WIDE if wide else SHORT)


def test_winograd_is_for_windows_of_3x3_with_whole_vectors_of_channels() -> None:
    assert check(convolution((1, 32, 6, 6), (48, 32, 3, 3), **SAME), WIDE).strategy == "winograd"
    for source, weights, attributes in (
        ((1, 32, 14, 14), (48, 32, 3, 3), {**SAME, "strides": [2, 2]}),
        ((1, 32, 14, 14), (48, 32, 3, 3), {**SAME, "dilations": [2, 2]}),
        ((1, 32, 14, 14), (47, 32, 3, 3), SAME),
        ((1, 30, 14, 14), (48, 30, 3, 3), SAME),
        ((1, 32, 14, 14), (48, 32, 3, 2), {}),
    ):
        kernel, _ = with_channels_last(*convolution(source, weights, **attributes))
        assert schedule(kernel, WIDE).strategy == "direct_nhwc"
    kernel, _ = with_channels_last(*convolution((1, 32, 14, 14), (48, 32, 3, 3), **SAME))
    assert schedule(kernel, DIRECT).strategy == "direct_nhwc"


def test_an_image_without_pixels_is_left_to_others() -> None:
    kernel, _ = with_channels_last(*convolution((1, 32, 0, 6), (48, 32, 3, 3), pads=[2, 1, 2, 1]))
    assert str(schedule(kernel, WIDE).refusals["winograd"]) == "shape: the image is empty"


def of_one_image() -> Kernel:
    return with_channels_last(*convolution((1, 64, 8, 8), (64, 64, 3, 3), **SAME))[0]


def test_many_blocks_of_pieces_are_shared_out_whole() -> None:
    kernel, _ = with_channels_last(*convolution((64, 64, 8, 8), (64, 64, 3, 3), **SAME))
    for images, kind in ((kernel, "parallel"), (of_one_image(), "serial")):
        scheduled = schedule(images, replace(WIDE, threads=2))
        assert scheduled.strategy == "winograd"
        outer = next(one for one in walk_statements(scheduled.function.body) if isinstance(one, For))
        assert outer.kind == kind


def test_winograd_rounds_little_more_than_the_direct_sum() -> None:
    kernel, arrays = with_channels_last(*convolution((1, 64, 6, 6), (16, 64, 3, 3), **SAME))
    random = np.random.default_rng(0)
    arrays[0] = random.standard_normal(arrays[0].shape).astype(arrays[0].dtype)
    arrays[1] = random.standard_normal(arrays[1].shape).astype(np.float32)
    kernel = replace(kernel, constants=dict(zip(kernel.inputs[1:], arrays[1:], strict=True)))
    errors = []
    for target in (WIDE, DIRECT):
        (output,), (expected,) = outputs_of(kernel, schedule(kernel, target), arrays)
        errors.append(np.sqrt(np.mean((output.astype(np.float64) - expected.astype(np.float64)) ** 2)))
    assert errors[1] < errors[0] < 2 * errors[1]
    assert b.dims(kernel.outputs[0]) == (1, 6, 6, 16)
