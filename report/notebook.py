"""What a notebook shows: the report's own parts, each in a frame of its own, so that no style leaks into the notebook.

A frame holds all that it needs: no network, no server. A notebook that does not run frames shows the text instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch
from html import escape

from graft.compiler.explaining import NodeExplanation
from graft.errors import GraftError
from graft.measure.differences import Difference
from graft.measure.latency import BenchReport
from graft.measure.verification import VerifyReport
from graft.partition.plan import Plan
from graft.report.gathering import report_on_program
from graft.report.html import colours_of, html, resource
from graft.report.sections import coverage_section, legend, reason_section, table
from graft.runtime.program import Program
from graft.runtime.system.displayed import CallTimes

HEIGHT = 420
"""Of a frame, in pixels; what is longer scrolls."""
LONGEST = 200
"""Rows of a table that are shown, at most: a notebook keeps what it shows."""


@singledispatch
def shown(value: object) -> str | None:
    """Return a value as HTML, None for what has no form of its own."""
    return None


@shown.register
def _plan(plan: Plan) -> str:
    colours = colours_of(plan)
    legends = f'<p class="legend">{legend(plan, colours)}</p>'
    return framed(plan.summary(), coverage_section(plan, colours) + legends, reason_section(plan, {}, colours))


@shown.register
def _program(program: Program) -> str | None:
    try:
        return frame(html(report_on_program("program", program)), 2 * HEIGHT)
    except (GraftError, KeyError):  # made without a plan, by another producer: its text says as much
        return None


@shown.register
def _times(times: CallTimes) -> str:
    total = max(1, sum(nanoseconds for *_, nanoseconds in times))
    order = sorted(times, key=lambda row: -row[2])
    rows = [
        (f"{1e-3 * took:.1f}", _share(took / total), f"<code>{escape(function)}</code>", escape(", ".join(nodes)))
        for nodes, function, took in order
    ]
    columns = ("us", "Share", "Function", "Nodes")
    return framed(f"{len(times)} calls, {1e-3 * total:.1f} us", _rows(columns, rows, (0,)))


@shown.register
def _verification(report: VerifyReport) -> str:
    verdict = "within" if report.ok else "beyond"
    title = f"{verdict} rtol {report.rtol:g}, atol {report.atol:g} of {report.against}"
    outputs = [(f"<code>{escape(one.name)}</code>", *_difference(one.difference)) for one in report.outputs]
    parts = [_rows(("Output", "Largest error", "Relative", "Verdict"), outputs, (1, 2))]
    if report.first_bad is not None:
        parts.append(f"<p>First at fault: {escape(str(report.first_bad))}</p>")
    if report.regions:
        regions = [
            (escape(one.region), escape(one.backend), f"<code>{escape(one.output)}</code>", *_difference(one.isolated))
            for one in report.regions
        ]
        parts.append(_rows(("Region", "Backend", "Output", "Largest error", "Relative", "Verdict"), regions, (3, 4)))
    return framed(title, *parts)


@shown.register
def _bench(report: BenchReport) -> str:
    rows = [
        (escape(one.name), *(f"{value:.3f}" for value in (one.median_ms, one.min_ms, one.p90_ms, one.ratio)))
        for one in report.rows
    ]
    columns = ("", "Median ms", "Least", "90 %", "Ours / theirs")
    return framed(f"{report.threads} threads", _rows(columns, rows, (1, 2, 3, 4)))


@shown.register
def _node(found: NodeExplanation) -> str:
    row = found.placement
    reasons = [(escape(name), escape(one.code), escape(one.text)) for name, one in row.reasons.items()]
    answers = [(escape(one.backend), escape(one.composite), escape(one.text)) for one in found.patterns]
    title = f"{row.op_type} (node '{row.node}'): {row.backend or 'nobody'}"
    parts = [_rows(("Backend", "Code", "Reason"), reasons)] if reasons else []
    return framed(title, *parts, *([_rows(("Backend", "Composite", "Answer"), answers)] if answers else []))


def framed(title: str, *sections: str) -> str:
    """Return parts of a report under a title, which is text, in a frame."""
    body = "".join(f"<section>{one}</section>" for one in sections)
    head = f'<!doctype html><meta charset="utf-8"><style>{resource("page.css")}</style>'
    return frame(f'{head}<main><p class="summary">{escape(title)}</p>{body}</main>', HEIGHT)


def frame(page: str, height: int) -> str:
    """Return a page in a frame, whose script reaches nothing outside of it."""
    style = f"width: 100%; height: {height}px; border: 0"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(page)}"></iframe>'


def _share(share: float) -> str:
    return f'<div class="bar" title="{share:.1%}"><i style="--c: var(--accent); width: {100 * share:.1f}%"></i></div>'


def _difference(found: Difference) -> tuple[str, str, str]:
    return f"{found.max_abs:.3g}", f"{found.max_rel:.3g}", "ok" if found.ok else "<b>beyond</b>"


def _rows(columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Return a table of no more rows than a notebook should keep, and how many were left out."""
    given = list(rows)
    left = f"<p>{len(given) - LONGEST} rows more</p>" if len(given) > LONGEST else ""
    return table(columns, given[:LONGEST], numbers) + left
