"""Convolutions in bfloat16 with channels last: products of patches, and Winograd's algorithm.

Inputs are small integers: they and what is computed from them are exact in bfloat16 and float32 until the result, which
is rounded once. So schedules are compared bit by bit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.machine.target import Target, target_named
from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.inline import relaid
from graft.core.schedule.loops.narrowing import reading, storing
from graft.core.schedule.parameters import ContractionParameters
from graft.core.schedule.selection.select import schedule, strategy_of
from graft.core.tensor_ir.ir import Allocate, For
from graft.core.tensor_ir.visit import walk_statements
from graft.core.tuning.candidates import STAGES, candidates
from graft.runtime.dtypes import numpy_dtype
from tests.core.schedule.convolutions import convolution, outputs_of

WIDE = replace(target_named("x86-64-v4+avx512bf16"), precision="bf16")
SHORT = replace(target_named("x86-64-v3"), precision="bf16")
DIRECT = replace(WIDE, without=frozenset({"winograd"}))
LAST = (0, 2, 3, 1)
SAME = {"pads": [1, 1, 1, 1]}


def with_channels_last(kernel: Kernel, arrays: list[np.ndarray], apart: str = "w") -> tuple[Kernel, list[np.ndarray]]:
    """The kernel with its images in bfloat16, channels last, but for the inputs named in ``apart``."""
    every = (*kernel.inputs, *(stage.buffer for stage in kernel.stages))
    images = [buffer for buffer in every if buffer.name not in apart]
    moved = {
        buffer: replace(buffer, shape=tuple(buffer.shape[axis] for axis in LAST))
        for buffer in dict.fromkeys(images)
        if len(buffer.shape) == 4
    }
    narrow = {new: replace(new, dtype="bfloat16") for new in moved.values()}
    given = {moved[buffer]: narrow[moved[buffer]] for buffer in kernel.inputs if buffer in moved}
    stages = [reading(relaid(stage, moved, LAST), given) for stage in kernel.stages]
    (out,) = (moved[buffer] for buffer in kernel.outputs)
    changed = replace(
        kernel,
        inputs=tuple(given.get(moved.get(buffer, buffer), buffer) for buffer in kernel.inputs),
        outputs=(narrow[out],),
        stages=tuple(storing(stages, {out: narrow[out]})),
    )
    bfloat16 = numpy_dtype("bfloat16")
    pairs = zip(kernel.inputs, arrays, strict=True)
    return changed, [array.transpose(LAST).astype(bfloat16) if item in moved else array for item, array in pairs]


def check(
    case: tuple[Kernel, list[np.ndarray]],
    target: Target,
    parameters: ContractionParameters | None = None,
    apart: str = "w",
) -> Scheduled:
    """The scheduled function computes what the stages say."""
    kernel, arrays = with_channels_last(*case, apart)
    scheduled: Scheduled = schedule(kernel, target, parameters)
    for output, expected in zip(*outputs_of(kernel, scheduled, arrays), strict=True):
        np.testing.assert_array_equal(output, expected)
    return scheduled


extent = st.integers(1, 9)


@settings(max_examples=15, deadline=None)
@given(
    image=st.tuples(st.integers(1, 2), st.integers(1, 37), extent, extent),
    outputs=st.integers(2, 37),
    window=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    wide=st.booleans(),
)
def test_windows_of_any_form_are_products_of_patches(
    image: tuple[int, ...],
    outputs: int,
    window: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pads: tuple[int, ...],
    wide: bool,
) -> None:
    reach = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
    if any(n + pads[d] + pads[d + 2] < reach[d] for d, n in enumerate(image[2:])):
        return
    attributes = {"strides": list(strides), "dilations": list(dilations), "pads": list(pads)}
    case = convolution(image, (outputs, image[1], *window), residual=True, **attributes)
    assert check(case, WIDE if wide else SHORT).knobs["dot"] == "dot2_bf16"


@pytest.mark.parametrize("block_bytes", [None, 4000])
def test_patches_are_copied_a_block_at_a_time(block_bytes: int | None) -> None:
    case = convolution((1, 33, 11, 6), (40, 33, 3, 3), strides=[2, 2], **SAME)
    text = str(check(case, replace(WIDE, threads=1), ContractionParameters(block_bytes=block_bytes)).function)
    assert ("block" in text) == (block_bytes is not None)


def test_a_window_of_one_pixel_is_read_where_it_lies() -> None:
    scheduled = check(convolution((2, 16, 3, 5), (20, 16, 1, 1), residual=True), WIDE)
    assert (scheduled.strategy, scheduled.knobs["dot"]) == ("im2col_bf16", "dot2_bf16")
    memories = {one.buffer.memory for one in walk_statements(scheduled.function.body) if isinstance(one, Allocate)}
    assert memories == {"register"}


@settings(max_examples=8, deadline=None)
@given(
    image=st.tuples(st.integers(1, 2), st.integers(1, 4), extent, st.integers(4, 19)),
    window=st.tuples(st.integers(1, 3), st.integers(1, 7)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pads=st.tuples(*[st.integers(0, 3)] * 4),
    wide=st.booleans(),
)
def test_first_convolutions_read_planes(
    image: tuple[int, ...], window: tuple[int, int], strides: tuple[int, int], pads: tuple[int, ...], wide: bool
) -> None:
    if any(n + pads[d] + pads[d + 2] < window[d] for d, n in enumerate(image[2:])):
        return
    case = convolution(image, (35, image[1], *window), residual=True, strides=list(strides), pads=list(pads))
    check(case, WIDE if wide else SHORT, apart="wx")


def test_a_first_convolution_is_a_product_where_that_pays() -> None:
    large = convolution((1, 3, 5, 30), (64, 3, 7, 7), pads=[3, 3, 3, 3], strides=[2, 2])
    small = convolution((1, 3, 5, 30), (16, 3, 3, 3), **SAME)
    assert check(large, WIDE, apart="wx").strategy == "first_convolution_bf16"
    assert check(small, WIDE, apart="wx").strategy == "first_convolution"


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
    assert check(convolution((1, 32, 6, 6), (48, 32, 3, 3), **SAME), WIDE).strategy == "winograd_nhwc"
    for source, weights, attributes in (
        ((1, 32, 14, 14), (48, 32, 3, 3), {**SAME, "strides": [2, 2]}),
        ((1, 32, 14, 14), (48, 32, 3, 3), {**SAME, "dilations": [2, 2]}),
        ((1, 32, 14, 14), (47, 32, 3, 3), SAME),
        ((1, 30, 14, 14), (48, 30, 3, 3), SAME),
        ((1, 32, 14, 14), (48, 32, 3, 2), {}),
    ):
        kernel, _ = with_channels_last(*convolution(source, weights, **attributes))
        assert schedule(kernel, WIDE).strategy == "im2col_bf16"
    kernel, _ = with_channels_last(*convolution((1, 32, 14, 14), (48, 32, 3, 3), **SAME))
    assert schedule(kernel, DIRECT).strategy == "im2col_bf16"


def test_many_blocks_of_pieces_are_shared_out_whole() -> None:
    scheduled = check(convolution((8, 32, 4, 6), (32, 32, 3, 3), **SAME), replace(WIDE, threads=2))
    assert scheduled.strategy == "winograd_nhwc"
    outer = next(walk_statements(scheduled.function.body))
    assert isinstance(outer, For) and outer.kind == "parallel"


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


@pytest.mark.parametrize(
    ("source", "weights", "apart"),
    [
        ((1, 32, 14, 14), (48, 32, 3, 3), "w"),
        ((1, 30, 14, 14), (48, 30, 3, 3), "w"),
        ((1, 3, 9, 30), (64, 3, 7, 7), "wx"),
        ((1, 3, 9, 30), (16, 3, 3, 3), "wx"),
    ],
)
def test_a_strategy_and_its_candidates_are_known_before_anything_is_built(
    source: tuple[int, ...], weights: tuple[int, ...], apart: str
) -> None:
    kernel, _ = with_channels_last(*convolution(source, weights, **SAME), apart)
    scheduled, row = schedule(kernel, WIDE), strategy_of(kernel, WIDE)
    assert row is not None
    assert row.name == scheduled.strategy
    for stage in range(STAGES):
        found = candidates(kernel, WIDE, stage, None)
        # At first all rows that apply propose something, whatever they cost; then the one that is taken.
        assert bool(found) == (stage == 0 or row.candidates is not None)
