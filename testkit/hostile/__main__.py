"""The command ``python -m graft.testkit.hostile``: damaged models and artifacts by seed, or guided by atheris."""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

from graft.testkit.hostile.guided import guided
from graft.testkit.hostile.run import TARGETS, run_hostile


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 where all is well and 1 where something was found."""
    parser = argparse.ArgumentParser("python -m graft.testkit.hostile", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="how many inputs for each target (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--target", choices=list(TARGETS), help="one target alone")
    parser.add_argument("--memory", type=int, default=4096, help="the process may have so many MiB (default: 4096)")
    parser.add_argument("--out", type=Path, help="a folder for what was found")
    parser.add_argument("--atheris", nargs=argparse.REMAINDER, help="let atheris choose, with libFuzzer's arguments")
    given = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_AS, (given.memory << 20, resource.getrlimit(resource.RLIMIT_AS)[1]))
    if given.atheris is not None:
        guided(given.target or "model", given.atheris, given.out)
    targets = (given.target,) if given.target else tuple(TARGETS)
    report = run_hostile(range(given.seed, given.seed + given.count), targets, given.seconds, given.out)
    print(report)
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
