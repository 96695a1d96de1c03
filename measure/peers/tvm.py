"""TVM as a peer: Relax from ONNX, scheduled by MetaSchedule, weights in the layouts that their readers' schedules want.

MetaSchedule's records stay in a folder, those of all models in one: equal tasks are one. A model counts only where
every task of it has been tuned.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import onnx_ir as ir
import tvm
from tvm import relax
from tvm.ir.utils import derived_object
from tvm.relax import transform
from tvm.relax.frontend.onnx import from_onnx
from tvm.s_tir import meta_schedule
from tvm.s_tir.meta_schedule.builder import LocalBuilder
from tvm.s_tir.meta_schedule.relax_integration import extract_tasks, extracted_tasks_to_tune_contexts
from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch
from tvm.target import Target, codegen

from graft.compiler.driver import prepare
from graft.errors import GraftError
from graft.runtime.system.cache_directory import cache_directory

PER_ROUND = 8
"""Candidates that a task measures at a time, 64 by default: few, so that every task has its turn within minutes."""
POPULATION = 128
"""Candidates that evolve: of 512, the default, nearly all would be thrown away where so few are measured."""
UNBOUNDED = 1_000_000
FAILED = 1e9
BUILD_SECONDS = 120.0
"""For one candidate: 30, the default, are too few on a machine that does something else, too."""


class TimeUp(Exception):
    """Tuning has taken the seconds that it was given."""


@derived_object
class _Deadline(meta_schedule.measure_callback.PyMeasureCallback):  # type: ignore[misc]
    """Ends tuning after some seconds, and a round of every task: MetaSchedule itself counts trials alone.

    The results of all first rounds come when the last of these is over.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._end, self._seen = monotonic() + seconds, set[int]()

    def apply(self, scheduler: Any, task: int, candidates: Any, built: Any, measured: Any) -> None:
        """Raise TimeUp behind the deadline, once the task has been here."""
        if task in self._seen and monotonic() > self._end:
            raise TimeUp
        self._seen.add(task)


def tvm_run(
    model: ir.Model, feeds: Mapping[str, np.ndarray], threads: int, records: Path | None = None
) -> Callable[[], list[np.ndarray]]:
    """Return a call of the model as tuned, which gives the list of outputs; inputs and outputs are not copied.

    TVM computes on ``threads`` threads from here on, in the whole process. Without a folder, the user's is asked.
    Raises GraftError where a task has no record.
    """
    records = records or records_folder()
    counts = trials(model, threads, records)
    missing = [name for name, tried in counts.items() if not tried]
    if missing:
        raise GraftError(
            f"{len(missing)} of the model's {len(counts)} tasks have no record in '{records}' ('{missing[0]}' is one); "
            "tune it for longer: python -m benchmarks.schedules.tvm",
            peer="tvm",
        )
    tvm.get_global_func("runtime.config_threadpool")(1, threads)
    target = _target(threads)
    with target:
        steps = [
            transform.MetaScheduleApplyDatabase(str(records)),
            transform.SplitLayoutRewritePreproc(),
            transform.FoldConstant(),
        ]
        module = tvm.transform.Sequential(steps)(_imported(model, target))
    call = relax.VirtualMachine(tvm.compile(module, target=target), tvm.cpu())["main"]
    names = [value.name or "" for value in model.graph.inputs if value.name not in model.graph.initializers]
    arguments = [tvm.runtime.tensor(np.ascontiguousarray(feeds[name])) for name in names]

    def run() -> list[np.ndarray]:
        result = call(*arguments)
        return [one.numpy() for one in ([result] if isinstance(result, tvm.runtime.Tensor) else result)]

    return run


def records_folder() -> Path:
    """Return the user's folder of records; raise GraftError if there is none."""
    folder = cache_directory()
    if folder is None:
        raise GraftError("TVM's records need a folder: set XDG_CACHE_HOME or HOME", peer="tvm")
    return folder / "tvm"


def tune(model: ir.Model, threads: int, seconds: float, records: Path, per_round: int = PER_ROUND) -> None:
    """Tune every task of a model in turns until the seconds are over, those of the fewest trials first.

    What is found stays in the folder, and is where the next search begins.
    """
    os.environ["TVM_NUM_THREADS"] = str(threads)  # of the processes in which candidates run
    records.mkdir(parents=True, exist_ok=True)
    known = trials(model, threads, records)
    own = sorted(_tasks(model, threads), key=lambda task: len(known[task.task_name]))
    tasks, weights = extracted_tasks_to_tune_contexts(
        own, str(records), strategy=EvolutionarySearch(population_size=POPULATION), num_threads=threads
    )
    callbacks = [*meta_schedule.MeasureCallback.create("default"), _Deadline(seconds)]
    with _target(threads):
        try:
            meta_schedule.tune_tasks(
                tasks=tasks, task_weights=weights, work_dir=str(records), max_trials_global=UNBOUNDED,
                num_trials_per_iter=per_round, measure_callbacks=callbacks,
                builder=LocalBuilder(max_workers=threads, timeout_sec=BUILD_SECONDS),
            )  # fmt: skip
        except TimeUp:
            return


def trials(model: ir.Model, threads: int, records: Path) -> dict[str, list[bool]]:
    """Return which candidates ran, of those that were tried of each task of a model, by its name."""
    if not (records / "database_workload.json").exists():
        return {task.task_name: [] for task in _tasks(model, threads)}
    database = meta_schedule.database.JSONDatabase(work_dir=str(records))
    known = [(one.workload, _is_timed(one)) for one in database.get_all_tuning_records()]
    found = {}
    for task in _tasks(model, threads):
        own = database.commit_workload(task.dispatched[0])
        found[task.task_name] = [ran for workload, ran in known if workload.same_as(own)]
    return found


def _is_timed(record: Any) -> bool:
    """Whether a candidate ran: the time of one that did not is a very large number."""
    return bool(record.run_secs) and all(float(one) < FAILED for one in record.run_secs)


def _tasks(model: ir.Model, threads: int) -> list[Any]:
    target = _target(threads)
    with target:
        return list(extract_tasks(_imported(model, target), target))


def _target(threads: int) -> Any:
    return Target({"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu(), "num-cores": threads})


def _imported(model: ir.Model, target: Any) -> Any:
    """Return a model's fused loops; normalisations of constants are folded into the convolutions before them."""
    module = from_onnx(ir.to_proto(prepare(model)))
    steps = [
        transform.DecomposeOpsForInference(),
        transform.CanonicalizeBindings(),
        relax.get_pipeline("zero"),
        transform.AttachAttrLayoutFreeBuffers(),
    ]
    with target:
        return tvm.transform.Sequential(steps)(module)
