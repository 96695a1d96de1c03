"""What a search finds from the template alone: ``python -m benchmarks.schedules.search [--threads N] [--only TEXT]``.

Of each kernel the tiles of the template (`graft.core.schedule.templates`) are measured stage by stage, as tuning does,
without any hand-written strategy, until nothing near the best is faster. The last column is the best one's time beside
that of the strategy that the kernel gets untuned, both in turns.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np
import onnx

import graft
from benchmarks.peers import best_turns
from benchmarks.schedules.cases import model
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.core.machine.target import Target, host_target
from graft.core.operators.all import OPERATORS
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.parameters import ScheduleParameters
from graft.core.schedule.templates.space import schedules
from graft.core.tuning.race import race
from graft.plugins.codegen.region_groups import RegionGroups
from graft.plugins.llvm.backend import LlvmBackend

STAGES = 8
"""Stages of a search, at the most."""
CASES = {
    "product 128x512x512": "x 128,512; w 512,512 : t = MatMul(x, w) y = Relu(t)",
    "product 49x768x3072": "x 49,768; w 768,3072 : t = MatMul(x, w) y = Relu(t)",
    "products 8x64x64x128": "x 8,64,64; w 8,64,128 : t = MatMul(x, w) y = Relu(t)",
    "1x1": "x 1,64,56,56; w 64,64,1,1 : t = Conv(x, w) y = Relu(t)",
    "3x3": "x 1,64,28,28; w 64,64,3,3 : t = Conv<pads=[1,1,1,1]>(x, w) y = Relu(t)",
    "5x5": "x 1,32,28,28; w 48,32,5,5 : t = Conv<pads=[2,2,2,2]>(x, w) y = Relu(t)",
    "3x3, dilated": "x 1,32,28,28; w 32,32,3,3 : t = Conv<pads=[2,2,2,2],dilations=[2,2]>(x, w) y = Relu(t)",
    "3x3, in groups": "x 1,64,28,28; w 64,8,3,3 : t = Conv<pads=[1,1,1,1],group=8>(x, w) y = Relu(t)",
    "depthwise": "x 1,64,56,56; w 64,1,3,3 : t = Conv<pads=[1,1,1,1],group=64>(x, w) y = Relu(t)",
    "5x1 of 13 channels": "x 3,13,30,30; w 26,13,5,1 : t = Conv<pads=[2,0,2,0]>(x, w) y = Relu(t)",
    "5 of one axis": "x 1,64,400; w 64,64,5 : t = Conv<pads=[2,2]>(x, w) y = Relu(t)",
    "3x3x3": "x 1,16,8,28,28; w 32,16,3,3,3 : t = Conv<pads=[1,1,1,1,1,1]>(x, w) y = Relu(t)",
}
"""See `benchmarks.schedules.cases.model`."""


def kernel_of(source: onnx.ModelProto, target: Target) -> Kernel:
    """Return the kernel that a model of one sum becomes."""
    compiled = compile_model(source, Request(["llvm"], threads=1, cache=False, tuned=False))
    (region,) = compiled.regions.values()
    (lowered,) = RegionGroups(region, OPERATORS, target, LlvmBackend()).every_kernel()
    return lowered.kernel


def searched(
    kernel: Kernel, target: Target, run: Callable[[ScheduleParameters], Callable[[], float]]
) -> tuple[ScheduleParameters | None, int]:
    """Return the best schedule that a search finds, None where the template has none, and how many were measured."""
    best: ScheduleParameters | None = None
    trials = 0
    for stage in range(STAGES):
        wanted = schedules(kernel, target, min(stage, 1), best)
        found = [*([] if best is None else [best]), *wanted]
        outcome = race([run(one) for one in found], lambda: False) if found else None
        trials += len(wanted)
        if outcome is None or found[outcome.winner] == best:
            break
        best = found[outcome.winner]
    return best, trials


def timed(program: graft.Program, given: np.ndarray) -> Callable[[], float]:
    """Return what runs a program once and says for how long."""

    def run() -> float:
        started = perf_counter()
        program(given)
        return perf_counter() - started

    run()
    return run


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--only", default="", help="a part of the names of the kernels to search for")
    chosen = options.parse_args(arguments)
    target, ratios = host_target(), list[float]()
    print(f"{target.cpu}, {chosen.threads} thread(s)\n")
    print("| kernel | untuned | us | schedules measured | found / untuned |\n|---|---|---:|---:|---:|")
    for name, text in CASES.items():
        if chosen.only not in name:
            continue
        source, given = model(text)

        def program(schedules: dict[str, str] | None = None, source: onnx.ModelProto = source) -> graft.Program:
            return graft.compile(
                source, ["llvm"], threads=chosen.threads, cache=False, tuned=False, schedules=schedules
            )

        untuned, kernel = program(), kernel_of(source, target)
        (call,) = (one for one in untuned.description.procedures[0].calls if one.schedule)
        best, trials = searched(
            kernel, target, lambda one, call=call, given=given: timed(program({call.function: one.steps}), given)
        )
        if best is None:
            print(f"| {name} | {call.schedule['strategy']} | | 0 | |", flush=True)
            continue
        found = program({call.function: best.steps})
        times = best_turns([lambda one=one, given=given: one(given) for one in (found, untuned)])
        ratios.append(times[0] / times[1])
        row = f"| {name} | {call.schedule['strategy']} | {1e6 * times[1]:.0f} | {trials} | {ratios[-1]:.2f} |"
        print(row, flush=True)
    if ratios:
        print(f"\ngeometric mean {math.prod(ratios) ** (1 / len(ratios)):.3f}")


if __name__ == "__main__":
    main()
