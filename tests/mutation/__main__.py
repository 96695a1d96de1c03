"""``python -m tests.mutation MODULE [--tests FILE ...] [--count 40] [--seed 0]``: which mutants the tests let live.

Without ``--tests`` they are the module's own: `tests/` and its path, ``test_`` and its name. A mutant is killed if
pytest fails or takes ten times as long as without. Survivors are printed; the exit status is 1 if fewer than 85 % are
killed.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .mutants import Mutant, mutants_of

ROOT = Path(__file__).parents[2]
WANTED = 0.85


def passes(tests: list[str], seconds: float, mutant: str = "") -> bool:
    """Whether the tests pass, in time, with a mutant."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.mutation.plugin",
        *tests,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **({"GRAFT_MUTANT": mutant} if mutant else {})}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main() -> int:
    """Try mutants drawn by a seed and print the survivors."""
    parser = argparse.ArgumentParser(description="Which mutants of a module its tests let live.")
    parser.add_argument("module", type=Path)
    parser.add_argument("--tests", nargs="+")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    path = options.module.resolve().relative_to(ROOT)
    tests = options.tests or [str(Path("tests", *path.parent.parts, f"test_{path.name}"))]
    begun = time.monotonic()
    if not passes(tests, 600):
        parser.error(f"{' '.join(tests)}: fail, or are not there, without a mutant")
    seconds = 10 * (time.monotonic() - begun) + 5
    found = mutants_of((ROOT / path).read_text(encoding="utf-8"))
    chosen = random.Random(options.seed).sample(found, min(options.count, len(found)))
    survivors: list[Mutant] = []
    with tempfile.TemporaryDirectory() as folder:
        for mutant in chosen:
            source = Path(folder, "mutant.py")
            source.write_text(mutant.source, encoding="utf-8")
            if passes(tests, seconds, f"{ROOT / path}{os.pathsep}{source}"):
                survivors.append(mutant)
                print(f"{path}:{mutant.line}: {mutant.change}", flush=True)
    killed = len(chosen) - len(survivors)
    print(f"{path}: {killed} of {len(chosen)} killed ({killed / max(1, len(chosen)):.0%}), of {len(found)} there are")
    return int(killed < WANTED * len(chosen))


if __name__ == "__main__":
    sys.exit(main())
