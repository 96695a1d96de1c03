"""``python -m tests.mutation MODULE ... | --draw 40 [--seed 27] [--count 15]``: which mutants the tests let live.

The tests of a module are its own: `tests/` and its path, ``test_`` and its name; `--tests` names others. `--draw` takes
so many modules that have a test, by the seed, room by room. A mutant is killed if pytest fails or takes much longer
than without. Survivors and a table are printed; the exit status is 1 if of a module fewer than 85 % are killed.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import sys
from collections import Counter
from pathlib import Path

from tests.ratchets import own_test, tested_modules

from .runs import ROOT, Measured, measure

WANTED = 0.85


def drawn(count: int, seed: int) -> list[str]:
    """Modules with a test of their own, each room in turn, in an order that a module more or less leaves as it is."""
    paths = [path.relative_to(ROOT) for path in tested_modules()]
    paths.sort(key=lambda path: hashlib.sha256(f"{seed}:{path}".encode()).digest())
    turns: Counter[tuple[str, ...]] = Counter()
    ranked = []
    for place, path in enumerate(paths):
        room = path.parent.parts[: 1 + (path.parts[0] == "core")]
        ranked.append((turns[room], place, str(path)))
        turns[room] += 1
    return [path for _, _, path in sorted(ranked)[:count]]


def main() -> int:
    """Try mutants drawn by a seed and print the survivors."""
    parser = argparse.ArgumentParser(description="Which mutants of a module its tests let live.")
    parser.add_argument("modules", type=Path, nargs="*")
    parser.add_argument("--draw", type=int, default=0)
    parser.add_argument("--tests", nargs="+")
    parser.add_argument("--count", type=int, default=15)
    parser.add_argument("--seed", type=int, default=27)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    modules = [str(path.resolve().relative_to(ROOT)) for path in options.modules] or drawn(options.draw, options.seed)
    work = [(module, options.tests or [own_test(ROOT / module)], options.count, options.seed) for module in modules]
    with multiprocessing.get_context("spawn").Pool(options.jobs, maxtasksperchild=1) as pool:
        waiting = [pool.apply_async(measure, arguments, callback=_show) for arguments in work]
        rows = [one.get() for one in waiting]
    print("\n| module | mutants | killed |\n| --- | --- | --- |")
    print("\n".join(f"| `{row.module}` | {row.drawn} | {row.killed} |" for row in rows))
    total, killed = sum(row.drawn for row in rows), sum(row.killed for row in rows)
    print(f"| all {len(rows)} | {total} | {killed} ({killed / max(1, total):.0%}) |")
    return int(any(row.error or row.killed < WANTED * row.drawn for row in rows))


def _show(row: Measured) -> None:
    print("\n".join([*row.survivors, str(row)]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
