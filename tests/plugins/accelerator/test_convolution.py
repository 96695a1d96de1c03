"""Convolutions as programs, against the sums that they mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from graft.errors import CompileError
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.convolution import (
    Convolution,
    compile_convolution,
    packed_activation,
    unpacked_activation,
)
from graft.plugins.accelerator.proof import prove
from graft.plugins.accelerator.simulator import run_cycles, run_functional
from graft.plugins.accelerator.tiling import choose

SMALL = Configuration(input_bytes=2048, weight_bytes=8192, accumulator_bytes=8192)


def random_convolution(seed: int) -> tuple[Convolution, npt.NDArray[Any]]:
    rng = np.random.default_rng(seed)
    outputs, inputs, height, width = (int(n) for n in rng.integers((1, 1, 5, 5), (50, 50, 14, 14)))
    kernel = [int(n) for n in rng.integers(1, 4, 2)]
    convolution = Convolution(
        height, width, rng.integers(-128, 128, (outputs, inputs, *kernel)).astype(np.int8),
        rng.integers(-5000, 5000, outputs).astype(np.int32), rng.uniform(1e-4, 1e-3, outputs).astype(np.float32), 0.37,
        int(rng.integers(-128, 128)), int(rng.integers(-128, 128)), bool(rng.integers(2)),
        (int(rng.integers(1, 3)), int(rng.integers(1, 3))), tuple(int(n) for n in rng.integers(0, 3, 4)),
        (int(rng.integers(1, 3)), int(rng.integers(1, 3))),
    )  # fmt: skip
    return convolution, rng.integers(-128, 128, (inputs, height, width)).astype(np.int8)


def expected(one: Convolution, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The sums in integers, requantised as QuantizeLinear does."""
    top, left, bottom, right = one.pads
    wide = np.pad(x.astype(np.int32) - one.input_zero, ((0, 0), (top, bottom), (left, right)))
    rows, columns = one.shape(SMALL).result
    sums = np.zeros((len(one.weights), rows, columns), np.int32)
    for row in range(one.weights.shape[2]):
        for column in range(one.weights.shape[3]):
            down, across = row * one.dilations[0], column * one.dilations[1]
            part = wide[:, down :: one.strides[0], across :: one.strides[1]][:, :rows, :columns]
            sums += np.tensordot(one.weights[:, :, row, column].astype(np.int32), part, 1)
    floats = (sums + one.bias[:, None, None]).astype(np.float32) * one.multiplier[:, None, None]
    whole = np.rint(floats / np.float32(one.divisor)).astype(np.int64) + one.output_zero
    return np.clip(whole, one.output_zero if one.relu else -128, 127).astype(np.int8)


@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("seed", range(12))
def test_a_random_convolution_is_bit_equal(seed, buffers):
    convolution, x = random_convolution(seed)
    shape = convolution.shape(SMALL)
    program = compile_convolution(convolution, SMALL, choose(shape, SMALL, buffers))
    prove(program)
    wanted = expected(convolution, x)
    for run in (run_functional, lambda program, inputs, seed: run_cycles(program, inputs)):
        outputs = run(program, {"x": packed_activation(x, 16)}, seed).outputs
        assert np.array_equal(unpacked_activation(outputs["y"], *wanted.shape, 16), wanted)


def test_two_buffers_hide_transfers():
    convolution, x = random_convolution(1)
    convolution = replace(convolution, height=13, width=13)
    inputs = {"x": packed_activation(np.zeros((x.shape[0], 13, 13), np.int8), 16)}
    shape = convolution.shape(SMALL)
    cycles = [
        run_cycles(compile_convolution(convolution, SMALL, choose(shape, SMALL, buffers)), inputs).counters.cycles
        for buffers in (1, 2)
    ]
    assert cycles[1] < cycles[0]


def test_a_convolution_that_fits_in_no_tile_is_refused_with_the_numbers():
    convolution, _ = random_convolution(1)
    shape = replace(convolution, pads=(16, 0, 0, 0)).shape(SMALL)
    with pytest.raises(CompileError) as caught:
        choose(shape, SMALL)
    kernel = convolution.weights.shape[2:]
    assert str(caught.value) == (
        f"accelerator: size: no tile of a convolution of {kernel[0]} x {kernel[1]} with pads (16, 0, 0, 0) fits into 2 "
        f"buffers of 64 inputs, 16 weights and 128 accumulators less {3 * shape.outputs}"
    )
