"""The memory of micro-ops is a ring: what a stage still reads is there until it has read it."""

from __future__ import annotations

import numpy as np
import pytest

from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.layers import Activation, Convolution, Requantize
from tests.plugins.accelerator.test_codegen import run_layers


def chain(source: Activation, kernel: int, *widths: int) -> list[Convolution]:
    layers: list[Convolution] = []
    for number, width in enumerate(widths):
        x = layers[-1].output if layers else source
        rng = np.random.default_rng(width)
        weights = rng.integers(-128, 128, (width, x.channels, kernel, kernel))
        requantize = Requantize(multiplier=rng.uniform(1e-4, 1e-3, width).astype(np.float32))
        y = Activation(f"y{number}", width, x.height, x.width)
        layers.append(Convolution(y.name, x, y, weights, requantize, pads=(kernel // 2,) * 4))
    return layers


@pytest.mark.parametrize(
    ("machine", "layers"),
    [
        (
            Configuration(weight_bytes=2048, accumulator_bytes=8192, micro_op_bytes=256),
            chain(Activation("x", 96, 13, 11), 1, 130),
        ),
    ],
    ids=["one layer in several stages"],
)
def test_stages_between_which_the_ring_wraps_are_bit_equal(machine, layers):
    run_layers(layers, [layers[-1].name], machine)
