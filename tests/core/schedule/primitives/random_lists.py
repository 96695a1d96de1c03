"""Random lists of ten steps over the kernels of PolyBench and of TVM's cases: each keeps what the loops compute.

``python -m tests.core.schedule.primitives.random_lists --lists 100000`` tries many, and prints how often each step was
taken, the reasons of refusals, and each list that failed.
"""

import argparse
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import Pool

import numpy as np

from graft.core.tensor_ir import ir
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.parser import parse_function
from tests.core.schedule.primitives import tvm_cases
from tests.core.schedule.primitives.nests import nest
from tests.core.schedule.primitives.polybench import INTEGERS, KERNELS, inputs, kernel, shapes
from tests.core.schedule.primitives.random_steps import EXTERNS, check_same, instructions, packed, random_schedule

STATIC = ({"n": 5, "m": 4, "p": 3, "q": 6}, {"n": 4, "m": 3, "p": 5, "q": 2}, {"n": 3, "m": 5, "p": 4, "q": 3})
SYMBOLS = (
    {"n": 5, "m": 4, "p": 3, "q": 6},
    {"n": 2, "m": 3, "p": 1, "q": 4},
    {"n": 1, "m": 0, "p": 2, "q": 1},
    {"n": 0, "m": 1, "p": 0, "q": 1},
    {"n": 4, "m": 1, "p": 5, "q": 0},
)
VARIANTS = [(name, "float32") for name in KERNELS] + [(name, "int32") for name in INTEGERS]
CASES = [(name, "") for name, text in tvm_cases.KERNELS.items() if "call" not in text]
"""The kernels of TVM's cases, with the types that they have."""


@dataclass
class Tally:
    """What became of steps: by kind, and the reasons of refusals, in which names and numbers are left out."""

    lists: int = 0
    taken: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Add what another one counted."""
        self.lists += other.lists
        self.taken += other.taken
        self.refused += other.refused
        self.reasons += other.reasons
        self.failures += other.failures

    def __str__(self) -> str:
        rows = [f"{self.lists} lists, {sum(self.taken.values())} steps taken, {len(self.failures)} lists failed"]
        for kind in sorted({*self.taken, *self.refused}):
            taken, refused = self.taken[kind], self.refused[kind]
            rows.append(f"{kind:14} taken {taken:7} refused {refused:7} ({100 * refused / (taken + refused):.0f} %)")
            found = [(count, reason) for (own, reason), count in self.reasons.items() if own == kind]
            rows += [f"    {count:7} {reason}" for count, reason in sorted(found, reverse=True)[:12]]
        return "\n".join([*rows, *self.failures])


def source(name: str, dtype: str, extents: dict[str, int]) -> ir.Function:
    """Return a kernel as plain loops; extents that are not given stay variables."""
    if dtype:
        return kernel(name, extents, dtype)
    text = tvm_cases.KERNELS[name]
    function: ir.Function = nest(text)[1] if text.lstrip().startswith("input") else parse_function(f"function f{text}")
    return function


Run = tuple[list[np.ndarray], list[np.ndarray], list[tuple[int, ...]]]


@cache
def plain(name: str, dtype: str, number: int) -> tuple[ir.Function, list[Run]]:
    """A kernel and its inputs, results and their shapes: of one set of extents, or of all where they are variables."""
    function = source(name, dtype, STATIC[number] if number < len(STATIC) else {})
    has_symbols = any(isinstance(one, ir.Variable) for buffer in function.parameters for one in buffer.shape)
    runs = []
    for extents in SYMBOLS if has_symbols else STATIC[number : number + 1] or STATIC[:1]:
        given, outputs = inputs(function, extents), shapes(function.output_buffers, extents)
        runs.append((given, run_function(function, given, outputs), outputs))
    return function, runs


def check_list(name: str, dtype: str, seed: int, symbolic: bool) -> Tally:
    """Check that the steps of a list that are taken keep the result; raise AssertionError with the list."""
    draw = random.Random(f"{name} {dtype} {seed}")
    function, runs = plain(name, dtype, len(STATIC) if symbolic else draw.randrange(len(STATIC)))
    meanings = instructions(dtype or "float32")
    changed, taken, refused = random_schedule(draw, function, 10, meanings)
    for given, expected, outputs in runs:
        try:
            check_same(changed, packed(function, taken, given), expected, outputs, EXTERNS)
        except Exception as error:
            steps = "\n".join(map(str, taken))
            raise AssertionError(f"{error}\n{steps}") from error
    tally = Tally(1, Counter(type(step).__name__ for step in taken))
    for step, error in refused:
        tally.refused[type(step).__name__] += 1
        reason = error.message.partition("': ")[2]
        tally.reasons[type(step).__name__, re.sub(r"('[^']*'(, )?)+", "'_'", re.sub(r"\d+", "N", reason))] += 1
    return tally


def numbered(first: int, count: int) -> Iterator[tuple[str, str, int, bool]]:
    """Yield kernels, with seeds, in turn: fifteen of PolyBench's to one of TVM's, of each four one with variables."""
    for number in range(first, first + count):
        kernels = CASES if number % 16 == 15 else VARIANTS
        name, dtype = kernels[(number // 16 if kernels is CASES else number) % len(kernels)]
        yield name, dtype, number, number // len(VARIANTS) % 4 == 3


def attempt(which: tuple[str, str, int, bool]) -> Tally:
    """Check a list; return what failed as text."""
    try:
        return check_list(*which)
    except Exception as error:
        return Tally(1, failures=[f"---- {which}: {type(error).__name__}: {error}"])


def main() -> None:
    """Try lists in several processes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lists", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first list, which is its seed")
    parser.add_argument("--processes", type=int, default=2)
    parsed = parser.parse_args()
    total, begin = Tally(), time.monotonic()
    with Pool(parsed.processes) as pool:
        for tally in pool.imap_unordered(attempt, numbered(parsed.first, parsed.lists), 50):
            total.add(tally)
            for failure in tally.failures:
                print(failure, flush=True)
    total.failures, failed = [], len(total.failures)
    print(total, f"{failed} failed, {time.monotonic() - begin:.0f} s", sep="\n")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
