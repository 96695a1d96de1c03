"""The pytest plugin of the kit: ``--graft-scorecard FILE`` writes what the tests of `conformance` found.

It is loaded wherever Graft and pytest are installed, so it imports nothing before it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from graft.testkit.pytest_names import IN_PROCESS, PROPERTY

if TYPE_CHECKING:
    from graft.testkit.conformance.scorecard import Scorecard

FOUND = pytest.StashKey[dict[str, list[dict[str, Any]]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    group = parser.getgroup("graft", "conformance of Graft's backends")
    group.addoption(
        "--graft-scorecard", action="append", default=[], metavar="FILE", dest="graft_scorecard",
        help="write the scorecard to FILE (.json, .html, .svg, .md or text); {} stands for the backend's name",
    )  # fmt: skip
    group.addoption(
        "--graft-in-process", action="store_true", dest=IN_PROCESS,
        help="run the cases in this process, as a debugger or a measure of coverage wants it: a crash ends pytest",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Make room for the results."""
    config.stash[FOUND] = {}
    config.pluginmanager.register(_Listener(config.stash[FOUND]), "graft-conformance-listener")


class _Listener:
    """Hears the reports, those of other processes too."""

    def __init__(self, found: dict[str, list[dict[str, Any]]]) -> None:
        self.found = found

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the results of a test."""
        if report.when == "call":
            for name, value in report.user_properties:
                if name == PROPERTY and isinstance(value, Mapping):
                    self.found.setdefault(value["backend"], []).extend(value["results"])


def scorecards(config: pytest.Config) -> Iterator[Scorecard]:
    """Give the scorecard of each backend that was tested."""
    from graft.testkit.conformance.cases.outcome import Result
    from graft.testkit.conformance.scorecard import Scorecard

    for backend, rows in sorted(config.stash[FOUND].items()):
        results = sorted((Result(**row) for row in rows), key=lambda one: one.name)
        yield Scorecard(backend, max((one.level for one in results), default=0), tuple(results))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say in a line what each backend reached, and write the scorecards."""
    if not config.stash[FOUND]:
        return
    from graft.runtime.system.files import write

    for scorecard in scorecards(config):
        terminalreporter.write_line(f"graft: {scorecard.backend}: {scorecard.message}")
        for place in config.getoption("graft_scorecard"):
            path = Path(str(place).replace("{}", scorecard.backend))
            write(path, scorecard.write(path.suffix), "scorecard")
