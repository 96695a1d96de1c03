"""What a learnt model of cost knows of kernels that it has not seen: ``python -m benchmarks.schedules.cost_model``.

Of each kernel the tiles are measured that the model of cycles holds to be best, and random ones; ``--database FILE``
keeps their times, and those that it has are not measured again. Then an eighth of the kernels at a time is held out:
how well cycles and trees rank their tiles, and how far the best of the first 1, 2, 4 and 8 is from the best of all.
With ``--search N`` each of N kernels is searched with both rankings and equal trials, by trees that know nothing of
it, and the two finds run in turns. ``--ship`` writes the trees of all kernels into the file that comes with Graft.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from scipy.stats import spearmanr

from benchmarks.schedules import odd_kernels, search
from benchmarks.schedules.cases import model
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.core.machine.target import Target, host_target
from graft.core.operators.all import OPERATORS
from graft.core.schedule.selection.table import TABLE
from graft.core.schedule.templates.features import CYCLES, Features, features
from graft.core.schedule.templates.rewrites import sum_in
from graft.core.schedule.templates.space import first, points, schedules, text_of
from graft.core.tuning.learnt_cost import LearntCost, Timed, Times, predicted, ship, trained
from graft.core.tuning.race import race, undisturbed
from graft.core.tuning.search import Workload
from graft.core.tuning.tunings import machine_of
from graft.plugins.codegen.kernel_tuning import KernelBuilder, Measured, workloads_of
from graft.plugins.codegen.region_groups import RegionGroups
from graft.plugins.llvm.backend import LlvmBackend

FOLDS = 8
FIRSTS = (1, 2, 4, 8)
RANDOM = 24
"""Random tiles of a kernel: most of the third that the model of cycles likes best."""
SHORTEST = 1e-6
"""Kernels that run shorter than this are not counted: the clock is too coarse."""


def cases(count: int) -> Iterator[str]:
    """Yield the kernels of the other benchmarks, and so many random ones."""
    yield from (*search.CASES.values(), *odd_kernels.CASES.values())
    draw, relu = random.Random(7), "y = Relu(t)"
    for number in range(count):
        c, o = (int(2 ** draw.uniform(2, 7)) for _ in range(2))
        size, window, apart = draw.choice([7, 14, 20, 28, 40, 56]), draw.choice([1, 3, 3, 5, 7]), draw.choice([1, 1, 2])
        pad = window // 2 * apart
        around = f"pads=[{pad},{pad},{pad},{pad}],dilations=[{apart},{apart}]"
        yield (
            f"x {c},{4 * o}; w {4 * o},{int(2 ** draw.uniform(1, 9))} : t = MatMul(x, w) {relu}",
            f"x 1,{c},{size},{size}; w {o},{c},{window},{window} : t = Conv<{around}>(x, w) {relu}",
            f"x 1,{c},{size},{size}; w {c},1,{window},{window} : t = Conv<{around},group={c}>(x, w) {relu}",
            f"x 1,{c},{8 * size}; w {o},{c},{window} : t = Conv<pads=[{pad},{pad}],dilations=[{apart}]>(x, w) {relu}",
        )[number % 4]


def workloads(text: str, target: Target, backend: LlvmBackend) -> list[Workload]:
    """Return the kernels of a model that the template takes."""
    compiled = compile_model(model(text)[0], Request(["llvm"], threads=1, tuned=False))
    groups = (RegionGroups(region, OPERATORS, target, backend) for region in compiled.regions.values())
    kernels = [Measured(one.kernel) for group in groups for one in group.every_kernel()]
    return [one for one in workloads_of(kernels) if sum_in(one.kernel, target, TABLE.rewrites) is not None]


def measured(workload: Workload, target: Target, builder: KernelBuilder) -> list[Timed]:
    """Return the times of a kernel's tiles, which run in turns."""
    found, draw = sum_in(workload.kernel, target, TABLE.rewrites), random.Random(workload.key)
    assert found is not None, workload
    every = sorted(points(found, target), key=lambda tile: found.cycles(tile, target.machine))
    few = every[: len(every) // 3]
    tiles = [*first(found, target), *draw.sample(few, min(RANDOM * 3 // 4, len(few)))]
    bench, runs = builder.bench(workload), dict[int, Callable[[], float]]()
    tiles = list(dict.fromkeys((*tiles, *draw.sample(every, min(RANDOM // 4, len(every))))))
    for number, tile in enumerate(tiles):
        run = bench.add(text_of(found, workload.kernel, tile))
        runs |= {} if run is None else {number: run}
    times = defaultdict[int, list[float]](list)
    for _ in range(9):
        for number, run in runs.items():
            times[number].append(run())
    rows = {number: features(found, tiles[number], target.machine) for number in runs}
    return [Timed(workload.key, rows[number], undisturbed(times[number])) for number in runs]


def quality(ranked: Mapping[str, list[tuple[float, float]]]) -> tuple[float, ...]:
    """Return the mean rank correlation of scores and seconds by kernel, and how far the best of the first are."""
    rows = list[tuple[float, ...]]()
    for pairs in ranked.values():
        seconds = [own for _, own in sorted(pairs)]
        rows.append(
            (float(spearmanr(*zip(*pairs, strict=True))[0]), *(min(seconds[:k]) / min(seconds) for k in FIRSTS))
        )
    mean, *far = zip(*rows, strict=True)
    return (sum(mean) / len(rows), *(math.prod(one) ** (1 / len(rows)) for one in far), *map(max, far))


def held_out(times: Sequence[Timed]) -> None:
    """Print how both models rank kernels that the trees have not seen."""
    kernels = sorted({one.race for one in times})
    random.Random(0).shuffle(kernels)
    ranked: dict[str, dict[str, list[tuple[float, float]]]] = {"cycles": defaultdict(list), "learnt": defaultdict(list)}
    shortest = {kernel: min(one.seconds for one in times if one.race == kernel) for kernel in kernels}
    for number in range(FOLDS):
        out = {one for one in kernels[number::FOLDS] if shortest[one] > SHORTEST}
        trees = trained([one for one in times if one.race not in kernels[number::FOLDS]])
        rest = [one for one in times if one.race in out]
        for one, score in zip(rest, predicted(trees, [one.features for one in rest]), strict=True):
            ranked["learnt"][one.race].append((score, one.seconds))
            ranked["cycles"][one.race].append((one.features[CYCLES], one.seconds))
    print(f"{len(ranked['cycles'])} kernels, {len(times)} tiles\n")
    head = "".join(f" best of {k} | worst of {k} |" for k in FIRSTS)
    print(f"| ranked by | rank correlation |{head}\n|---|---:|{'---:|---:|' * len(FIRSTS)}")
    for name, rows in ranked.items():
        rank, *far = quality(rows)
        pairs = zip(far[: len(FIRSTS)], far[len(FIRSTS) :], strict=True)
        print(f"| {name} | {rank:.2f} |" + "".join(f" {mean:.3f} | {worst:.2f} |" for mean, worst in pairs))


class Known(LearntCost):
    """What was learnt of other kernels."""

    def __init__(self, trees: object) -> None:
        super().__init__(Times(Path("none"), ""))
        self._trees = trees

    def seconds(self, rows: Sequence[Features]) -> list[float]:
        """Return what the trees say."""
        return predicted(self._trees, rows)


def searched(workload: Workload, target: Target, builder: KernelBuilder, trees: object) -> float:
    """Return the time of what a search finds that is ranked by trees, in that of one that is ranked by cycles."""
    best = []
    for cost in (Known(trees), None):
        stage, own = 0, None
        while stage < 2:
            bench = builder.bench(workload)
            wanted = schedules(workload.kernel, target, stage, own, cost, TABLE.rewrites)
            runs = [(one, run) for one in [own, *wanted][own is None :] if (run := bench.add(one)) is not None]
            outcome = race([run for _, run in runs], lambda: False)
            assert outcome is not None, workload
            own, stage = runs[outcome.winner][0], stage + 1
        best.append(own)
    bench = builder.bench(workload)
    pair = [bench.add(one) for one in best]
    if pair[1] is None:
        return 1.0
    assert pair[0] is not None, workload
    times = [[run() for run in pair if run is not None] for _ in range(25)]
    return undisturbed([one[0] for one in times]) / undisturbed([one[1] for one in times])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--random", type=int, default=80, help="random kernels beside those of the other benchmarks")
    options.add_argument("--database", type=Path, help="where times are kept")
    options.add_argument("--ship", action="store_true", help="write the model that comes with Graft")
    options.add_argument("--search", type=int, default=0, metavar="N", help="kernels to search with both rankings")
    chosen = options.parse_args(arguments)
    target, backend = host_target(), LlvmBackend()
    builder = KernelBuilder(target, 1, partial(backend.emit, target=target), backend, 1 << 20)
    with TemporaryDirectory() as folder:
        times = Times(chosen.database or Path(folder) / "trials.sqlite3", machine_of(target, 1))
        done = {one.race for one in times.known()}
        for text in cases(chosen.random):
            for workload in workloads(text, target, backend):
                if workload.key not in done:
                    done.add(workload.key)
                    times.keep(measured(workload, target, builder))
        known = times.known()
    held_out(known)
    if chosen.ship:
        ship(trained(known), machine_of(target, 1))
    ratios = []
    for text in list(cases(0))[: chosen.search]:
        for workload in workloads(text, target, backend):
            trees = trained([one for one in known if one.race != workload.key])
            ratios.append(searched(workload, target, builder, trees))
            print(f"{workload.label}: {ratios[-1]:.3f}", flush=True)
    if ratios:
        print(f"geometric mean {math.prod(ratios) ** (1 / len(ratios)):.3f}")


if __name__ == "__main__":
    main()
