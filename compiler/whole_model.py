"""The last word on tuning: the whole model, as it was and as it is now, in turns in a process of its own.

A kernel that is faster alone may be slower among its neighbours. Where the model is not faster, what was found is taken
back. ``python -m graft.compiler.whole_model BEFORE AFTER INPUTS THREADS`` prints the seconds of two artifacts.
"""

from __future__ import annotations

import json
import logging
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from graft.compiler.compiled_model import CompiledModel
from graft.core.shapes.sample_inputs import sample_inputs
from graft.core.tuning.candidates import STAGES
from graft.core.tuning.options import TuneOptions
from graft.core.tuning.tunings import Row, Tunings
from graft.errors import GraftError
from graft.runtime.artifact import save

SLOWER = 1.02
"""What is noise: a model that takes so much of its time before has not become slower."""
TURN = 0.01
"""Seconds of a turn at least: what runs shorter is run again and again."""
LEAST_TURNS, MOST_TURNS = 5, 51
ENOUGH_SECONDS = 4.0
"""More turns than the least are as many as are likely to end by then."""
LIMIT = 300.0
"""Seconds for the process."""

log = logging.getLogger("graft.tuning")


def tuned_model(
    compiled: Callable[[TuneOptions | None, Path], CompiledModel],
    options: TuneOptions,
    database: Path,
    threads: int | None,
) -> CompiledModel:
    """Return a model that is tuned while it is ``compiled``, or, where that made it slower, as it was without."""
    tunings = Tunings(database)
    known = tunings.everything()
    after = compiled(options, database)
    report = after.tuning
    own = {one.key for one in report.tuned if one.parameters is not None} if report is not None else set()
    changed = [row for row in tunings.everything() if row.workload in own and row not in known]
    if report is None or not changed:
        return after
    with TemporaryDirectory(prefix="graft-tuning-") as folder:
        earlier = Path(folder) / database.name
        Tunings(earlier).merge(known)
        before = compiled(None, earlier)
        times = seconds(before, after, threads, Path(folder))
    if times is None:
        return after
    whole = times[1] / times[0]
    report = replace(report, whole=whole)
    if whole <= SLOWER:
        return replace(after, tuning=report)
    log.warning("the whole model takes %.2f of the time that it took: what tuning has found is taken back", whole)
    tunings.merge(_without(changed, known))
    return replace(before, tuning=report)


def _without(changed: Sequence[Row], known: Sequence[Row]) -> list[Row]:
    """Return rows as they were, or with the schedule's own choice, after all stages: nothing is measured again."""
    earlier = {(row.workload, row.machine, row.compiler): row.tuning for row in known}
    rows = []
    for row in changed:
        now, old = row.tuning, earlier.get((row.workload, row.machine, row.compiler))
        own = replace(now, parameters=None, seconds=now.untuned) if old is None else old
        rows.append(replace(row, tuning=replace(own, stage=STAGES)))
    return rows


def seconds(
    before: CompiledModel, after: CompiledModel, threads: int | None, folder: Path
) -> tuple[float, float] | None:
    """Return the seconds of a run of two programs; None, with the reason in the log, if they cannot be measured so."""
    files = [folder / name for name in ("before.graft", "after.graft", "inputs.npz")]
    command = [sys.executable, "-W", "ignore", "-m", __name__, *map(str, files), str(threads or 0)]
    try:
        save(before.description, files[0])
        save(after.description, files[1])
        np.savez(files[2], **sample_inputs(before.normalized))  # type: ignore[arg-type]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True)
        own, theirs = json.loads(done.stdout)
    except (GraftError, OSError, ValueError, subprocess.SubprocessError) as error:
        log.info("the whole model cannot be measured: %s", error)
        return None
    return own, theirs


def main(arguments: Sequence[str]) -> None:
    """Print the seconds of a run of two artifacts."""
    from graft.runtime.loading import load

    *files, inputs, threads = arguments
    first, second = (load(file, threads=int(threads) or None) for file in files)
    with np.load(inputs) as arrays:
        given = dict(arrays)
    print(json.dumps(in_turns(partial(first.run, given), partial(second.run, given))))


def in_turns(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of two calls: the median of the first, and this by the median share that the second takes."""
    second()
    first()
    once = _seconds(first, 1)
    repeats = math.ceil(TURN / once)
    turns = min(MOST_TURNS, max(LEAST_TURNS, int(ENOUGH_SECONDS / (2 * repeats * once))))
    times = [(_seconds(first, repeats), _seconds(second, repeats)) for _ in range(turns)]
    own = median(before for before, _ in times)
    return own, own * median(after / before for before, after in times)


def _seconds(run: Callable[[], object], repeats: int) -> float:
    began = perf_counter()
    for _ in range(repeats):
        run()
    return (perf_counter() - began) / repeats


if __name__ == "__main__":
    main(sys.argv[1:])
