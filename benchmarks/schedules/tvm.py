"""TVM tuned by MetaSchedule beside Graft, untuned and tuned: ``python -m benchmarks.schedules.tvm [MODEL ...]``.

A folder (``--folder``, by default in the user's cache) keeps TVM's records and Graft's artifacts: what is there is not
made again, so that ``--only tvm`` and ``--only graft`` may tune at other times than ``--only table`` measures. The
table has the medians of one process, in turns; ``trials`` are the least of TVM's tasks, each of which must have one,
the sum, and how many of them failed. Tunings of Graft that XDG_CACHE_HOME has from before are used, too.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

import graft
from benchmarks.peers import machine
from benchmarks.training.networks import bert_mini, resnet18
from benchmarks.zoo import model as zoo_model
from graft.core.shapes.sample_inputs import sample_inputs
from graft.measure.latency import measure, program_run
from graft.measure.peers.tvm import PER_ROUND, records_folder, trials, tune, tvm_run

MODELS: Mapping[str, Callable[[], ir.Model]] = {
    "resnet18": lambda: graft.load(resnet18(batch=1, size=224)),
    "mobilenet_v2": lambda: zoo_model("mobilenet_v2"),
    "bert_mini": lambda: graft.load(bert_mini(batch=1)),
}
"""One image of 224 x 224, or 128 words."""
ROUNDS = 30
COLUMNS = (
    "model", "TVM's tasks", "trials", "TVM tuned, ms", "untuned, ms", "tuned, ms", "untuned / TVM", "tuned / TVM",
    "error",
)  # fmt: skip


def prepared(name: str, options: argparse.Namespace) -> None:
    """Tune and compile what the folder lacks."""
    source = MODELS[name]()
    if options.only in ("tvm", "all") and not all(trials(source, options.threads, options.folder).values()):
        tune(source, options.threads, options.tvm_seconds, options.folder, options.per_round)
    for kind, seconds in (("untuned", 0.0), ("tuned", options.graft_seconds)):
        path = options.folder / f"{name}.{kind}.graft"
        if options.only in ("graft", "all") and not path.exists():
            graft.compile(
                source, ["llvm"], threads=options.threads, cache=False, tune=seconds or False, tuned=seconds > 0
            ).save(path)


def measured(name: str, options: argparse.Namespace) -> tuple[float, float]:
    """Print the row of a model; return the times of both of Graft's programs in that of TVM's."""
    source = MODELS[name]()
    feeds = sample_inputs(source)
    counts = [*trials(source, options.threads, options.folder).values()]
    failed = sum(one.count(False) for one in counts)
    paths = {kind: options.folder / f"{name}.{kind}.graft" for kind in ("untuned", "tuned")}
    programs = {kind: graft.runtime.load(path, threads=options.threads) for kind, path in paths.items()}
    runs = {kind: program_run(program, feeds) for kind, program in programs.items()}
    by_tvm = tvm_run(source, feeds, options.threads, options.folder)
    runs["tvm"] = by_tvm
    (found,), (expected,) = by_tvm(), programs["untuned"].run(feeds).values()
    error = float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))
    times = {row.name: row.median_ms for row in measure(runs, options.seconds, minimum=ROUNDS)}
    ratios = times["untuned"] / times["tvm"], times["tuned"] / times["tvm"]
    tried = [*map(len, counts)]
    cells = (
        name, str(len(counts)), f"{min(tried)}, {sum(tried)}, {failed}",
        *(f"{times[one]:.2f}" for one in ("tvm", "untuned", "tuned")), *(f"{ratio:.2f}" for ratio in ratios),
        f"{error:.0e}",
    )  # fmt: skip
    print(f"| {' | '.join(cells)} |", flush=True)
    return ratios


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("models", nargs="*", default=[*MODELS])
    options.add_argument("--folder", type=Path, default=records_folder())
    options.add_argument("--only", choices=("tvm", "graft", "table", "all"), default="all")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--tvm-seconds", type=float, default=1200)
    options.add_argument("--per-round", type=int, default=PER_ROUND, help="candidates that TVM measures at a time")
    options.add_argument("--graft-seconds", type=float, default=300)
    options.add_argument("--seconds", type=float, default=20, help="of turns, for each model")
    chosen = options.parse_args(arguments)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for name in chosen.models:
        prepared(name, chosen)
    if chosen.only in ("tvm", "graft"):
        return
    print(f"{machine(['tvm'])}; {chosen.threads} thread(s)\n")
    print(f"| {' | '.join(COLUMNS)} |\n|---|{'---:|' * (len(COLUMNS) - 1)}")
    ratios = [measured(name, chosen) for name in chosen.models]
    means = [math.prod(column) ** (1 / len(ratios)) for column in zip(*ratios, strict=True)]
    print("\ngeometric means of the ratios: untuned {:.2f}, tuned {:.2f}".format(*means))


if __name__ == "__main__":
    main()
