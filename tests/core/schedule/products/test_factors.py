"""When factors of a product are copied before use: by how their rows lie in the caches, and how often they are read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graft.core.machine.rows import GENERIC
from graft.core.machine.target import Target
from graft.core.schedule.parameters import ContractionParameters
from graft.core.schedule.selection.select import schedule
from tests.core.schedule.convolutions import WIDE, convolution, outputs_of

CHANNELS, PIXELS = (ContractionParameters(columns=columns) for columns in ("channels", "pixels"))


@pytest.mark.parametrize(("size", "outputs", "threads"), [((7, 3), 192, 1), ((5, 9), 144, 0), ((4, 5), 384, 2)])
def test_rows_whose_terms_lie_apart_are_copied_in_columns_as_high_as_a_tile(
    size: tuple[int, int], outputs: int, threads: int
) -> None:
    kernel, arrays = convolution((2, 5, *size), (outputs, 5, 1, 1), residual=True)
    found = schedule(kernel, replace(WIDE, threads=threads), CHANNELS)
    assert "allocate columns" in str(found.function)
    for output, expected in zip(*outputs_of(kernel, found, arrays), strict=True):
        np.testing.assert_array_equal(output, expected)


def test_rows_are_read_where_they_lie_for_few_panels_and_on_machines_without_caches() -> None:
    kernel, _ = convolution((1, 21, 7, 7), (16, 21, 1, 1))
    assert "allocate columns" not in str(schedule(kernel, WIDE, CHANNELS).function)
    kernel, _ = convolution((1, 21, 7, 7), (192, 21, 1, 1))
    assert "allocate columns" not in str(schedule(kernel, Target(GENERIC), CHANNELS).function)


@pytest.mark.parametrize(
    ("channels", "size", "factor"),
    [
        (1200, (7, 8), "packed at once"),  # as many lines as the cache has, none of them whole
        (50, (7, 8), "in place"),
        (1200, (4, 256), "packed by panel"),
        (100, (4, 256), "packed by panel"),  # few lines, but 1,024 bytes apart: all fall into few sets
        (50, (4, 255), "in place"),
    ],
)
def test_a_panel_that_does_not_stay_in_the_nearest_cache_is_packed(
    channels: int, size: tuple[int, int], factor: str
) -> None:
    kernel, _ = convolution((1, channels, *size), (120, channels, 1, 1))
    assert schedule(kernel, replace(WIDE, threads=1), PIXELS).knobs["factor"] == factor


def test_long_sums_are_transposed_behind_their_last_span() -> None:
    kernel, arrays = convolution((1, 70, 3, 5), (48, 70, 1, 1))
    found = schedule(kernel, replace(WIDE, threads=1), replace(CHANNELS, span_bytes=64))
    text = str(found.function)
    assert "transposed" in text and "partial" in text
    for output, expected in zip(*outputs_of(kernel, found, arrays), strict=True):
        np.testing.assert_array_equal(output, expected)
