"""The scorecards of the backends in the tree: ``python -m tests.conformance.scorecards [NAME[/LEVEL] ...]``.

Groups run one after another, and what they find is kept in build/scorecards: a run that is cut off goes on where it
was, and the page docs/scorecards.md is made of all that is there; a backend of which nothing is there keeps the
section that the page has. ``--again`` forgets what was kept, ``--sample`` runs what CI runs, ``--page`` runs nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from graft.testkit.conformance.cases.outcome import Result
from graft.testkit.conformance.scorecard import Scorecard
from graft.testkit.conformance.suite import bad

from .in_tree import BACKENDS, groups, missing, suite

ROOT = Path(__file__).parents[2]
KEPT, PAGE = ROOT / "build" / "scorecards", ROOT / "docs" / "scorecards.md"
HEAD = """# Scorecards

What `graft plugin test` finds of the backends in the tree, by [the levels](plugins.md#2-hold-it-to-a-level). This page
comes from `python -m tests.conformance.scorecards`; `make test-kit` runs the same as tests, `make test-conformance` a
sample of them. *Expected* failures stand in `tests/conformance/ledgers/`, each with its reason, and are strict: one
that passes fails its test.
"""


def main() -> None:
    """Run what is asked for, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wanted", nargs="*", metavar="NAME[/LEVEL]")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in () if given.page else BACKENDS:
        levels = [one for one in BACKENDS[name].levels if wants(given.wanted, name, one)]
        if levels and missing(name) is None:
            run(name, levels, given.again, given.sample)
    PAGE.write_text(page(), encoding="utf-8")


def wants(wanted: Sequence[str], name: str, level: int) -> bool:
    """Whether a level of a backend is asked for; everything is where nothing is named."""
    return not wanted or name in wanted or f"{name}/{level}" in wanted


def run(name: str, levels: Sequence[int], again: bool, sample: bool) -> None:
    """Run the groups of some levels that were not run before."""
    own = suite(name)
    for level, subject in groups(name):
        if level not in levels or (sample and not BACKENDS[name].is_sampled(name, level, subject)):
            continue
        path = KEPT / name / f"{level}-{subject.replace('::', '.')}.json"
        if path.exists() and not again:
            continue
        before = seconds()
        results = own.run(level, subject)
        path.parent.mkdir(parents=True, exist_ok=True)
        data = {"seconds": seconds() - before, "results": [asdict(one) for one in results]}
        path.write_text(json.dumps(data), encoding="utf-8")
        for one in bad(results):
            print(f"{name}: {one.name}: {one.text}", flush=True)


def seconds() -> float:
    """Return the processor time of this process and of those that it waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def page() -> str:
    """Return the page: a scorecard for each backend, of all that was kept."""
    written = {part.split(":")[0]: f"## {part}" for part in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]}
    return HEAD + "".join(f"\n{section(name, written.get(name))}" for name in BACKENDS)


def section(name: str, written: str | None) -> str:
    """Return a backend's scorecard, with how much of its groups was run and how long that took, or what is written."""
    kept = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((KEPT / name).glob("*.json"))]
    results: list[dict[str, Any]] = [row for one in kept for row in one["results"]]
    if not kept:
        return f"{written.rstrip()}\n" if written else f"## {name}: not run\n"
    levels = {Result(**row).level for row in results}
    card = Scorecard(name, max(levels, default=0), tuple(sorted((Result(**row) for row in results), key=str)))
    known = len(groups(name))
    took = sum(one["seconds"] for one in kept)
    share = "All" if len(kept) == known else f"{len(kept)} of"
    run = ", ".join(map(str, sorted(levels)))
    return f"{card.markdown()}\n{share} {known} groups were run, of levels {run}, in {took:.0f} s of processor time.\n"


if __name__ == "__main__":
    main()
