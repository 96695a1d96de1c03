"""The command ``python -m graft.testkit.models``: many random models, and a report of what was found."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from graft.errors import GraftError
from graft.testkit.models.check import ways
from graft.testkit.models.options import PLAIN, Options
from graft.testkit.models.run import run_models


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0 where all is well, 1 where something was found, 2 for a wrong argument."""
    parser = argparse.ArgumentParser("python -m graft.testkit.models", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="how many models (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument(
        "--backends", help="ways to compile each model, with commas: default, mixed, names of backends, and -NAME for "
        "an optimisation switched off; without it each model goes one drawn way",
    )  # fmt: skip
    parser.add_argument("--plain", action="store_true", help="float32, static shapes and finite numbers alone")
    parser.add_argument("--out", type=Path, help="a folder for what was found: the smallest model, inputs, outputs")
    given = parser.parse_args(arguments)
    wanted = tuple(given.backends.split(",")) if given.backends else ()
    if unknown := [one for one in wanted if one not in ways()]:
        print(f"there is no way '{unknown[0]}'; there are {', '.join(ways())}", file=sys.stderr)
        return 2
    try:
        report = run_models(
            range(given.seed, given.seed + given.count), wanted, PLAIN if given.plain else Options(),
            out=given.out, seconds=given.seconds, tell=lambda text: print(text, flush=True),
        )  # fmt: skip
    except GraftError as error:
        print(error, file=sys.stderr)
        return 2
    print(report)
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
