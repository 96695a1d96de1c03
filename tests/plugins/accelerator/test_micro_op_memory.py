"""The memory of micro-ops is a ring: what a stage still reads is there until it has read it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graft.plugins.accelerator.codegen import lower
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.frontend.layers import Activation, Convolution, Layer, Requantize
from graft.plugins.accelerator.proof.prove import prove
from tests.plugins.accelerator.test_codegen import run_layers


def chain(source: Activation, kernels: Sequence[int], *widths: int, most: int = 128) -> list[Layer]:
    """Convolutions behind each other, each of its kernel and output channels."""
    layers: list[Layer] = []
    for number, (kernel, width) in enumerate(zip(kernels, widths, strict=True)):
        rng = np.random.default_rng(width)
        weights = rng.integers(-most, most, (width, source.channels, kernel, kernel))
        requantize = Requantize(multiplier=rng.uniform(1e-4, 1e-3, width).astype(np.float32))
        y = Activation(f"y{number}", width, source.height, source.width)
        layers.append(Convolution(y.name, source, y, weights, requantize, pads=(kernel // 2,) * 4))
        source = y
    return layers


def test_a_layer_between_whose_stages_the_ring_wraps_is_bit_equal():
    machine = Configuration(weight_bytes=2048, accumulator_bytes=8192, micro_op_bytes=256)
    run_layers(chain(Activation("x", 96, 13, 11), [1], 130), ["y0"], machine)


def test_three_layers_between_which_the_ring_wraps_hold_what_they_mean():
    layers = chain(Activation("x", 160, 19, 19), [3, 1, 7], 160, 160, 176, most=255)  # weights of nine bits
    lowered = lower(layers, ["y2"], Configuration(micro_op_bytes=8192))
    prove(lowered.program, lowered.source)
