"""Convolutions of single pixels whose channels are last: products of rows, unless they have one channel."""

from __future__ import annotations

import pytest

from tests.core.schedule.convolutions import convolution
from tests.core.schedule.strategies.convolutions.channels_last import DIRECT, check


@pytest.mark.parametrize(
    ("channels", "window", "strategy"),
    [(32, 1, "pointwise_nhwc"), (64, 1, "pointwise_nhwc"), (32, 3, "direct_nhwc"), (1, 1, "direct_nhwc")],
)
def test_single_pixels_of_several_channels_are_products(channels: int, window: int, strategy: str) -> None:
    case = convolution((1, channels, 6, 5), (32, channels, window, window))
    assert check(case, DIRECT).strategy == strategy
