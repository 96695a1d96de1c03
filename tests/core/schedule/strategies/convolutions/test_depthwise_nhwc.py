"""Depthwise convolutions with channels last against the tensor IR's interpreter."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.inline import relaid
from graft.core.schedule.products.epilogue import fused_stages
from graft.core.schedule.strategies.convolutions.depthwise_nhwc import schedule_depthwise
from tests.core.schedule.convolutions import NARROW, WIDE, convolution, outputs_of

LAST = (0, 2, 3, 1)


def channels_last(
    size: tuple[int, ...], window: tuple[int, int], **attributes: object
) -> tuple[Kernel, list[np.ndarray]]:
    """A depthwise Conv of images ``[n, y, x, c]``, the addition of another one, and Relu."""
    n, height, width, channels = size
    kernel, arrays = convolution(
        (n, channels, height, width), (channels, 1, *window), group=channels, residual=True, **attributes
    )
    image, _, _, other = kernel.inputs
    moved = {
        buffer: replace(buffer, shape=tuple(buffer.shape[axis] for axis in LAST))
        for buffer in (image, other, *(stage.buffer for stage in kernel.stages))
    }
    changed = replace(
        kernel,
        inputs=tuple(moved.get(buffer, buffer) for buffer in kernel.inputs),
        outputs=tuple(moved[buffer] for buffer in kernel.outputs),
        stages=tuple(relaid(stage, moved, LAST) for stage in kernel.stages),
    )
    return changed, [
        np.ascontiguousarray(array.transpose(LAST)) if buffer in moved else array
        for buffer, array in zip(kernel.inputs, arrays, strict=True)
    ]


@settings(max_examples=10, deadline=None)
@given(
    size=st.tuples(st.integers(1, 2), st.integers(2, 4), st.integers(2, 34), st.integers(2, 20)),
    window=st.tuples(st.integers(1, 4), st.integers(1, 5)),
    stride=st.integers(1, 2),
    dilation=st.integers(1, 2),
    pads=st.tuples(*[st.integers(0, 3)] * 4),
    narrow=st.booleans(),
)
def test_any_shape_gives_the_convolution(
    size: tuple[int, ...], window: tuple[int, int], stride: int, dilation: int, pads: tuple[int, ...], narrow: bool
) -> None:
    extents = [size[1 + d] + pads[d] + pads[2 + d] - dilation * (window[d] - 1) for d in range(2)]
    if min(extents) < stride + 1:
        return
    kernel, arrays = channels_last(size, window, strides=[stride] * 2, dilations=[dilation] * 2, pads=list(pads))
    stages = fused_stages(kernel)
    assert stages is not None
    scheduled = schedule_depthwise(kernel, stages, NARROW if narrow else WIDE)
    assert scheduled is not None
    (result,), (expected,) = outputs_of(kernel, scheduled, arrays)
    np.testing.assert_array_equal(result, expected)


def test_equal_pieces_inside_the_image_are_one_loop() -> None:
    kernel, arrays = channels_last((1, 2, 120, 16), (1, 3), pads=[0, 1, 0, 1])
    scheduled = schedule_depthwise(kernel, fused_stages(kernel) or (), WIDE)
    assert scheduled is not None and "x0 < 15" in str(scheduled.function)
    (result,), (expected,) = outputs_of(kernel, scheduled, arrays)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    "case",
    [
        convolution((1, 4, 9, 9), (4, 1, 3, 3), group=4),
        convolution((1, 4, 9, 9), (4, 4, 3, 3)),
    ],
    ids=["channels first", "not depthwise"],
)
def test_other_convolutions_are_left_to_other_schedules(case: tuple[Kernel, list[np.ndarray]]) -> None:
    assert schedule_depthwise(case[0], fused_stages(case[0]) or (), WIDE) is None
