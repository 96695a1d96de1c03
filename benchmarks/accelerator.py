"""ResNet-18 on the accelerator: cycles and utilisation, latency hidden or not, sums forwarded or not.

Each result is compared with the functional simulator's under another interleaving; times are of this machine, cycles
are not. ``python -m benchmarks.accelerator``
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import mean

import numpy as np

from graft.plugins.accelerator.codegen import Lowered, lower
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.frontend.layers import (
    Activation,
    Addition,
    Convolution,
    Layer,
    Pooling,
    PoolingKind,
    Product,
    Requantize,
)
from graft.plugins.accelerator.proof.prove import prove
from graft.plugins.accelerator.simulator import Run, cycles_of, run_cycles, run_functional

RNG = np.random.default_rng(0)


def convolution(name: str, source: Activation, outputs: int, kernel: int, stride: int) -> Convolution:
    """Return a convolution with random numbers that keeps its extents but for the stride, with Relu behind."""
    size = (source.height + 2 * (kernel // 2) - kernel) // stride + 1
    requantize = Requantize(
        RNG.integers(-9999, 9999, outputs).astype(np.int32),
        RNG.uniform(1e-4, 1e-3, outputs).astype(np.float32),
        0.5,
        lower=0,
    )
    weights = RNG.integers(-128, 128, (outputs, source.channels, kernel, kernel)).astype(np.int8)
    output = Activation(name, outputs, size, size, scale=0.05)
    return Convolution(name, source, output, weights, requantize, (stride, stride), (kernel // 2,) * 4)


LAYERS = (
    ("C2", 56, 64, 64, 3, 1),
    ("C3", 56, 64, 128, 3, 2),
    ("C4", 56, 64, 128, 1, 2),
    ("C5", 28, 128, 128, 3, 1),
    ("C6", 28, 128, 256, 3, 2),
    ("C7", 28, 128, 256, 1, 2),
    ("C8", 14, 256, 256, 3, 1),
    ("C9", 14, 256, 512, 3, 2),
    ("C10", 14, 256, 512, 1, 2),
    ("C11", 7, 512, 512, 3, 1),
)
"""Name, height, input and output channels, kernel and stride: the layers of VTA's own benchmark."""


def resnet18() -> list[Layer]:
    """Return the whole network of integers, from the image to the classes."""
    image = Activation("image", 3, 224, 224, scale=0.02, zero_point=4)
    first = convolution("c1", image, 64, 7, 2)
    x = Activation("pooled", 64, 56, 56, scale=0.05)
    layers: list[Layer] = [first]
    layers.append(Pooling("pool", PoolingKind.MAX, first.output, x, (3, 3), (2, 2), (1, 1, 1, 1)))
    for stage, channels in enumerate((64, 128, 256, 512)):
        for block in range(2):
            name, stride = f"s{stage}b{block}", 2 if stage and not block else 1
            shortcut = x
            if stride == 2:
                layers.append(convolution(f"{name}d", x, channels, 1, 2))
                shortcut = layers[-1].output
            layers.append(convolution(f"{name}a", x, channels, 3, stride))
            layers.append(convolution(f"{name}b", layers[-1].output, channels, 3, 1))
            made = layers[-1].output
            x = Activation(f"{name}s", channels, made.height, made.width, scale=0.07)
            layers.append(Addition(name, made, shortcut, x, lower=0))
    mean_ = Activation("mean", 512, scale=0.03)
    layers.append(Pooling("average", PoolingKind.AVERAGE, x, mean_, (7, 7)))
    weights, requantize = RNG.integers(-128, 128, (512, 1000)), Requantize(divisor=500.0)
    layers.append(Product("classes", mean_, weights, Activation("classes", 1000, scale=0.1), requantize))
    return layers


@dataclass
class Seconds:
    """What was spent on this machine."""

    compiling: float = 0.0
    proving: float = 0.0
    functional: float = 0.0
    timed: float = 0.0


TRIALS = 24
"""Tilings of a layer that the search tries on the cycle simulator."""
WAYS = {"one buffer": (1, 0), "two buffers": (2, 0), "two, by trials": (2, TRIALS)}
"""Buffers for each memory, and trials: with none the model of time chooses."""


