"""Depthwise convolutions, and those of groups of few channels, against the tensor IR's interpreter."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.machine.target import Target, target_named
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.inline import relaid
from graft.core.schedule.selection.select import schedule
from tests.core.schedule.convolutions import NARROW, WIDE, check, convolution, outputs_of

LAST = (0, 2, 3, 1)
TARGETS = [WIDE, NARROW, target_named("x86-64-v3"), target_named("aarch64")]
targets = st.sampled_from(TARGETS)


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
    target=targets,
)
def test_any_shape_gives_the_convolution(
    size: tuple[int, ...], window: tuple[int, int], stride: int, dilation: int, pads: tuple[int, ...], target: Target
) -> None:
    extents = [size[1 + d] + pads[d] + pads[2 + d] - dilation * (window[d] - 1) for d in range(2)]
    if min(extents) < stride + 1:
        return
    kernel, arrays = channels_last(size, window, strides=[stride] * 2, dilations=[dilation] * 2, pads=list(pads))
    scheduled = schedule(kernel, target)
    assert scheduled.strategy == "depthwise_nhwc"
    (result,), (expected,) = outputs_of(kernel, scheduled, arrays)
    np.testing.assert_array_equal(result, expected)


def test_equal_pieces_inside_the_image_are_one_loop() -> None:
    kernel, arrays = channels_last((1, 2, 120, 16), (1, 3), pads=[0, 1, 0, 1])
    scheduled = schedule(kernel, WIDE)
    assert "x0 < 15" in str(scheduled.function)
    (result,), (expected,) = outputs_of(kernel, scheduled, arrays)
    np.testing.assert_array_equal(result, expected)


@settings(max_examples=20, deadline=None)
@given(
    rank=st.integers(1, 3),
    data=st.data(),
    groups=st.integers(2, 4),
    outputs=st.integers(1, 3),
    inputs=st.integers(1, 2),
    target=targets,
)
def test_any_groups_of_few_channels_give_the_convolution(
    rank: int, data: st.DataObject, groups: int, outputs: int, inputs: int, target: Target
) -> None:
    def each(least: int, most: int) -> list[int]:
        return [data.draw(st.integers(least, most)) for _ in range(rank)]

    size, window, strides, dilations = each(1, 20 if rank < 3 else 9), each(1, 4), each(1, 3), each(1, 2)
    begins, ends = each(0, 2), each(0, 2)
    reach = [(k - 1) * step + 1 for k, step in zip(window, dilations, strict=True)]
    size = [max(n, far - before - after) for n, far, before, after in zip(size, reach, begins, ends, strict=True)]
    kernel, arrays = convolution(
        (1, groups * inputs, *size),
        (groups * outputs, inputs, *window),
        group=groups,
        strides=strides,
        dilations=dilations,
        pads=[*begins, *ends],
    )
    check(kernel, arrays, target)


@pytest.mark.parametrize("target", TARGETS, ids=["masks", "scalars", "overlapping", "aarch64"])
@pytest.mark.parametrize("strides", [[1, 1], [2, 2]], ids=["of every pixel", "of every second"])
def test_windows_of_planes_share_what_they_read(strides: list[int], target: Target) -> None:
    kernel, arrays = convolution((1, 4, 19, 21), (4, 1, 3, 3), pads=[1] * 4, strides=strides, group=4, residual=True)
    scheduled = schedule(kernel, target)
    assert scheduled.strategy == "depthwise_nchw"
    assert f"skew y.sum {strides[0]} ky 1 -> column\nhoist ky\n" in (scheduled.steps or "")
    (result,), (expected,) = outputs_of(kernel, scheduled, arrays)
    np.testing.assert_array_equal(result, expected)


def test_a_large_window_is_not_written_out() -> None:
    kernel, _ = convolution((1, 2, 32, 32), (2, 1, 31, 31), pads=[15] * 4, group=2)
    scheduled = schedule(kernel, WIDE)
    assert scheduled.strategy == "depthwise_nchw" and "skew" not in (scheduled.steps or "")
    assert len(str(scheduled.function)) < 50_000


def test_planes_of_a_window_that_no_tile_slides_along_are_not_written_out() -> None:
    kernel, arrays = convolution((1, 2, 4, 16, 16), (2, 1, 7, 7, 7), pads=[3] * 6, group=2)
    scheduled = schedule(kernel, WIDE)
    assert (scheduled.knobs["y"], "unroll kz" in (scheduled.steps or "")) == (16, False)
    (result,), (expected,) = outputs_of(kernel, scheduled, arrays)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("pads", "is_written_out"), [(1, False), (7, True)])
def test_a_window_of_more_terms_than_results_is_not_written_out(pads: int, is_written_out: bool) -> None:
    kernel, _ = convolution((1, 2, 14, 14), (2, 1, 14, 14), pads=[pads] * 4, group=2)
    scheduled = schedule(kernel, WIDE)
    assert (scheduled.strategy, "skew" in (scheduled.steps or "")) == ("depthwise_nchw", is_written_out)


def test_convolutions_of_many_channels_are_left_to_other_schedules() -> None:
    assert schedule(convolution((1, 4, 9, 9), (4, 4, 3, 3))[0], WIDE).strategy == "direct_convolution"


def test_rows_that_fill_no_vector_are_left_to_vectors_of_a_window_that_does() -> None:
    kernel, arrays = convolution((1, 2, 20, 20), (2, 1, 20, 20), pads=[1] * 4, group=2)
    scheduled = schedule(kernel, WIDE)
    assert scheduled.strategy == "generic_nest"
    assert "rows of 3 pixels fill no vector" in str(scheduled.refusals["depthwise_nchw"])
    (result,), (expected,) = outputs_of(kernel, scheduled, arrays)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_rows_that_windows_read_apart_have_vectors_whatever_they_fill() -> None:
    kernel, arrays = convolution((1, 2, 42, 42), (2, 1, 20, 20), dilations=[2, 2], group=2)
    scheduled = schedule(kernel, WIDE)
    assert scheduled.strategy == "depthwise_nchw"
    (result,), (expected,) = outputs_of(kernel, scheduled, arrays)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((1, 5, 40, 1), "y"),
        ((2, 3, 1, 40), "x"),
        ((1, 4, 33, 1), "y"),
        ((1, 4, 5, 20, 1), "y"),
        ((1, 3, 30, 1, 1), "z"),
    ],
)
@pytest.mark.parametrize("strides", [1, 2])
def test_images_of_one_column_have_vectors_along_it(shape: tuple[int, ...], axis: str, strides: int) -> None:
    _, channels, *extents = shape
    window = [min(7 if len(extents) < 3 else 3, extent) for extent in extents]
    pads = [size // 2 for size in (*window, *window)]
    steps = [min(strides, extent) for extent in extents]
    kernel, arrays = convolution(shape, (channels, 1, *window), pads=pads, group=channels, strides=steps)
    scheduled = schedule(kernel, WIDE)
    assert scheduled.strategy == "depthwise_nchw"
    assert f"vectorize {axis}" in (scheduled.steps or "").splitlines()
    (result,), (expected,) = outputs_of(kernel, scheduled, arrays)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("window", "stride", "target", "order"),
    [(3, 1, WIDE, 1), (7, 1, WIDE, 0), (7, 2, WIDE, 0), (5, 1, NARROW, 0), (5, 2, NARROW, 1)],
)
def test_tiles_of_large_windows_go_down_columns(window: int, stride: int, target: Target, order: int) -> None:
    pads, strides = [window // 2] * 4, [stride] * 2
    kernel, _ = convolution((1, 4, 64, 64), (4, 1, window, window), pads=pads, strides=strides, group=4)
    assert schedule(kernel, target).knobs["order"] == order
