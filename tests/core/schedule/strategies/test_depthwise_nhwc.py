"""Depthwise convolutions between two Transposes against the tensor IR's interpreter."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.operators import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.products.epilogue import fused_stages
from graft.core.schedule.strategies.depthwise_nhwc import schedule_floats_last, with_channels_last
from graft.core.tensor_ir.ir import Stage
from graft.core.tensor_ir.visit import loads
from tests.core.schedule.convolutions import NARROW, WIDE, buffer, convolution, outputs_of


def between_transposes(
    size: tuple[int, ...], window: tuple[int, int], **attributes: object
) -> tuple[Kernel, list[np.ndarray]]:
    """A depthwise Conv of images ``[n, y, x, c]`` with its Transposes, the addition of another tensor, and Relu."""
    n, height, width, channels = size
    inner, arrays = convolution(
        (n, channels, height, width), (channels, 1, *window), group=channels, residual=True, **attributes
    )
    x, w, bias, _ = inner.inputs
    *stages, joined = inner.stages
    (result,) = {load.buffer for load in loads(joined.value)} & {stage.buffer for stage in stages}
    shape = b.dims(result)
    last = (shape[0], shape[2], shape[3], shape[1])
    source, other, moved, out = (
        buffer(name, extents) for name, extents in (("s", size), ("r", last), ("t", last), ("o", last))
    )
    before = b.compute(x, lambda i: b.load(source, i[0], i[2], i[3], i[1]))
    after = b.compute(moved, lambda i: b.load(result, i[0], i[3], i[1], i[2]))
    finish = b.compute(out, lambda i: b.maximum(b.add(b.load(moved, *i), b.load(other, *i)), 0))
    given = [np.ascontiguousarray(np.moveaxis(array, 1, 3)) for array in (arrays[0], arrays[3])]
    kernel = replace(
        inner,
        inputs=(source, w, bias, other),
        outputs=(out,),
        stages=(before, *stages, after, finish),
        anchor_stage=inner.anchor_stage + 1,
    )
    return kernel, [given[0], arrays[1], arrays[2], given[1]]


@settings(max_examples=10, deadline=None)
@given(
    size=st.tuples(st.integers(1, 2), st.integers(2, 4), st.integers(2, 34), st.integers(2, 20)),
    window=st.tuples(st.integers(1, 4), st.integers(1, 5)),
    stride=st.integers(1, 2),
    pads=st.tuples(*[st.integers(0, 3)] * 4),
    narrow=st.booleans(),
)
def test_any_shape_gives_the_convolution(
    size: tuple[int, ...], window: tuple[int, int], stride: int, pads: tuple[int, ...], narrow: bool
) -> None:
    extents = [size[1] + pads[0] + pads[2] - window[0], size[2] + pads[1] + pads[3] - window[1]]
    if min(extents) < stride:
        return
    kernel, arrays = between_transposes(size, window, strides=[stride] * 2, pads=list(pads))
    stages = fused_stages(kernel)
    assert stages is not None
    scheduled = schedule_floats_last(kernel, stages, NARROW if narrow else WIDE)
    assert scheduled is not None
    (result,), (expected,) = outputs_of(kernel, scheduled, arrays)
    np.testing.assert_array_equal(result, expected)


def test_equal_pieces_inside_the_image_are_one_loop() -> None:
    kernel, arrays = between_transposes((1, 2, 120, 16), (1, 3), pads=[0, 1, 0, 1])
    scheduled = schedule_floats_last(kernel, fused_stages(kernel) or (), WIDE)
    assert scheduled is not None and "piece" in str(scheduled.function)
    (result,), (expected,) = outputs_of(kernel, scheduled, arrays)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    "case",
    [
        between_transposes((1, 9, 9, 4), (3, 3), dilations=[2, 2]),
        convolution((1, 4, 9, 9), (4, 1, 3, 3), group=4),
        convolution((1, 4, 9, 9), (4, 4, 3, 3)),
    ],
    ids=["dilated", "without Transposes", "not depthwise"],
)
def test_other_convolutions_are_left_to_other_schedules(case: tuple[Kernel, list[np.ndarray]]) -> None:
    assert schedule_floats_last(case[0], fused_stages(case[0]) or (), WIDE) is None


def test_a_stage_that_does_more_than_reorder_is_no_transpose() -> None:
    x, y, z = (buffer(name, (2, 3)) for name in "xyz")
    first = b.compute(y, lambda i: b.load(x, *i))
    more: Stage = b.compute(z, lambda i: b.add(b.load(y, *i), 1.0))
    assert with_channels_last([first, more]) is None
