"""Products whose patches are copied a block at a time: of bytes where there is no cache, exact, in little memory."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.machine.target import target_named
from graft.core.operators.definition import build as b
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.strategies.convolutions.im2col_integers import BLOCK_BYTES
from graft.core.tensor_ir.ir import Allocate
from graft.core.tensor_ir.visit import walk_statements
from tests.core.schedule.strategies.convolutions.test_im2col_integers import check, convolution

BOARD = target_named("thumbv7em")


@settings(max_examples=5, deadline=None)
@given(
    image=st.tuples(st.integers(1, 2), st.integers(6, 9), st.integers(7, 9), st.sampled_from((1, 4, 8))),
    outputs=st.integers(2, 9), window=st.sampled_from(((3, 3), (1, 4), (2, 2))),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)), dilation=st.integers(1, 2),
)  # fmt: skip
def test_blocks_of_patches_are_exact(
    image: tuple[int, ...], outputs: int, window: tuple[int, int], strides: tuple[int, int], dilation: int
) -> None:
    attributes = {"strides": list(strides), "dilations": [1, dilation]}
    assert check(*convolution(image, (outputs, image[3], *window), **attributes), BOARD) == "im2col_integers"


def test_memory_is_a_block_s() -> None:
    kernel, _ = convolution((1, 18, 18, 32), (8, 32, 3, 3))
    taken = [one.buffer for one in walk_statements(schedule(kernel, BOARD).function.body) if isinstance(one, Allocate)]
    assert 0 < max(math.prod(b.dims(one)) for one in taken if one.dtype == "uint8") <= BLOCK_BYTES
