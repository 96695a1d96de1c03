"""The limits of this machine, measured by kernels of our own: multiply-adds of one core, and reading from memory.

The first keeps sums in registers and touches no memory, the second a sum over a buffer, small enough for one of the
caches or too large for all. No kernel can be faster than both together (Williams, Waterman and Patterson, "Roofline",
2009), except by doing less: Winograd's algorithm needs fewer operations than are counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from graft.core.operators import build as b
from graft.core.schedule.tiling import lanes_of, multiply_add, ramp, wide
from graft.core.target import Target, host_target
from graft.core.tensor_ir.ir import (
    Allocate,
    Block,
    Buffer,
    Expression,
    For,
    Function,
    Let,
    Load,
    Statement,
    Store,
    Variable,
)
from graft.core.types import FLOAT32
from graft.runtime.dtypes import numpy_dtype
from graft.runtime.procedure import Call, Module, Procedure, ProgramDescription, TensorSpec

if TYPE_CHECKING:
    from graft.runtime.program import Program

SUMS = 12
"""Vectors of sums that are kept at once, so that no addition waits for the one before."""
LEAST_BYTES = 4 << 20
SIZES = (16 << 10, 512 << 10, 8 << 20, 256 << 20)
"""Bytes that fit the first, second and third level of most caches, and that fit none."""
STEPS = 200_000
ROUNDS, SECONDS = 7, 0.01


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


def traffic_of(description: ProgramDescription) -> list[Traffic]:
    """Return the traffic of every call of the main procedure; a tensor counts once, whichever part of it is read."""
    procedure = description.procedures[0]
    footprint = sum(array.nbytes for array in description.constants.values())
    rows = []
    for call in procedure.calls:
        used = [procedure.tensors[number] for number in {*call.inputs, *call.outputs} if number >= 0]
        sizes = [(tensor.storage == "constant", _bytes(tensor)) for tensor in used]
        weights = sum(size for constant, size in sizes if constant)
        others = sum(size for constant, size in sizes if not constant)
        rows.append(Traffic(call.flops, weights, others, footprint))
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


def _bytes(tensor: TensorSpec) -> int:
    if tensor.shape is None:
        return 0
    return math.prod(tensor.shape) * numpy_dtype(tensor.dtype).itemsize


def measure_roofline(threads: int = 1, target: Target | None = None) -> Roofline:
    """Measure this machine in about a second; figures are those of one thread, the best of some rounds."""
    target = target or host_target()
    return Roofline(threads, peak_flops(target), tuple((size, read_bandwidth(size, target)) for size in SIZES))


def peak_flops(target: Target) -> float:
    """Return the multiply-adds of one core, two operations each, per second."""
    lanes = lanes_of("float32", target)
    totals, places = _totals(lanes)
    out = Buffer("out", "float32", (b.index(SUMS * lanes),))
    x = Buffer("x", "float32", (b.index(2),))
    factors = [Variable(name, FLOAT32.with_lanes(lanes)) for name in ("left", "right")]
    updates = [Store(totals, (at,), multiply_add(factors[0], factors[1], Load(totals, (at,)))) for at in places]
    steps: Statement = For(Variable("step"), b.index(STEPS), "serial", Block(tuple(updates)))
    for number, factor in enumerate(factors):
        steps = Let(factor, wide(b.load(x, number), lanes), steps)
    program = _program(_summing("peak", totals, places, (x, out), steps), target)
    half = np.full(2, 0.5, np.float32)
    return 2 * STEPS * SUMS * lanes / _best(lambda: program(half))


def read_bandwidth(size: int, target: Target) -> float:
    """Return the bytes that one core reads per second from ``size`` bytes that it reads again and again."""
    lanes = lanes_of("float32", target)
    totals, places = _totals(lanes)
    step = SUMS * lanes
    count, repeats = max(1, size // (4 * step)), max(1, LEAST_BYTES // size)
    x, out = (Buffer(name, "float32", (b.index(extent),)) for name, extent in (("x", count * step), ("out", step)))
    number = Variable("number")
    begin = b.multiply(number, step)
    sums = [
        Store(totals, (at,), b.add(Load(totals, (at,)), Load(x, (ramp(b.add(begin, row * lanes), lanes),))))
        for row, at in enumerate(places)
    ]
    reading = For(number, b.index(count), "serial", Block(tuple(sums)))
    again = For(Variable("again"), b.index(repeats), "serial", reading)
    program = _program(_summing("read", totals, places, (x, out), again), target)
    # Not zeros: fresh pages of those would all be one page of the system, in the cache.
    contents = np.ones(count * step, np.float32)
    return 4 * count * step * repeats / _best(lambda: program(contents))


def _totals(lanes: int) -> tuple[Buffer, list[Expression]]:
    """The sums, in registers, and the place of each vector of them."""
    totals = Buffer("totals", "float32", (b.index(SUMS * lanes),), memory="register", alignment=64)
    return totals, [ramp(b.index(number * lanes), lanes) for number in range(SUMS)]


def _summing(
    name: str, totals: Buffer, places: Sequence[Expression], parameters: tuple[Buffer, Buffer], body: Statement
) -> Function:
    """The function that clears the sums, runs the body, and stores them, so that nothing of it can be left out."""
    lanes, out = places[0].type.lanes, parameters[1]
    clear = [Store(totals, (at,), wide(b.constant(0, "float32"), lanes)) for at in places]
    finish = [Store(out, (at,), Load(totals, (at,))) for at in places]
    return Function(name, parameters, 1, Allocate(totals, Block((*clear, body, *finish))))


def _program(function: Function, target: Target) -> Program:
    from graft.plugins.llvm.emit import compile_functions
    from graft.runtime.program import Program

    kinds = ["input"] * (len(function.parameters) - 1) + ["output"]
    tensors = tuple(
        TensorSpec(buffer.name, "float32", b.dims(buffer), kind, index=0 if kind == "output" else number)  # type: ignore[arg-type]
        for number, (buffer, kind) in enumerate(zip(function.parameters, kinds, strict=True))
    )
    inputs, output = tuple(range(len(tensors) - 1)), len(tensors) - 1
    call = Call("call", inputs, (output,), module=0, function=function.name)
    procedure = Procedure(function.name, tensors, inputs, (output,), (call,))
    module = Module(function.name, "native", (function.name,), compile_functions([function], target))
    return Program.from_description(ProgramDescription((procedure,), (module,), {}), threads=1)


def _best(run: Callable[[], object]) -> float:
    """Return the least seconds of a call."""
    run()
    best = float("inf")
    for _ in range(ROUNDS):
        started, calls = perf_counter(), 0
        while (seconds := perf_counter() - started) < SECONDS or not calls:
            run()
            calls += 1
        best = min(best, seconds / calls)
    return best
