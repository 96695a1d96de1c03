"""The table of the zoo: every family beside each peer, in turns in one run.

    python -m benchmarks.zoo [FAMILY ...] [--threads 1,2] [--seconds 1] [--against onnxruntime,openvino] [--markdown]

``native`` is the share of operators that the built-in compiler took, ``of best`` the median, round by round, of our
time by that of the peer with the smallest median, ``difference`` the largest one to ONNX Runtime's outputs, relative
to the largest number of each. ``compile s`` is without any cache.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from time import perf_counter

import numpy as np

import graft
from benchmarks.families.all import FAMILIES
from graft.core.shapes.sample_inputs import sample_inputs
from graft.measure.latency import measure, program_run
from graft.measure.peers.peer_table import Run, installed, peer

PEERS = ("onnxruntime", "openvino")
ROUNDS = 7


def difference(ours: object, theirs: Sequence[np.ndarray]) -> float:
    """Return the largest difference relative to the largest number of the output that it is in."""
    arrays = ours if isinstance(ours, list | tuple) else [ours]
    pairs = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(arrays, theirs, strict=True)]
    return max(float(np.max(np.abs(a - b)) / max(1e-30, float(np.max(np.abs(b))))) for a, b in pairs)


def row(name: str, threads: int, seconds: float, against: Sequence[str]) -> tuple[list[str], float]:
    """Measure a family; return its cells and our time by that of the best peer."""
    source = graft.load(FAMILIES[name]())
    feeds = sample_inputs(source)
    started = perf_counter()
    program = graft.compile(source, threads=threads, cache=False)
    compiled = perf_counter() - started
    placements = graft.plan(source).placements
    native = sum(one.backend == "llvm" for one in placements) / len(placements)
    runs: dict[str, Run] = {"graft": program_run(program, feeds)}
    for one in against:
        try:
            run = peer(one, source, feeds, threads)
            run()
        except Exception as error:  # a peer says in its own words what it cannot run
            print(f"{one} cannot run {name}: {error}"[:300], flush=True)
            continue
        runs[one] = run
    found = difference(runs["graft"](), runs["onnxruntime"]()) if "onnxruntime" in runs else math.nan  # type: ignore[arg-type]
    rows = {one.name: one for one in measure(runs, seconds, minimum=ROUNDS)}
    best = min(list(rows.values())[1:], key=lambda one: one.median_ms)
    times = [f"{rows[one].median_ms:.3f}" if one in rows else "-" for one in ("graft", *against)]
    return [
        name,
        str(threads),
        f"{native:.0%}",
        *times,
        f"{best.ratio:.2f}",
        f"{found:.0e}",
        f"{compiled:.2f}",
    ], best.ratio


def main() -> None:
    """Print the table and the geometric mean of the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--threads", default=[1], type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument(
        "--against", default=[one for one in PEERS if installed(one)], type=lambda text: text.split(",")
    )
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    columns = (
        "family",
        "threads",
        "native",
        *(f"{one} ms" for one in ("graft", *options.against)),
        "of best",
        "difference",
        "compile s",
    )
    widths = [18, *(max(9, len(one)) for one in columns[1:])]

    def line(cells: Sequence[str]) -> str:
        if options.markdown:
            return f"| {' | '.join(cells)} |"
        return " ".join(one.rjust(width) for one, width in zip(cells, widths, strict=True))

    print(line(columns))
    if options.markdown:
        print("|---|" + "---:|" * (len(columns) - 1))
    ratios: dict[int, list[float]] = {threads: [] for threads in options.threads}
    for name in options.families:
        for threads in options.threads:
            cells, ratio = row(name, threads, options.seconds, options.against)
            print(line(cells), flush=True)
            ratios[threads].append(ratio)
    for threads, found in ratios.items():
        mean = math.exp(sum(map(math.log, found)) / len(found))
        behind = sum(ratio > 1 for ratio in found)
        print(
            f"\n{len(found)} families, {threads} thread{'' if threads == 1 else 's'}: {behind} behind the best peer; "
            f"geometric mean {mean:.2f}, worst {max(found):.2f}"
        )


if __name__ == "__main__":
    main()
