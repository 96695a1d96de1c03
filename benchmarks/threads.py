"""Two threads where the machine is not ours alone, and several callers of one program beside ONNX Runtime.

    python -m benchmarks.threads [MODEL ...] [--rounds 9] [--seconds 0.1] [--callers 2,4] [--markdown]

First table: the mean time of a call with one thread and with two, in short turns, while

    alone      nothing else happens
    moved      the calling thread is put on another processor every five calls
    pinned     it is tied to a processor, to another one every twenty calls
    busy N     N processes that never rest, each tied to a processor of its own

*two of one* and *of alone* are medians, round by round. *lent* and *parted* count how often per second a worker
without a processor got its caller's, and one had to leave it.

Second table: calls per second of one program from several Python threads, beside one session of ONNX Runtime.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Barrier, Thread
from time import perf_counter, sleep

import numpy as np

import graft
from benchmarks.zoo import SMALL, model
from graft.core.shapes.sample_inputs import sample_inputs
from graft.measure.latency import Run, program_run
from graft.measure.peers.peer_table import peer
from graft.runtime.program import Program

BEFORE_TURN = 0.005  # seconds, so that the threads of the turn before sleep
PROCESSORS = sorted(os.sched_getaffinity(0))
Mover = Callable[[int], None]


@dataclass
class Contestant:
    """A program on some threads, and what its turns took."""

    program: Program
    run: Run
    milliseconds: list[float] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("lent", "parted"), 0))
    seconds: float = 0.0

    def turn(self, seconds: float, before: Mover) -> None:
        """Call for some seconds, and note the mean time of a call."""
        self.run()
        old, calls, start = self.program.pool_counts, 0, perf_counter()
        while perf_counter() < start + seconds:
            before(calls)
            self.run()
            calls += 1
        passed = perf_counter() - start
        self.milliseconds.append(passed / calls * 1e3)
        self.seconds += passed
        for name in self.counts:
            self.counts[name] += self.program.pool_counts[name] - old[name]

    def per_second(self, name: str) -> float:
        """Return how often a thing happened."""
        return self.counts[name] / self.seconds


def stay(_: int) -> None:
    """Leave the caller where it is."""


def move(call: int) -> None:
    """Put the caller on the next processor every five calls, and let it go again."""
    if call % 5 == 0:
        os.sched_setaffinity(0, {PROCESSORS[call // 5 % len(PROCESSORS)]})
        os.sched_setaffinity(0, PROCESSORS)


def pin(call: int) -> None:
    """Tie the caller to the next processor every twenty calls."""
    if call % 20 == 0:
        os.sched_setaffinity(0, {PROCESSORS[call // 20 % len(PROCESSORS)]})


@contextmanager
def busy(processors: Sequence[int]) -> Iterator[None]:
    """Keep processors busy from outside."""
    code = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
    processes = [subprocess.Popen([sys.executable, "-c", code, str(one)]) for one in processors]
    try:
        sleep(0.2 if processes else 0)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def in_turns(contestants: Mapping[str, Contestant], rounds: int, seconds: float, before: Mover) -> None:
    """Let all contestants take turns."""
    for one in contestants.values():
        one.milliseconds.clear()
        one.counts, one.seconds = dict.fromkeys(one.counts, 0), 0.0
    for _ in range(rounds):
        for one in contestants.values():
            one.turn(seconds, before)
            os.sched_setaffinity(0, PROCESSORS)
            sleep(BEFORE_TURN)


def row(markdown: bool, *cells: str) -> None:
    """Print a row of a table."""
    line = "| " + " | ".join(cells) + " |" if markdown else " ".join(f"{cell:>14}" for cell in cells)
    print(line, flush=True)


def situations() -> dict[str, tuple[Mover, Sequence[int]]]:
    """Return by name what happens before each call, and the processors that others keep busy."""
    found: dict[str, tuple[Mover, Sequence[int]]] = {
        "alone": (stay, ()),
        "moved": (move, ()),
        "pinned": (pin, ()),
        **{f"busy {n}": (stay, PROCESSORS[-n:]) for n in range(1, len(PROCESSORS) + 1)},
    }
    return found


def disturbed(name: str, options: argparse.Namespace) -> None:
    """Print the rows of the first table for one model."""
    source = model(name)
    feeds = sample_inputs(source)
    contestants = {}
    for threads in (1, len(PROCESSORS)):
        program = graft.compile(source, ["llvm"], threads=threads)
        contestants[str(threads)] = Contestant(program, program_run(program, feeds))
    one, all_ = contestants.values()
    alone = np.zeros(0)
    for situation, (before, processors) in situations().items():
        with busy(processors):
            in_turns(contestants, options.rounds, options.seconds, before)
        times = np.array(all_.milliseconds)
        alone = times if situation == "alone" else alone
        row(options.markdown, name, situation, f"{np.median(one.milliseconds):.2f}", f"{np.median(times):.2f}",
            f"{np.median(times / np.array(one.milliseconds)):.2f}", f"{np.median(times / alone):.2f}",
            f"{all_.per_second('lent'):.0f}", f"{all_.per_second('parted'):.0f}")  # fmt: skip


def throughput(run: Run, callers: int, seconds: float) -> float:
    """Return the calls per second of several threads together."""
    barrier, calls = Barrier(callers + 1), [0] * callers

    def call(number: int) -> None:
        barrier.wait()
        end = perf_counter() + seconds
        while perf_counter() < end:
            run()
            calls[number] += 1

    threads = [Thread(target=call, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    barrier.wait()
    start = perf_counter()
    for thread in threads:
        thread.join()
    return sum(calls) / (perf_counter() - start)


def together(name: str, callers: int, threads: int, options: argparse.Namespace) -> None:
    """Print the row of the second table for one model, so many callers, and programs on so many threads."""
    source = model(name)
    feeds = sample_inputs(source)
    ours = program_run(graft.compile(source, ["llvm"], threads=threads), feeds)
    theirs = peer("onnxruntime", source, feeds, threads)
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(options.rounds):
        for rate, run in zip(rates, (ours, theirs), strict=True):
            run()
            rate.append(throughput(run, callers, 2 * options.seconds))
            sleep(0.05)  # ONNX Runtime's threads spin for a while
    ratio = np.median(np.array(rates[0]) / np.array(rates[1]))
    row(options.markdown, name, str(callers), str(threads), *(f"{np.median(one):.1f}" for one in rates), f"{ratio:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=SMALL)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a turn")
    parser.add_argument("--callers", default="2,4")
    parser.add_argument("--only", choices=("disturbed", "callers"))
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    if options.only != "callers":
        row(options.markdown, "model", "situation", "one ms", f"{len(PROCESSORS)} threads ms", "two of one", "of alone",
            "lent/s", "parted/s")  # fmt: skip
        for name in options.models:
            disturbed(name, options)
    if options.only != "disturbed":
        row(options.markdown, "model", "callers", "threads", "graft calls/s", "onnxruntime", "ratio")
        for name in options.models:
            for callers in map(int, options.callers.split(",")):
                for threads in (1, len(PROCESSORS)):
                    together(name, callers, threads, options)


if __name__ == "__main__":
    main()
