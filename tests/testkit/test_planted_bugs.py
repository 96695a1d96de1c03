"""Bugs that are planted into a good backend: the kit finds each, and says what leads to the cause."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graft.testkit.conformance.cases.outcome import BAD, Result
from graft.testkit.conformance.suite import suite_of
from tests.testkit.backends import plugin
from tests.testkit.good_backend import GOOD
from tests.testkit.planted_bugs import BUGS

SAMPLE = frozenset(sorted(BUGS)[::8])
"""The bugs of the normal suite; the others are for `make test-conformance`."""
GROUPS = sorted({bug.group for bug in BUGS.values()})


def first_finding(file: Path, group: str) -> str:
    """Return the first case of a group that fails, or passes with a warning, as ``CASE: TEXT``."""
    level, _, subject = group.partition("/")
    for step in suite_of("npu", level=5, plugin_files=[file]).steps(int(level), subject):
        if isinstance(step, Result) and (step.verdict in BAD or (step.verdict == "passed" and step.text)):
            return f"{step.name}: {step.text}"
    return ""


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[] if one in SAMPLE else [pytest.mark.conformance]) for one in BUGS]
)
def test_a_planted_bug_is_found(name: str, tmp_path: Path) -> None:
    bug = BUGS[name]
    found = first_finding(plugin(tmp_path, bug.source, GOOD), bug.group)
    assert found, "the kit finds nothing"
    assert re.search(bug.said, found), found


@pytest.mark.conformance
@pytest.mark.parametrize("group", GROUPS)
def test_the_backend_is_good_without_them(group: str, tmp_path: Path) -> None:
    assert first_finding(plugin(tmp_path, "", GOOD), group) == ""


def test_there_are_sixty_of_them() -> None:
    assert len(BUGS) >= 60
