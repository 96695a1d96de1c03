"""The scorecard: what a suite found, as data, text, Markdown, HTML and a badge; equal results give equal bytes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import graft
from graft.plugins.backend import API_LEVEL
from graft.testkit.conformance.cases.outcome import BAD, Result
from graft.testkit.conformance.levels import LEVELS

FORMAT, VERSION = "graft.scorecard", 1
GREEN, YELLOW, RED = "#2e7d32", "#b26a00", "#b3261e"
LETTER = 6.6
"""The width of a letter of the badge."""


@dataclass(frozen=True, slots=True)
class Row:
    """A level: how many cases were claimed, and how these ended; of ``not_run`` subjects no case could be run."""

    level: int
    title: str
    subjects: int
    claimed: int
    passed: int
    expected: int
    failed: int
    not_run: int


@dataclass(frozen=True, slots=True)
class Scorecard:
    """The results of one backend."""

    backend: str
    level: int
    results: tuple[Result, ...]
    only: tuple[str, ...] = ()
    """What was asked for of the levels, all of them if nothing: no level is reached by a part of it."""

    def rows(self) -> list[Row]:
        """Return the levels that were run."""
        found = []
        for number, level in enumerate(LEVELS[: self.level + 1]):
            every = [one for one in self.results if one.level == number and one.verdict != "not-claimed"]
            own = [one for one in every if one.verdict != "not-run"]
            counts = Counter(one.verdict for one in own)
            failed = sum(counts[verdict] for verdict in BAD)
            subjects = len({one.subject for one in own})
            not_run = len({one.subject for one in every} - {one.subject for one in own})
            passed, expected = counts["passed"], counts["expected-failure"]
            found.append(Row(number, level.title, subjects, len(own), passed, expected, failed, not_run))
        return found

    @property
    def reached(self) -> int:
        """The highest level below which, and at which, nothing fails and every check was run; -1 for none."""
        return next((row.level - 1 for row in self.rows() if row.failed or row.not_run), self.level)

    @property
    def ok(self) -> bool:
        """Whether nothing fails; what was not run lowers the level that is reached, and is no failure."""
        return not self.of(*BAD)

    def of(self, *verdicts: str) -> list[Result]:
        """Return the results with these verdicts."""
        return [one for one in self.results if one.verdict in verdicts]

    @property
    def warnings(self) -> list[Result]:
        """The cases that pass with a warning."""
        return [one for one in self.of("passed") if one.text]

    def to_json(self) -> dict[str, Any]:
        """Return the scorecard as JSON data; results that were not claimed are only counted."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "backend": self.backend,
            "graft": graft.__version__,
            "api_level": API_LEVEL,
            "level": self.level,
            "reached": self.reached,
            "ok": self.ok,
            "not_claimed": len(self.of("not-claimed")),
            "levels": [asdict(row) for row in self.rows()],
            "badge": {"schemaVersion": 1, "label": self.backend, "message": self.message, "color": self.colour},
            "results": [asdict(one) for one in self.results if one.verdict != "not-claimed"],
        }

    @property
    def message(self) -> str:
        """What the badge says: the level reached, and how many of the claimed cases pass."""
        rows = self.rows()
        passed, claimed = sum(row.passed for row in rows), sum(row.claimed for row in rows)
        if self.only:
            return f"{' '.join(self.only)} alone · {passed}/{claimed}"
        level = "not conformant" if self.reached < 0 else f"level {self.reached}"
        return f"{level} · {passed}/{claimed}"

    @property
    def colour(self) -> str:
        """The badge's colour."""
        return RED if self.reached < 0 else GREEN if self.reached == self.level else YELLOW

    def text(self) -> str:
        """Return the scorecard as lines of text."""
        head = ("LEVEL", "", "SUBJECTS", "CLAIMED", "PASSED", "EXPECTED", "FAILED")
        rows = [tuple(map(str, _cells(row))) for row in self.rows()]
        widths = [max(len(row[index]) for row in (head, *rows)) for index in range(len(head))]
        lines = [f"{self.backend}: {self.message}", ""]
        for row in (head, *rows):
            cells = (
                cell.ljust(width) if index < 2 else cell.rjust(width)
                for index, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            lines.append("  ".join(cells).rstrip())
        for title, found in (
            ("failed", self.of(*BAD)), ("not run", self.of("not-run")), ("warnings", self.warnings),
            ("expected", self.of("expected-failure")),
        ):  # fmt: skip
            if found:
                lines += ["", f"{title}:", *(f"  {one.name}: {one.reason or one.text}" for one in found)]
        return "\n".join(lines) + "\n"

    def markdown(self) -> str:
        """Return the scorecard as a section of a page, expected failures by their reason."""
        lines = [f"## {self.backend}: {self.message}", ""]
        lines += ["| level | | subjects | claimed | passed | expected | failed |", "| --- | --- " + "| ---: " * 5 + "|"]
        lines += [f"| {' | '.join(map(str, _cells(row)))} |" for row in self.rows()]
        operators = _subjects(self.results, 1)
        if operators:
            lines += ["", f"Operators: {', '.join(operators)}."]
        for reason, names in _by_reason(self.of("expected-failure")):
            lines += ["", f"Expected to fail, {len(names)}: {reason} ({_few(names)})."]
        for title, found in (("Fails", self.of(*BAD)), ("Not run", self.of("not-run")), ("Warning", self.warnings)):
            lines += [line for one in found for line in ("", f"**{title}**: `{one.name}`: {one.text}")]
        return "\n".join(lines) + "\n"

    def html(self) -> str:
        """Return the scorecard as a page that needs no other file."""
        head = "".join(f"<th>{name}" for name in ("level", "", "subjects", "claimed", "passed", "expected", "failed"))
        body = "".join(
            f'<tr class="{"bad" if row.failed else "good"}">' + "".join(f"<td>{escape(str(c))}" for c in _cells(row))
            for row in self.rows()
        )
        rows = "".join(
            f'<tr class="{"bad" if one.verdict in BAD else ""}"><td><code>{escape(one.name)}</code><td>{one.verdict}'
            f"<td>{escape(one.text)}<td>{escape(one.reason)}"
            for one in self.results
            if one.verdict not in ("passed", "not-claimed") or (one.verdict == "passed" and one.text)
        )
        details = f"<h2>What does not pass</h2><table>{rows}</table>" if rows else ""
        operators = ", ".join(_subjects(self.results, 1))
        return (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(self.backend)}: conformance</title>'
            "<style>body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}"
            "table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #ccc;padding:.3rem .6rem;"
            "text-align:left;vertical-align:top}.bad td{background:#fdecea}@media(prefers-color-scheme:dark)"
            "{body{background:#111;color:#eee}.bad td{background:#4a1512}}</style>"
            f"<h1>{escape(self.backend)}</h1><p>{self.badge()}</p><table><tr>{head}{body}</table>"
            f"<h2>Operators</h2><p>{escape(operators) or 'none'}</p>{details}"
            f"<p>Graft {graft.__version__}, plugin interface {API_LEVEL}; "
            f"{len(self.of('not-claimed'))} cases were not claimed.</p></html>\n"
        )

    def badge(self) -> str:
        """Return the badge as SVG."""
        left, right = (round(len(text) * LETTER + 14) for text in (self.backend, self.message))
        label, message = escape(self.backend), escape(self.message)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
            f'aria-label="{label}: {message}"><title>{label}: {message}</title>'
            f'<rect width="{left}" height="20" fill="#444"/><rect x="{left}" width="{right}" height="20" '
            f'fill="{self.colour}"/><g fill="#fff" text-anchor="middle" font-family="Verdana,sans-serif" '
            f'font-size="11"><text x="{left / 2}" y="14">{label}</text><text x="{left + right / 2}" y="14">{message}'
            "</text></g></svg>"
        )

    def write(self, suffix: str) -> str:
        """Return the form that belongs to a file's suffix: ``.json``, ``.html``, ``.svg``, ``.md``, else text."""
        forms = {".html": self.html, ".svg": self.badge, ".md": self.markdown}
        if suffix == ".json":
            return json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n"
        return forms.get(suffix, self.text)()


def _cells(row: Row) -> tuple[object, ...]:
    return (row.level, row.title, row.subjects, row.claimed, row.passed, row.expected, row.failed)


def _subjects(results: Iterable[Result], level: int) -> list[str]:
    return sorted({one.subject for one in results if one.level == level and one.verdict != "not-claimed"})


def _by_reason(results: Iterable[Result]) -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for one in results:
        found.setdefault(one.reason, []).append(one.name)
    return list(found.items())


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:3])
    return f"{shown}, ..." if len(names) > 3 else shown
