"""Latency of a program, beside peers measured in turns in the same run.

Machines are shared and noisy, so a time by itself says little: every round runs each contestant once, and the ratio
is taken round by round. Threads of a contestant that spin after its call (ONNX Runtime's do so for tens of
milliseconds) would take the next one's processors, so every turn waits until they rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter, process_time, sleep
from typing import TYPE_CHECKING, Any

import numpy as np

from graft.core.graph.dimensions import Dims, values_and_ranges
from graft.core.importer.source import SOURCE, Source
from graft.measure.peers.peer_table import peer
from graft.partition.policy import Policy
from graft.plugins.registry.manager import MANAGER
from graft.runtime.arguments import DIMS, DURATION, FEEDS, SHAPES, TEXT, TEXTS, WHOLE, instance, optional, takes
from graft.runtime.program import Program
from graft.runtime.system.displayed import Displayed

if TYPE_CHECKING:
    from graft.plugins.backend import Backend
    from graft.plugins.registry.manager import PluginManager

Run = Callable[[], object]
WAKING = 0.05  # seconds: in a longer call it does not show that threads wake first


@dataclass(frozen=True, slots=True)
class BenchRow:
    """The latency of one contestant in milliseconds; ``ratio`` is the median of ours / theirs round by round."""

    name: str
    median_ms: float
    min_ms: float
    p90_ms: float
    p99_ms: float
    rounds: int
    ratio: float


@dataclass(frozen=True, slots=True)
class BenchReport(Displayed):
    """The outcome of `bench`: ours first, then the peers."""

    threads: int
    rows: tuple[BenchRow, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return asdict(self)


@takes(
    model=SOURCE, program=optional(instance(Program, wanted="a graft.Program")), compare=TEXTS, threads=optional(WHOLE),
    seconds=DURATION, warmup=DURATION, shapes=optional(SHAPES), dims=optional(DIMS), inputs=optional(FEEDS),
    manager=optional(MANAGER), without=TEXTS, precision=TEXT,
    policy=optional(instance(Policy, wanted="a graft.Policy")),
)  # fmt: skip
def bench(
    model: Source,
    backends: Sequence[str | Backend] | None = None,
    *,
    program: Program | None = None,
    compare: Sequence[str] = (),
    threads: int | None = None,
    seconds: float = 3.0,
    warmup: float = 0.2,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Dims | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    without: Collection[str] = (),
    precision: str = "float32",
    policy: Policy | None = None,
    manager: PluginManager | None = None,
) -> BenchReport:
    """Measure a model (or a compiled ``program`` of it) and peers in turns; ``seconds`` is the time for all of them.

    ``compare`` names peers (``onnxruntime``, ``openvino``, ``mnn``, ``torch``, ``iree``, ``tvm``); they run the model
    as it was loaded, on as many threads, and in bfloat16 where ``precision`` is ``bf16`` and they can. ``without``
    names optimisations that ours is compiled without, and ``policy`` says how it is placed. ``dims`` are numbers that
    symbols have in the run, and ranges that the program is compiled for.
    """
    from graft.compiler.api import compile
    from graft.core.importer.load import load
    from graft.core.machine.host import available_threads
    from graft.core.shapes.sample_inputs import sample_inputs

    values, ranges = values_and_ranges(dims or {})
    original = load(model, shapes=shapes, dims=ranges)
    feeds = dict(inputs) if inputs is not None else sample_inputs(original, dims=values)
    count = threads or available_threads()
    if program is None:
        program = compile(
            original, backends, threads=count, precision=precision, without=without, policy=policy, manager=manager
        )
    runs: dict[str, Run] = {"graft": program_run(program, feeds)}
    for name in compare:
        runs[name] = peer(name, original, feeds, count, precision)
    return BenchReport(count, tuple(measure(runs, seconds, warmup)))


def bench_program(
    program: Program, inputs: Mapping[str, np.ndarray], seconds: float = 3.0, warmup: float = 0.2
) -> BenchReport:
    """Measure a program by itself."""
    rows = measure({"graft": program_run(program, inputs)}, seconds, warmup)
    return BenchReport(program.threads, tuple(rows))


def program_run(program: Program, feeds: Mapping[str, np.ndarray]) -> Run:
    """Return a call of the program with these inputs, in the cheapest form; raise InputError if they do not fit."""
    program.run(feeds)
    arrays = [feeds[one.name] for one in program.inputs]
    return lambda: program(*arrays)


def measure(runs: Mapping[str, Run], seconds: float, warmup: float = 0.2, minimum: int = 5) -> list[BenchRow]:
    """Run all contestants in turns for ``seconds`` in total (at least ``minimum`` rounds); the first is ours."""
    first_call: dict[str, float] = {}
    for name, run in runs.items():
        deadline = perf_counter() + warmup / len(runs)
        run()
        first_call[name] = _timed(run)
        while perf_counter() < deadline:
            run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    deadline, rounds = perf_counter() + seconds, 0
    while rounds < minimum or perf_counter() < deadline:
        for name, run in runs.items():
            if len(runs) > 1 and _wait_for_rest() and first_call[name] < WAKING:
                run()  # one call to wake its threads
            times[name].append(_timed(run))
        rounds += 1
    ours = np.array(next(iter(times.values())))
    return [_row(name, np.array(theirs), ours) for name, theirs in times.items()]


def _timed(run: Run) -> float:
    """Return the seconds that a call takes."""
    started = perf_counter()
    run()
    return perf_counter() - started


def _wait_for_rest() -> bool:
    """Wait until no thread of this process computes, at most 0.2 s; return whether any did."""
    deadline, waited = perf_counter() + 0.2, False
    while perf_counter() < deadline:
        used = process_time()
        sleep(0.01)  # the kernel adds up the time of a running thread every few milliseconds
        if process_time() - used < 0.002:
            break
        waited = True
    return waited


def _row(name: str, times: np.ndarray, ours: np.ndarray) -> BenchRow:
    median, best, p90, p99 = (float(np.percentile(times, q)) * 1e3 for q in (50, 0, 90, 99))
    return BenchRow(name, median, best, p90, p99, len(times), float(np.median(ours / times)))
