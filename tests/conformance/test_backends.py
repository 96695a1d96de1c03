"""Every backend in the tree, held to the levels that vendors' are, with a strict ledger of what is expected to fail."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from graft.compiler.request import plugins
from graft.testkit.conformance.suite import bad
from graft.testkit.pytest_names import PROPERTY

from .in_tree import BACKENDS, LEDGERS, groups, missing, suite

PAGE = Path(__file__).parents[2] / "docs" / "scorecards.md"


def _groups() -> list[Any]:
    return [
        pytest.param(
            name,
            level,
            subject,
            id=f"{name}-{level}-{subject}",
            marks=[pytest.mark.conformance, *([] if held.is_sampled(name, level, subject) else [pytest.mark.whole])],
        )
        for name, held in BACKENDS.items()
        for level, subject in groups(name)
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "level", "subject"), _groups())
def test_a_backend_in_the_tree_conforms(name: str, level: int, subject: str, record_property: Any) -> None:
    if reason := missing(name):
        pytest.skip(reason)
    results = suite(name).run(level, subject)
    record_property(PROPERTY, {"backend": name, "results": [asdict(one) for one in results]})
    wrong = bad(results)
    assert not wrong, "\n".join(f"{one.name}: {one.text}" for one in wrong)


def test_every_backend_in_the_tree_is_held_to_something() -> None:
    own = {source.name for source in plugins().sources() if source.is_own}
    known = {one.name for plugin in plugins().plugins() if plugin.name in own for one in plugin.backends}
    assert known == BACKENDS.keys()


def test_every_backend_has_its_scorecard_on_the_page() -> None:
    sections = [
        line.split()[1].rstrip(":") for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:3] == "## "
    ]
    assert sections == sorted(BACKENDS)


def test_every_ledger_is_of_a_backend_in_the_tree() -> None:
    assert {path.stem for path in LEDGERS.glob("*.txt")} <= BACKENDS.keys()
