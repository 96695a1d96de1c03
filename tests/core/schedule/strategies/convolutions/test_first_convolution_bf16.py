from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.schedule.convolutions import convolution
from tests.core.schedule.strategies.convolutions.channels_last import (
    SAME,
    SHORT,
    WIDE,
    check,
    extent,
)


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
