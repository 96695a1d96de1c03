from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.schedule.parameters import ContractionParameters
from graft.core.schedule.selection.select import schedule, strategy_of
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
