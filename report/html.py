"""A report as one HTML file that needs nothing else: no network, no other file, no server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from graft.partition.graph import RUNTIME
from graft.partition.plan import Plan
from graft.report.facts import INPUT, OUTPUT, Drawing, OperatorFacts, Report, Tensor
from graft.report.layout import layered
from graft.report.reasons import advice
from graft.report.sections import (
    artifact_section,
    boundary_section,
    coverage_section,
    environment_section,
    legend,
    memory_section,
    plugin_sections,
    reason_section,
)
from graft.runtime.system.files import write

NARROWEST, WIDEST, LETTER, MARGIN = 96.0, 250.0, 7.4, 30.0
PALETTE = 8
ReasonKey = tuple[str, str, str]


def write_html(report: Report, path: Path) -> int:
    """Write a report to a file and return its size; raise GraftError if that fails."""
    content = html(report).encode()
    write(path, content, "report")
    return len(content)


def html(report: Report) -> str:
    """Return a report as HTML; equal reports give equal text."""
    reasons = _reasons(report)
    colours = colours_of(report.plan)
    sections = [
        ("reasons", "Reasons", reason_section(report.plan, reasons, colours)),
        ("boundaries", "Boundaries", boundary_section(report, colours)),
        ("memory", "Memory", memory_section(report)),
        ("artifact", "Artifact", artifact_section(report)),
        ("environment", "Environment", environment_section(report)),
        *((f"plugin-{number}", title, body) for number, (title, body) in enumerate(plugin_sections(report))),
    ]
    present = [(name, title, body) for name, title, body in sections if body]
    named = [("coverage", "Coverage"), ("graph", "Graph"), ("operators", "Operators")]
    links = [*named, *((name, title) for name, title, _ in present)]
    used = dict.fromkeys(one.backend for one in report.operators)
    return _filled(
        resource("page.html"),
        {
            "title": escape(report.title),
            "style": resource("page.css"),
            "summary": escape(report.plan.summary()),
            "nav": " ".join(f'<a href="#{name}">{escape(title)}</a>' for name, title in links),
            "coverage": coverage_section(report.plan, colours),
            "legend": legend(report.plan, colours),
            "backend_options": "".join(f"<option>{escape(name)}</option>" for name in used if name),
            "sections": "\n".join(
                f'<section id="{name}"><h2>{escape(title)}</h2>{body}</section>' for name, title, body in present
            ),
            "data": _embedded(_data(report, reasons, colours)),
            "script": resource("page.js"),
        },
    )


def colours_of(plan: Plan) -> dict[str, str]:
    """Return the CSS variable of each backend's colour."""
    colours = {name: f"--b{number % PALETTE}" for number, name in enumerate(plan.backends)}
    return {**colours, RUNTIME: "--runtime", "": "--bad", INPUT: "--io", OUTPUT: "--io"}


def resource(name: str) -> str:
    """Return the text of a file of the page."""
    return files("graft.report").joinpath(name).read_text(encoding="utf-8")


def _filled(page: str, values: dict[str, str]) -> str:
    """Replace every ``@name@`` in one pass, so that what is filled in is never looked at again."""
    parts: list[str] = []
    for number, part in enumerate(page.split("@")):
        parts.append(values[part] if number % 2 else part)
    return "".join(parts)


def _embedded(data: object) -> str:
    """Return JSON that cannot end its script element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _reasons(report: Report) -> dict[ReasonKey, int]:
    """Number the reasons, equal ones alike."""
    keys = ((backend, reject.code, reject.text) for one in report.operators for backend, reject in one.reasons.items())
    return {key: number for number, key in enumerate(dict.fromkeys(keys))}


def _data(report: Report, reasons: dict[ReasonKey, int], colours: dict[str, str]) -> dict[str, Any]:
    regions = sum(vertex.kind == "region" for vertex in report.regions.vertices)
    return {
        "start": "regions" if regions > 1 else "operators",
        "colours": colours,
        "reasons": [[*key, advice(key[1])] for key in reasons],
        "operators": [_operator(one, reasons) for one in report.operators],
        "views": {
            "regions": _view(report.regions, report.operators),
            "operators": _view(report.graph, report.operators),
        },
    }


def _operator(one: OperatorFacts, reasons: dict[ReasonKey, int]) -> dict[str, Any]:
    return {
        "node": one.node,
        "op": one.op_type,
        "backend": one.backend,
        "region": one.region,
        "composite": one.composite,
        "flops": one.flops,
        "why": [reasons[backend, reject.code, reject.text] for backend, reject in one.reasons.items()],
        "inputs": _tensors(one.inputs),
        "constants": _tensors(one.constants),
        "outputs": _tensors(one.outputs),
        "attributes": dict(one.attributes),
    }


def _tensors(tensors: Iterable[Tensor]) -> list[list[Any]]:
    return [[one.name, type_text(one), one.size] for one in tensors]


def type_text(tensor: Tensor) -> str:
    """Return a type for people: ``float32[1,3,224,224]``, ``float32[?]`` where the rank is unknown."""
    if tensor.shape is None:
        return f"{tensor.dtype or '?'}[?]"
    return f"{tensor.dtype or '?'}[{','.join('?' if extent is None else str(extent) for extent in tensor.shape)}]"


def _view(drawing: Drawing, operators: Sequence[OperatorFacts]) -> dict[str, Any]:
    labels = [_label(drawing, number, operators) for number in range(len(drawing.vertices))]
    widths = [_width(*label) for label in labels]
    layout = layered(widths, [(link.source, link.target) for link in drawing.links])
    vertices = []
    for number, (vertex, (title, note)) in enumerate(zip(drawing.vertices, labels, strict=True)):
        tensors = [_tensors(one) for one in (vertex.inputs, vertex.constants, vertex.outputs)]
        place = [layout.x[number], layout.layer[number], widths[number], title, note]
        vertices.append([vertex.kind, vertex.name, vertex.backend, *place, list(vertex.members), *tensors])
    edges = []
    for link in drawing.links:
        bends = [part for bend in layout.bends[link.source, link.target] for part in bend]
        sizes = [value.size for value in link.values]
        edges.append([link.source, link.target, bends, None if None in sizes else sum(filter(None, sizes))])
    return {"vertices": vertices, "edges": edges}


def _label(drawing: Drawing, number: int, operators: Sequence[OperatorFacts]) -> tuple[str, str]:
    """Return the two lines in a vertex."""
    vertex = drawing.vertices[number]
    if vertex.kind == "region":
        count = len(vertex.members)
        return _cut(vertex.name), f"{count} operator{'' if count == 1 else 's'}"
    if vertex.kind == "operator":
        kind = operators[vertex.members[0]].op_type if vertex.members else "operator"
        return _cut(kind), _cut(vertex.name)
    tensor = (vertex.outputs or vertex.inputs)[0]
    return _cut(vertex.name), _cut(type_text(tensor))


def _cut(text: str) -> str:
    longest = int((WIDEST - MARGIN) / LETTER)
    return text if len(text) <= longest else f"{text[: longest // 2]}…{text[-(longest - longest // 2 - 1) :]}"


def _width(title: str, note: str) -> float:
    wanted = MARGIN + LETTER * max(len(title) * 1.05, len(note) * 0.92)
    return round(min(max(wanted, NARROWEST), WIDEST), 1)