def simulated(
    layers: Sequence[Layer], output: str, configuration: Configuration, buffers: int, trials: int = 0
) -> tuple[Lowered, Run, Seconds]:
    """Return the program of layers and its timed run."""
    marks = [time.perf_counter()]
    lowered = lower(layers, [output], configuration, buffers, trials)
    marks.append(time.perf_counter())
    prove(lowered.program, lowered.source)
    marks.append(time.perf_counter())
    rng = np.random.default_rng(1)
    inputs: Mapping[str, bytes] = {name: rng.bytes(packing.bytes) for name, packing in lowered.inputs.items()}
    functional = run_functional(lowered.program, inputs, seed=1)
    marks.append(time.perf_counter())
    run = run_cycles(lowered.program, inputs)
    marks.append(time.perf_counter())
    assert run.outputs == functional.outputs, f"{layers[0].name}: the simulators differ"
    return lowered, run, Seconds(*(after - before for before, after in pairwise(marks)))


def print_layers(configuration: Configuration) -> None:
    """Print C2 to C11: latency not hidden, hidden, and tilings chosen by trials."""
    print(f"| layer | products | {' | | '.join(WAYS)} | |\n|{'---|' * (2 + 2 * len(WAYS))}")
    shares: dict[str, list[float]] = {way: [] for way in WAYS}
    for name, size, inputs, outputs, kernel, stride in LAYERS:
        layer = convolution("y", Activation("x", inputs, size, size), outputs, kernel, stride)
        cells, products = [], 0.0
        for way, (buffers, trials) in WAYS.items():
            lowered, run, _ = simulated([layer], "y", configuration, buffers, trials)
            products = lowered.layers[0].useful
            shares[way].append(products / run.counters.cycles)
            cells += [f"{run.counters.cycles:,}", f"{shares[way][-1]:.1%}"]
        print(f"| {name} | {products:,.0f} | {' | '.join(cells)} |", flush=True)
    print(f"| mean | | | {' | | '.join(f'{mean(one):.1%}' for one in shares.values())} |")


def print_forwarding(configuration: Configuration) -> None:
    """Print C2 to C11 where sums are forwarded, where they are not, and where they are not and loops know it."""
    print("\n| layer | forwarding | without | without, interleaved |\n|---|---|---|---|")
    waiting = replace(configuration, accumulator_latency=configuration.pipeline)
    rows = []
    for name, size, inputs, outputs, kernel, stride in LAYERS:
        layer = convolution("y", Activation("x", inputs, size, size), outputs, kernel, stride)
        plain, interleaved = lower([layer], ["y"], configuration), lower([layer], ["y"], waiting)
        programs = (plain.program, replace(plain.program, configuration=waiting), interleaved.program)
        rows.append([plain.layers[0].useful / cycles_of(one).counters.cycles for one in programs])
        print(f"| {name} | {' | '.join(f'{share:.1%}' for share in rows[-1])} |", flush=True)
    print(f"| mean | {' | '.join(f'{mean(column):.1%}' for column in zip(*rows, strict=True))} |")


def print_network(configuration: Configuration) -> None:
    """Print the whole network."""
    for way, (buffers, trials) in WAYS.items():
        lowered, run, seconds = simulated(resnet18(), "classes", configuration, buffers, trials)
        useful, counters = sum(one.useful for one in lowered.layers), run.counters
        times = ", ".join(f"{unit} {times['busy'] / counters.cycles:.0%}" for unit, times in counters.times.items())
        print(
            f"\nResNet-18, {way}: {counters.cycles:,} cycles, {useful / counters.cycles:.1%} of them "
            f"products of real channels; busy: {times}; {sum(counters.bytes.values()):,} bytes moved, "
            f"{len(lowered.program.instructions):,} instructions"
        )
        print(
            f"lowered in {seconds.compiling:.1f} s, proved in {seconds.proving:.1f} s, simulated functionally in "
            f"{seconds.functional:.1f} s, with time in {seconds.timed:.1f} s"
        )


def main() -> None:
    for port_bytes in (4, 8, 16):
        configuration = replace(Configuration(), port_bytes=port_bytes)
        print(f"\n{port_bytes} bytes a cycle, latency {configuration.latency}\n")
        print_layers(configuration)
        print_network(configuration)
    print_forwarding(Configuration())


if __name__ == "__main__":
    main()
