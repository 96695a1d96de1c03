"""The cost of a call in another process: a trivial native function there and here, in turns.

Beside it stands what a wake-up costs: a byte through a socket to a process and back.
Run: python -m benchmarks.isolation
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
from time import perf_counter

import numpy as np

from benchmarks.call_overhead import image
from graft.runtime.isolation.options import Isolation
from graft.runtime.isolation.program import loaded
from graft.runtime.procedure import Call, Module, Procedure, ProgramDescription, TensorSpec
from graft.runtime.program import Program


def description(elements: int, calls: int) -> ProgramDescription:
    """Return a program of calls one after another, with tensors of so many elements between them in the arena."""
    import platform

    machine = 62 if platform.machine() == "x86_64" else 183
    bytes_each = -(-4 * elements // 64) * 64
    between = tuple(
        TensorSpec(f"t{i}", "float32", (elements,), "arena", offset=(i - 1) * bytes_each) for i in range(1, calls)
    )
    x = TensorSpec("x", "float32", (elements,), "input", index=0)
    y = TensorSpec("y", "float32", (elements,), "output", index=0)
    steps = tuple(Call("call", (i,), (i + 1,), module=0, function="copy") for i in range(calls))
    procedure = Procedure("main", (x, *between, y), (0,), (calls,), steps, arena_bytes=bytes_each * (calls - 1))
    return ProgramDescription((procedure,), (Module("m", "native", ("copy",), image(machine), plugin="vendor"),), {})


def microseconds(program: Program, x: np.ndarray, calls: int, rounds: int) -> float:
    """Return the time of one call of the function, as the median of rounds."""
    times = []
    for _ in range(rounds):
        started = perf_counter()
        program(x)
        times.append((perf_counter() - started) / calls)
    return statistics.median(times) * 1e6


def wake_up(rounds: int) -> float:
    """Return the time of a byte to another process and back."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        while data := theirs.recv(1):
            theirs.send(data)
        os._exit(0)
    theirs.close()
    times = []
    for _ in range(rounds):
        started = perf_counter()
        ours.send(b"x")
        ours.recv(1)
        times.append(perf_counter() - started)
    ours.close()
    os.waitpid(child, 0)
    return statistics.median(times) * 1e6


def main() -> None:
    """Print a row for each size of the tensors between two isolated calls."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    print(f"a wake-up and back: {wake_up(rounds):.0f} us\n")
    print("| tensors between calls | here, us a call | in a process, us a call |")
    print("|---|--:|--:|")
    calls = 16
    for elements in (16, 16 << 10, 1 << 20):
        parts = description(elements, calls)
        here = Program.from_description(parts, threads=1)
        apart = loaded(parts, 1, isolation={"vendor": Isolation()})
        x = np.zeros(elements, np.float32)
        apart(x)
        times = [(microseconds(here, x, calls, rounds), microseconds(apart, x, calls, rounds)) for _ in range(3)]
        least = [min(pair[i] for pair in times) for i in range(2)]
        print(f"| {4 * elements / 1024:.2f} KiB | {least[0]:.2f} | {least[1]:.1f} |")


if __name__ == "__main__":
    main()
