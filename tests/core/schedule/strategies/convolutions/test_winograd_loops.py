"""The loops of Winograd's algorithm: what is done for a channel of a piece, in vectors of channels."""

from __future__ import annotations

import numpy as np
import pytest

from graft.core.machine.rows import ROWS
from graft.core.machine.target import Target
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.parameters import WinogradParameters
from graft.core.schedule.products.epilogue import fused_stages
from graft.core.schedule.strategies.convolutions.winograd import schedule_winograd
from graft.core.tensor_ir.ir import Store
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import walk_statements
from tests.core.schedule.convolutions import convolution, outputs_of


def scheduled(kernel: Kernel, target: Target) -> Scheduled:
    stages = fused_stages(kernel)
    assert stages is not None
    found = schedule_winograd(kernel, stages, target, WinogradParameters(2, 8, columns="channels"))
    assert found is not None
    return found


@pytest.mark.parametrize("machine", ["x86-64-v4", "armv8-a"])
@pytest.mark.parametrize(("inputs", "outputs", "width"), [(3, 5, 7), (17, 20, 13), (16, 32, 16)])
def test_what_is_left_of_channels_and_of_a_row_is_neither_read_nor_stored(
    machine: str, inputs: int, outputs: int, width: int
) -> None:
    kernel, arrays = convolution((1, inputs, 5, width), (outputs, inputs, 3, 3), pads=[1] * 4, residual=True)
    found = scheduled(kernel, Target(ROWS[machine]))
    verify(found.function)
    (result,), (expected,) = outputs_of(kernel, found, arrays)  # the interpreter refuses places outside of a buffer
    np.testing.assert_allclose(result, expected, atol=2e-4)


def test_pieces_that_only_fill_a_tile_are_zeros_of_the_type_of_pieces() -> None:
    kernel, _ = convolution((1, 32, 5, 9), (32, 32, 3, 3), pads=[1] * 4)
    function = scheduled(kernel, Target(ROWS["x86-64-v4"], precision="bf16")).function
    stored = [one for one in walk_statements(function.body) if isinstance(one, Store) and one.buffer.name == "images"]
    assert {one.value.type.dtype for one in stored} == {"bfloat16"}
