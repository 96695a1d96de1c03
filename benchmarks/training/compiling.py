"""CPU seconds of compiling a network and a step of its training, without kernels that were compiled before.

    python -m benchmarks.training.compiling [NETWORK ...] [--turns 2]

Of each the least of so many turns, in one process; a step is its gradients written and compiled.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from time import process_time

import graft
from benchmarks.training.__main__ import MOMENTUM, RATE, weights_of
from benchmarks.training.networks import NETWORKS
from graft.training import SGD, Trainer


def least(turns: int, compiled: Callable[[], object]) -> float:
    """Return the least CPU seconds of several turns, each with an empty cache."""
    found = []
    for _ in range(turns):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = folder
            started = process_time()
            compiled()
            found.append(process_time() - started)
    return min(found)


def row(name: str, turns: int) -> str:
    """Return the seconds of a network as a row."""
    proto = NETWORKS[name]()
    inference = least(turns, lambda: graft.compile(proto, threads=2))
    step = least(turns, lambda: Trainer(proto, "cross-entropy", SGD(RATE, MOMENTUM), wrt=weights_of(proto), threads=2))
    return f"| {name} | {inference:.1f} | {step:.1f} | {step / inference:.1f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--turns", type=int, default=2)
    options = parser.parse_args()
    least(1, lambda: graft.compile(NETWORKS["lstm"](), threads=2))  # what is made once in a process
    print("| network | inference, s | a step, s | of inference |\n|---|---:|---:|---:|")
    for name in options.networks:
        print(row(name, options.turns), flush=True)


if __name__ == "__main__":
    main()
