"""The limits of this machine, measured by kernels of our own: multiply-adds of one core, and reading from memory.

The first keeps sums in registers and touches no memory, the second a sum over a buffer, small enough for one of the
caches or too large for all. No kernel can be faster than both together (Williams, Waterman and Patterson, "Roofline",
2009), except by doing less: Winograd's algorithm needs fewer operations than are counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from graft.runtime.dtypes import numpy_dtype
from graft.runtime.extents import evaluate, symbols_of

if TYPE_CHECKING:
    from graft.core.machine.target import Target
    from graft.runtime.procedure import Procedure, ProgramDescription, TensorSpec

SIZES = (16 << 10, 512 << 10, 8 << 20, 256 << 20)
"""Bytes that fit the first, second and third level of most caches, and that fit none."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """``flops`` are float32 operations per second of one core, ``bandwidth`` bytes per second it reads, by size."""

    threads: int
    flops: float
    bandwidth: tuple[tuple[int, float], ...]

    def bytes_per_second(self, size: int) -> float:
        """Return how fast one core reads data of which ``size`` bytes are in use."""
        return next((rate for limit, rate in self.bandwidth if size <= limit), self.bandwidth[-1][1])

    def seconds(self, traffic: Traffic) -> float:
        """Return the least time of a call on all threads.

        Constants come from as far away as the bytes of all of them send them, other tensors from the nearest level
        that holds those of the call.
        """
        moving = traffic.weights / self.bytes_per_second(traffic.footprint)
        moving += traffic.others / self.bytes_per_second(traffic.others)
        return max(traffic.flops / self.flops, moving) / self.threads

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a call computes and moves: ``footprint`` are the bytes of all constants of the program."""

    flops: int
    weights: int
    others: int
    footprint: int


def traffic_of(
    description: ProgramDescription, procedure: Procedure, shapes: Sequence[Sequence[int]] = ()
) -> list[Traffic]:
    """Return the traffic of every call of a procedure; a tensor counts once, whichever part of it is read.

    ``shapes`` are those of the inputs of a run, by which a procedure with symbols is counted; it needs onnx.
    """
    footprint = sum(array.nbytes for array in description.constants.values())
    values: dict[str, int] = {}
    flops: dict[str, int] = {}
    if procedure.symbols and shapes:
        from graft.measure.symbolic_work import bound_values, node_flops

        values = bound_values(procedure, shapes)
        flops = node_flops(description, values)
    rows = []
    for call in procedure.calls:
        used = [procedure.tensors[number] for number in {*call.inputs, *call.outputs} if number >= 0]
        sizes = [(tensor.storage == "constant", _bytes(tensor, values)) for tensor in used]
        weights = sum(size for constant, size in sizes if constant)
        others = sum(size for constant, size in sizes if not constant)
        done = call.flops or sum(flops.get(name, 0) for name in call.origin)
        rows.append(Traffic(done, weights, others, footprint))
    return rows


def achieved(traffic: Traffic, nanoseconds: int, roofline: Roofline | None) -> dict[str, float]:
    """Return GFLOP/s, GB/s and the percentage of the limit that a call reached (0 without a roofline)."""
    seconds = max(nanoseconds, 1) / 1e9
    limit = 0.0 if roofline is None else roofline.seconds(traffic)
    return {
        "gflops": traffic.flops / seconds / 1e9,
        "gbytes": (traffic.weights + traffic.others) / seconds / 1e9,
        "of_limit": 100 * limit / seconds,
    }


def _bytes(tensor: TensorSpec, values: Mapping[str, int]) -> int:
    if tensor.shape is None or not {one.name for extent in tensor.shape for one in symbols_of(extent)} <= values.keys():
        return 0
    return math.prod(evaluate(extent, values) for extent in tensor.shape) * numpy_dtype(tensor.dtype).itemsize


def measure_roofline(threads: int = 1, target: Target | None = None) -> Roofline:
    """Measure this machine in about a second; figures are those of one thread, the best of some rounds."""
    from graft.core.machine.target import host_target
    from graft.measure.roofline_kernels import peak_flops, read_bandwidth

    target = target or host_target()
    return Roofline(threads, peak_flops(target), tuple((size, read_bandwidth(size, target)) for size in SIZES))
