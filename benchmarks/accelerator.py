"""ResNet-18's convolutions C2 to C11 on the accelerator: cycles and utilisation, latency hidden or not, by bandwidth.

Each result is compared with the functional simulator's under another interleaving; times are of simulators on this
machine, cycles are not. ``python -m benchmarks.accelerator``
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from statistics import mean

import numpy as np

from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.convolution import Convolution, compile_convolution
from graft.plugins.accelerator.proof import prove
from graft.plugins.accelerator.simulator import run_cycles, run_functional
from graft.plugins.accelerator.tiling import choose


@dataclass(frozen=True)
class Layer:
    """A layer, and how often the network has it."""

    name: str
    size: int
    inputs: int
    outputs: int
    kernel: int
    stride: int
    times: int

    def convolution(self) -> Convolution:
        """Return the layer with random numbers."""
        rng = np.random.default_rng(self.size + self.outputs)
        return Convolution(
            self.size,
            self.size,
            rng.integers(-128, 128, (self.outputs, self.inputs, self.kernel, self.kernel)).astype(np.int8),
            rng.integers(-9999, 9999, self.outputs).astype(np.int32),
            rng.uniform(1e-5, 1e-4, self.outputs).astype(np.float32),
            0.5,
            strides=(self.stride, self.stride),
            pads=(self.kernel // 2,) * 4,
        )


LAYERS = (
    Layer("C2", 56, 64, 64, 3, 1, 4),
    Layer("C3", 56, 64, 128, 3, 2, 1),
    Layer("C4", 56, 64, 128, 1, 2, 1),
    Layer("C5", 28, 128, 128, 3, 1, 3),
    Layer("C6", 28, 128, 256, 3, 2, 1),
    Layer("C7", 28, 128, 256, 1, 2, 1),
    Layer("C8", 14, 256, 256, 3, 1, 3),
    Layer("C9", 14, 256, 512, 3, 2, 1),
    Layer("C10", 14, 256, 512, 1, 2, 1),
    Layer("C11", 7, 512, 512, 3, 1, 3),
)


@dataclass
class Seconds:
    """What was spent on this machine, every layer as often as the network has it."""

    compiling: float = 0.0
    proving: float = 0.0
    functional: float = 0.0


def cycles(layer: Layer, configuration: Configuration, buffers: int, seconds: Seconds) -> tuple[int, int]:
    """Return the cycles of a layer and those of its products alone."""
    convolution = layer.convolution()
    shape = convolution.shape(configuration)
    marks = [time.perf_counter()]
    program = compile_convolution(convolution, configuration, choose(shape, configuration, buffers))
    marks.append(time.perf_counter())
    prove(program)
    marks.append(time.perf_counter())
    inputs = {"x": np.random.default_rng(0).bytes(program.tensor("x").size)}
    functional = run_functional(program, inputs, seed=1)
    marks.append(time.perf_counter())
    run = run_cycles(program, inputs)
    assert run.outputs == functional.outputs, f"{layer.name}: the simulators differ"
    seconds.compiling += layer.times * (marks[1] - marks[0])
    seconds.proving += layer.times * (marks[2] - marks[1])
    seconds.functional += layer.times * (marks[3] - marks[2])
    return run.counters.cycles, shape.products


def main() -> None:
    for port_bytes in (4, 8, 16):
        configuration = replace(Configuration(), port_bytes=port_bytes)
        print(f"\n{port_bytes} bytes a cycle, latency {configuration.latency}\n")
        print("| layer | products | one buffer | | two buffers | |\n|---|---|---|---|---|---|")
        shares: dict[int, list[float]] = {1: [], 2: []}
        totals, seconds = {1: 0, 2: 0}, {1: Seconds(), 2: Seconds()}
        for layer in LAYERS:
            cells = []
            for buffers in (1, 2):
                found, products = cycles(layer, configuration, buffers, seconds[buffers])
                shares[buffers].append(products / found)
                totals[buffers] += layer.times * found
                cells += [f"{found:,}", f"{products / found:.1%}"]
            print(f"| {layer.name} | {products:,} | {' | '.join(cells)} |", flush=True)
        print(f"| mean | | | {mean(shares[1]):.1%} | | {mean(shares[2]):.1%} |")
        print(f"| as often as in the network | | {totals[1]:,} | | {totals[2]:,} | |")
        spent = seconds[2]
        print(
            f"\nsimulated functionally in {spent.functional:.1f} s, compiled in {spent.compiling:.1f} s, proved in "
            f"{spent.proving:.1f} s"
        )


if __name__ == "__main__":
    main()
