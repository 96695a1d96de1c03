"""Convolutions in bfloat16 with channels last: pairs of channels are multiplied, whatever the windows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.schedule.selection.select import rounds, schedule, strategy_of
from graft.core.tensor_ir.ir import Allocate
from graft.core.tensor_ir.visit import walk_statements
from graft.core.tuning.candidates import STAGES, candidates
from tests.core.schedule.convolutions import convolution
from tests.core.schedule.strategies.convolutions.channels_last import (
    SAME,
    SHORT,
    WIDE,
    check,
    extent,
    with_channels_last,
)


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
def test_windows_of_any_form_multiply_pairs(
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


def test_a_window_of_one_pixel_is_read_where_it_lies() -> None:
    scheduled = check(convolution((2, 16, 3, 5), (20, 16, 1, 1), residual=True), WIDE)
    assert (scheduled.strategy, scheduled.knobs["dot"]) == ("pointwise_nhwc", "dot2_bf16")
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


def test_the_planes_of_a_first_convolution_are_rounded_where_that_pays() -> None:
    large = convolution((1, 3, 64, 64), (64, 3, 7, 7), pads=[3, 3, 3, 3], strides=[2, 2])[0]
    small = convolution((1, 3, 64, 64), (16, 3, 3, 3), **SAME)[0]
    for kernel, strategy in ((large, "direct_nhwc"), (small, "first_convolution")):
        moved, _ = with_channels_last(kernel, [], "wx")
        assert schedule(moved, WIDE).strategy == strategy
        assert rounds(moved, WIDE) == (strategy == "direct_nhwc")


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
        assert found or stage > 0  # at first all rows that apply propose something, whatever they cost
