"""Convolutions that write channels last, from few channels or from single pixels, against their stages."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from graft.core.machine.rows import ROWS
from graft.core.machine.target import Target
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.inline import relaid
from graft.core.schedule.products.epilogue import fused_stages
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.strategies.convolutions.first_convolution import schedule_few_channels
from graft.core.tensor_ir.ir import Buffer
from tests.core.schedule.convolutions import NARROW, WIDE, convolution, outputs_of
from tests.core.schedule.strategies.convolutions.varying_images import computed, kernel_of

LAST = (0, 2, 3, 1)


def stored_last(kernel: Kernel, arrays: list[np.ndarray], *inputs: str) -> tuple[Kernel, list[np.ndarray]]:
    """The kernel with its stages' buffers, and inputs of these names, with channels last."""
    old = [*(stage.buffer for stage in kernel.stages), *(one for one in kernel.inputs if one.name in inputs)]
    moved: dict[Buffer, Buffer] = {one: replace(one, shape=tuple(one.shape[axis] for axis in LAST)) for one in old}
    given = [
        np.ascontiguousarray(array.transpose(LAST)) if one in moved else array
        for one, array in zip(kernel.inputs, arrays, strict=False)
    ]
    changed = replace(
        kernel,
        inputs=tuple(moved.get(one, one) for one in kernel.inputs),
        outputs=tuple(moved[one] for one in kernel.outputs),
        stages=tuple(relaid(stage, moved, LAST) for stage in kernel.stages),
    )
    return changed, given


@settings(max_examples=8, deadline=None)
@given(
    batch=st.integers(1, 2),
    channels=st.integers(1, 4),
    outputs=st.integers(1, 20),
    size=st.tuples(st.integers(5, 6), st.integers(5, 34)),
    window=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.integers(1, 2),
    dilation=st.integers(1, 2),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    narrow=st.booleans(),
)
def test_a_first_convolution_of_any_shape_is_computed(
    batch: int, channels: int, outputs: int, size: tuple[int, int], window: tuple[int, int], stride: int, dilation: int,
    pads: tuple[int, ...], narrow: bool,
) -> None:  # fmt: skip
    source, weights = (batch, channels, *size), (outputs, channels, *window)
    case = convolution(source, weights, strides=[stride] * 2, dilations=[dilation] * 2, pads=list(pads), residual=True)
    kernel, arrays = stored_last(*case, "other")
    scheduled = schedule_few_channels(kernel, fused_stages(kernel) or (), NARROW if narrow else WIDE)
    assert scheduled is not None
    (result,), (expected,) = outputs_of(kernel, scheduled, arrays)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    "case",
    [
        convolution((1, 3, 9, 9), (8, 3, 3, 3), constant=False),
    ],
    ids=["computed weights"],
)
def test_other_first_convolutions_are_left_to_other_schedules(case: tuple[Kernel, list[np.ndarray]]) -> None:
    kernel, arrays = stored_last(*case)
    assert schedule_few_channels(kernel, fused_stages(kernel) or (), WIDE) is None
    (result,), (expected,) = outputs_of(kernel, schedule(kernel, WIDE), arrays)
    np.testing.assert_array_equal(result, expected)


@settings(max_examples=8, deadline=None)
@example(batch=1, channels=1, outputs=1, size=(2, 5), narrow=False)
@given(
    batch=st.integers(1, 2),
    channels=st.integers(1, 9),
    outputs=st.integers(1, 20),
    size=st.tuples(st.integers(2, 4), st.integers(2, 9)),
    narrow=st.booleans(),
)
def test_a_pointwise_convolution_with_channels_last_is_a_product_of_rows(
    batch: int, channels: int, outputs: int, size: tuple[int, int], narrow: bool
) -> None:
    case = convolution((batch, channels, *size), (outputs, channels, 1, 1), residual=True)
    kernel, arrays = stored_last(*case, "x", "other")
    scheduled = schedule(kernel, NARROW if narrow else WIDE)
    (result,), (expected,) = outputs_of(kernel, scheduled, arrays)
    np.testing.assert_array_equal(result, expected)
    if 1 in (channels, outputs):  # no product, or one by a column, whose rows are read where they lie
        return
    assert scheduled.strategy == "pointwise_nhwc"


@pytest.mark.parametrize(
    ("channels", "strategy", "tolerance"), [(3, "varying_first_convolution", 0.0), (16, "winograd", 2e-4)]
)
def test_an_open_image_of_many_channels_is_transposed_on_its_way(
    channels: int, strategy: str, tolerance: float
) -> None:
    kind = ((16, channels, 3, 3), {"pads": [1, 1, 1, 1]})
    kernel, constants = kernel_of(*kind)
    kernel, _ = stored_last(kernel, [])
    assert computed(kernel, constants, kind, "x86-64-v4", [(2, 5, 7), (1, 1, 1)], tolerance=tolerance) == strategy


@pytest.mark.parametrize("size", [(), (3, 50, 46)], ids=["open", "known"])
def test_tiles_beside_an_image_have_bounds_in_the_place_of_conditions(size: tuple[int, ...]) -> None:
    weights, attributes = (64, 3, 7, 7), {"pads": [3] * 4, "strides": [2, 2]}
    kernel, _ = kernel_of(weights, attributes, size[1:])
    kernel, _ = stored_last(kernel, [])
    scheduled = schedule(kernel, Target(ROWS["x86-64-v4"]))
    assert scheduled.strategy == ("convolution_by_image" if size else "varying_first_convolution")
    assert "clip kx.border\n" in scheduled.steps
    assert scheduled.knobs["vectors"] * scheduled.knobs["x"] == 16


@pytest.mark.parametrize(("outputs", "pixels"), [(16, 8), (48, 4), (80, 3)])
def test_tiles_of_open_rows_have_a_power_of_two_of_pixels_that_fits_most_lengths(outputs: int, pixels: int) -> None:
    kernel, _ = stored_last(kernel_of((outputs, 3, 3, 3), {"pads": [1] * 4})[0], [])
    scheduled = schedule(kernel, Target(ROWS["x86-64-v4"]))
    assert (scheduled.strategy, scheduled.knobs["x"]) == ("varying_first_convolution", pixels)
