"""The command ``python -m graft.testkit.hostile``: damaged models and artifacts by seed, or guided by atheris."""

from __future__ import annotations

import argparse
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

from graft.testkit.hostile.run import TARGETS, outcome, run_hostile
from graft.testkit.models.source import Source


class Guided(Source):
    """Choices that are the bytes of an input that atheris makes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(len(data))
        self.data, self.place = data, 0

    def below(self, count: int) -> int:
        """Return a whole number of ``[0, count)``: of the next bytes, of SplitMix64 where they end."""
        size = max(1, (count - 1).bit_length() + 7 >> 3)
        taken = self.data[self.place : self.place + size]
        self.place += size
        return int.from_bytes(taken, "little") % count if len(taken) == size else super().below(count)


def guided(target: str, engine: Sequence[str]) -> int:
    """Let atheris look for faults; ``engine`` are libFuzzer's arguments: a folder with a corpus, ``-runs=1000``."""
    import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]

    def one(data: bytes) -> None:
        answer, text = outcome(target, TARGETS[target][0](Guided(data)))
        if text:
            raise AssertionError(f"{answer}: {text}")

    atheris.instrument_all()
    atheris.Setup([sys.argv[0], *engine], one)
    atheris.Fuzz()
    return 0


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
    if given.atheris is not None:
        return guided(given.target or "model", given.atheris)
    resource.setrlimit(resource.RLIMIT_AS, (given.memory << 20, resource.getrlimit(resource.RLIMIT_AS)[1]))
    targets = (given.target,) if given.target else tuple(TARGETS)
    report = run_hostile(range(given.seed, given.seed + given.count), targets, given.seconds, given.out)
    print(report)
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
