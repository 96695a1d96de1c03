"""What a search finds from templates alone: ``python -m benchmarks.schedules.search [--threads N] [--only TEXT]``.

Of each kernel the tiles of its template (`graft.core.schedule.templates`) are measured stage by stage, as tuning does,
without any hand-written strategy but rewrites and their knobs (Winograd's algorithm, a running Softmax), until nothing
near the best is faster, then all others as far as ``--trials`` go.
*found / untuned* is the best one's time in that of the strategy that the kernel gets untuned, both in turns; with one
thread, time of the processor.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

import onnx

import graft
from benchmarks.schedules.cases import model
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.core.machine.target import Target, host_target
from graft.core.operators.all import OPERATORS
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.parameters import (
    AttentionParameters,
    Parameters,
    ScheduleParameters,
    WinogradParameters,
    to_json,
)
from graft.core.schedule.selection.table import TABLE
from graft.core.schedule.templates.rewrites import sum_in
from graft.core.schedule.templates.space import nests_in, points, schedules, text_of, texts_of
from graft.core.tuning.candidates import STAGES, candidates
from graft.core.tuning.race import Run, race, undisturbed
from graft.core.tuning.search import Bench, Workload
from graft.plugins.codegen.kernel_tuning import KernelBuilder
from graft.plugins.codegen.region_groups import RegionGroups
from graft.plugins.llvm.backend import LlvmBackend

TURNS = 41
TRIALS, BATCH = 1000, 24
"""Tiles that are measured at the most, and of those that are near no best one, how many in a race."""
REWRITES = WinogradParameters, AttentionParameters
"""What is no schedule of the plain loops, but other loops that compute the same."""
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
    "3x3, strided": "x 1,32,56,56; w 64,32,3,3 : t = Conv<pads=[1,1,1,1],strides=[2,2]>(x, w) y = Relu(t)",
    "5 of one axis": "x 1,64,400; w 64,64,5 : t = Conv<pads=[2,2]>(x, w) y = Relu(t)",
    "3x3x3": "x 1,16,8,28,28; w 32,16,3,3,3 : t = Conv<pads=[1,1,1,1,1,1]>(x, w) y = Relu(t)",
    "attention": (
        "x 1,8,128,64; k 1,8,64,128; v 1,8,128,64 : s = MatMul(x, k) p = Softmax<axis=-1>(s) y = MatMul(p, v)"
    ),
    "product of bytes": ("x 128,512 uint8; w 512,512 int8 : t = MatMulInteger(x, w) s = Cast<to=1>(t) y = Relu(s)"),
    "LSTM": "x 16,1,128; w 1,512,128; r 1,512,128; c 1,1024 : y = LSTM<hidden_size=128>(x, w, r, c)",
    "product 8x1024x1024": "x 8,1024; w 1024,1024 : t = MatMul(x, w) y = Relu(t)",
    "Softmax of 512": "x 256,512 : y = Softmax<axis=-1>(x)",
    "LayerNormalization": "x 128,768; a 768; c 768 : y = LayerNormalization(x, a, c)",
    "columns": "x 13,77,90 : t = Abs(x) k = Constant<value_ints=[1]>() y = ReduceSum<keepdims=0>(t, k)",
    "matrices, transposed": "x 8,128,256 : y = Transpose<perm=[0,2,1]>(x)",
    "transposed, then scaled": "x 30,50,70; a 70,1,1 : t = Transpose<perm=[2,0,1]>(x) y = Mul(t, a)",
    "channels to the front": "x 1,56,56,64 : y = Transpose<perm=[0,3,1,2]>(x)",
}
"""See `benchmarks.schedules.cases.model`."""


def kernel_of(source: onnx.ModelProto, target: Target) -> Kernel:
    """Return the kernel that a model of one sum becomes."""
    compiled = compile_model(source, Request(["llvm"], threads=1, cache=False, tuned=False))
    (region,) = compiled.regions.values()
    (lowered,) = RegionGroups(region, OPERATORS, target, LlvmBackend()).every_kernel()
    return lowered.kernel


def near_best(kernel: Kernel, target: Target, best: Parameters | None) -> Iterator[Parameters]:
    """Yield the tiles and the rewrites that are likely the best, or those near the best so far."""
    yield from schedules(kernel, target, int(best is not None), best, None, TABLE.rewrites)
    for stage in range(1, STAGES) if isinstance(best, REWRITES) else (0,) if best is None else ():
        yield from (one for one in candidates(kernel, target, stage, best) if isinstance(one, REWRITES))


def searched(kernel: Kernel, target: Target, bench: Bench, trials: int) -> tuple[Parameters | None, int]:
    """Return the best schedule that a search finds, None where the template has none, and how many were measured.

    Where nothing near the best is faster and trials are left, the other tiles are measured, the likely fastest first.
    """
    best: Parameters | None = None
    runs, tried = dict[Parameters, Run](), set[Parameters]()
    rest: Iterator[ScheduleParameters] | None = None
    while len(tried) < trials:
        near = near_best(kernel, target, best)
        wanted = [one for one in dict.fromkeys(near) if one not in tried][: trials - len(tried)]
        if not wanted:
            rest = everything(kernel, target) if rest is None else rest
            wanted = list(islice((one for one in rest if one not in tried), min(BATCH, trials - len(tried))))
        if not wanted:
            break
        tried.update(wanted)
        runs |= {one: run for one in wanted if (run := bench.add(one)) is not None}
        own = [one for one in dict.fromkeys((*([] if best is None else [best]), *wanted)) if one in runs]
        outcome = race([runs[one] for one in own], lambda: False) if own else None
        best = own[outcome.winner] if outcome is not None else best
    return best, len(tried)


def everything(kernel: Kernel, target: Target) -> Iterator[ScheduleParameters]:
    """Yield the schedules of all tiles of a kernel, those of the fewest cycles first."""
    found, nests = sum_in(kernel, target, TABLE.rewrites), nests_in(kernel, target)
    if found is not None:
        every = sorted(points(found, target), key=lambda tile: found.cycles(tile, target.machine))
        yield from dict.fromkeys(text_of(found, kernel, tile) for tile in every)
    elif nests is not None:
        yield from texts_of(nests)


def in_turns(bench: Bench, found: Parameters) -> tuple[float, float]:
    """Return the seconds of the untuned kernel, and of one by a schedule, which may be the same code."""
    own, other = bench.add(None), bench.add(found)
    assert own is not None, "the first has code of its own"
    times = [(own(), (other or own)()) for _ in range(TURNS)]
    first, second = zip(*times, strict=True)
    return undisturbed(first), undisturbed(first if other is None else second)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--only", default="", help="a part of the names of the kernels to search for")
    options.add_argument("--trials", type=int, default=TRIALS, help="tiles of a kernel that are measured at the most")
    chosen = options.parse_args(arguments)
    target, backend, ratios = host_target(), LlvmBackend(), list[float]()
    builder = KernelBuilder(target, chosen.threads, partial(backend.emit, target=target), backend, 1 << 20)
    print(f"{target.cpu}, {chosen.threads} thread(s)\n")
    print("| kernel | untuned | us | schedules measured | found / untuned | by |\n|---|---|---:|---:|---:|---|")
    for name, text in CASES.items():
        if chosen.only not in name:
            continue
        source, _ = model(text)
        untuned = graft.compile(source, ["llvm"], threads=chosen.threads, cache=False, tuned=False)
        kernel = kernel_of(source, target)
        (strategy,) = (one.schedule["strategy"] for one in untuned.description.procedures[0].calls if one.schedule)
        workload = Workload(name, name, kernel, 1, 0.0)
        best, trials = searched(kernel, target, builder.bench(workload), chosen.trials)
        if best is None:
            print(f"| {name} | {strategy} | | 0 | | |", flush=True)
            continue
        own, theirs = in_turns(builder.bench(workload), best)
        ratios.append(theirs / own)
        tiles = ", ".join(best.steps.splitlines()[:3]) if isinstance(best, ScheduleParameters) else to_json(best)
        print(f"| {name} | {strategy} | {1e6 * own:.0f} | {trials} | {ratios[-1]:.2f} | {tiles} |", flush=True)
    if ratios:
        print(f"\ngeometric mean {math.prod(ratios) ** (1 / len(ratios)):.3f}")


if __name__ == "__main__":
    main()
