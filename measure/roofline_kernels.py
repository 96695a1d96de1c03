"""The kernels that `graft.measure.roofline` measures the machine with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np

from graft.core.machine.instructions import DOTS, Dot
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.statements import ramp, wide
from graft.core.schedule.products.product_axes import Multiply
from graft.core.schedule.products.tiling import lanes_of
from graft.core.tensor_ir import ir
from graft.core.types import Type
from graft.plugins.llvm.emit import compile_functions
from graft.runtime.procedure import Call, Module, Procedure, ProgramDescription, TensorSpec
from graft.runtime.program import Program

SUMS = 12
"""Vectors of sums that are kept at once, so that no addition waits for the one before."""
LEAST_BYTES = 4 << 20
STEPS = 200_000
ROUNDS, SECONDS = 7, 0.01


def peak_flops(target: Target, dot: str = "") -> float:
    """Return the multiply-adds of one core, two operations each, per second: in float32, or of a dot product's."""
    lanes = lanes_of("float32", target)
    kinds = DOTS[dot] if dot else Dot("float32", "float32", "float32", 1)
    totals, places = _totals(lanes, kinds.total)
    out = ir.Buffer("out", kinds.total, (b.index(SUMS * lanes),))
    word = Type("int32" if dot else "float32")
    x = ir.Buffer("x", word.dtype, (b.index(2),))
    factors = [ir.Variable(name, word.with_lanes(lanes)) for name in ("left", "right")]
    multiply = Multiply(dot)
    updates = [ir.Store(totals, (at,), multiply(factors[0], factors[1], ir.Load(totals, (at,)))) for at in places]
    steps: ir.Statement = ir.For(ir.Variable("step"), b.index(STEPS), "serial", ir.Block(tuple(updates)))
    for number, factor in enumerate(factors):
        steps = ir.Let(factor, wide(b.load(x, number), lanes), steps)
    program = program_of_kernel(_summing("peak", totals, places, (x, out), steps), target)
    half = np.full(2, 0.5, np.float32) if not dot else np.full(2, 0x01010101, np.int32)
    return 2 * kinds.width * STEPS * SUMS * lanes / _best(lambda: program(half))


def read_bandwidth(size: int, target: Target) -> float:
    """Return the bytes that one core reads per second from ``size`` bytes that it reads again and again."""
    lanes = lanes_of("float32", target)
    totals, places = _totals(lanes)
    step = SUMS * lanes
    count, repeats = max(1, size // (4 * step)), max(1, LEAST_BYTES // size)
    x, out = (ir.Buffer(name, "float32", (b.index(extent),)) for name, extent in (("x", count * step), ("out", step)))
    number = ir.Variable("number")
    begin = b.multiply(number, step)
    sums = [
        ir.Store(totals, (at,), b.add(ir.Load(totals, (at,)), ir.Load(x, (ramp(b.add(begin, row * lanes), lanes),))))
        for row, at in enumerate(places)
    ]
    reading = ir.For(number, b.index(count), "serial", ir.Block(tuple(sums)))
    again = ir.For(ir.Variable("again"), b.index(repeats), "serial", reading)
    program = program_of_kernel(_summing("read", totals, places, (x, out), again), target)
    # Not zeros: fresh pages of those would all be one page of the system, in the cache.
    contents = np.ones(count * step, np.float32)
    return 4 * count * step * repeats / _best(lambda: program(contents))


def _totals(lanes: int, dtype: str = "float32") -> tuple[ir.Buffer, list[ir.Expression]]:
    """The sums, in registers, and the place of each vector of them."""
    totals = ir.Buffer("totals", dtype, (b.index(SUMS * lanes),), memory="register", alignment=64)
    return totals, [ramp(b.index(number * lanes), lanes) for number in range(SUMS)]


def _summing(
    name: str,
    totals: ir.Buffer,
    places: Sequence[ir.Expression],
    parameters: tuple[ir.Buffer, ir.Buffer],
    body: ir.Statement,
) -> ir.Function:
    """The function that clears the sums, runs the body, and stores them, so that nothing of it can be left out."""
    lanes, out = places[0].type.lanes, parameters[1]
    clear = [ir.Store(totals, (at,), wide(b.constant(0, totals.dtype), lanes)) for at in places]
    finish = [ir.Store(out, (at,), ir.Load(totals, (at,))) for at in places]
    return ir.Function(name, parameters, 1, ir.Allocate(totals, ir.Block((*clear, body, *finish))))


def program_of_kernel(function: ir.Function, target: Target) -> Program:
    """Return a program of one kernel; its parameters are the inputs, then the output."""
    kinds = ["input"] * (len(function.parameters) - 1) + ["output"]
    tensors = tuple(
        TensorSpec(buffer.name, buffer.dtype, b.dims(buffer), kind, index=0 if kind == "output" else number)  # type: ignore[arg-type]
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
