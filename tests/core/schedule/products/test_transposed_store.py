from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.schedule.parameters import ContractionParameters
from graft.core.schedule.products import transposed_store
from graft.core.schedule.selection.select import schedule
from tests.core.schedule.convolutions import WIDE, convolution, outputs_of

CHANNELS = ContractionParameters(columns="channels")


@settings(max_examples=8, deadline=None)
@given(
    batch=st.integers(1, 2),
    channels=st.integers(1, 3),
    outputs=st.sampled_from([16, 48, 96]),
    size=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    window=st.sampled_from([1, 3]),
    stride=st.integers(1, 2),
    residual=st.booleans(),
    threads=st.sampled_from([0, 1, 2]),
)
def test_sums_are_transposed_and_finished_as_they_should_be(
    batch: int,
    channels: int,
    outputs: int,
    size: tuple[int, int],
    window: int,
    stride: int,
    residual: bool,
    threads: int,
) -> None:
    source, weights = (batch, channels, *size), (outputs, channels, window, window)
    options = {"pads": [window // 2] * 4, "strides": [stride] * 2}
    kernel, arrays = convolution(source, weights, residual=residual, **options)
    found = schedule(kernel, replace(WIDE, threads=threads), CHANNELS)
    for output, expected in zip(*outputs_of(kernel, found, arrays), strict=True):
        np.testing.assert_array_equal(output, expected)


@pytest.mark.parametrize("threads", [0, 1])
def test_pixels_are_stored_in_runs(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    kernel, _ = convolution((1, 8, 7, 7), (32, 8, 1, 1))
    target = replace(WIDE, threads=threads)
    assert "transposed" in str(schedule(kernel, target, CHANNELS).function)
    monkeypatch.setattr(transposed_store, "SUMS_SHARE", (1 << 10) / (1 << 20))
    assert "transposed" not in str(schedule(kernel, target, CHANNELS).function)
