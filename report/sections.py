"""The parts of a report that need no script: coverage, reasons, boundaries, artifact, environment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from graft.core.reject import LOST_TO
from graft.errors import ArtifactError
from graft.partition.plan import Plan
from graft.report.arena import arena_picture, arena_text, courses_picture, peak_text
from graft.report.facts import Report
from graft.report.quantities import shape, size
from graft.report.reasons import reason_groups, shortened
from graft.runtime.procedure import Procedure, procedure_from_json, shape_texts

Colours = Mapping[str, str]


def coverage_section(plan: Plan, colours: Colours) -> str:
    """Return bars over all operators and all work, and a card for every backend."""
    names = [*plan.backends, *dict.fromkeys(row.backend for row in plan.placements if row.backend not in plan.backends)]
    counts = {name: sum(row.backend == name for row in plan.placements) for name in names}
    flops = {name: sum(row.flops for row in plan.placements if row.backend == name) for name in names}
    bars = f"<span>Operators</span>{_bar(counts, colours)}"
    if sum(flops.values()):
        bars += f"<span>FLOPs</span>{_bar(flops, colours)}"
    cards = []
    for name in names:
        regions = len(plan.regions(name))
        work = f"<p>{_share(flops[name], flops)} of FLOPs</p>" if sum(flops.values()) else ""
        cards.append(
            f'<div class="card"><b>{swatch(name, colours)}{escape(plan.text_of(name) or "nobody")}</b>'
            f"<strong>{_share(counts[name], counts)}</strong>"
            f"<p>{counts[name]} of {len(plan.placements)} operators</p>{work}"
            f"<p>{regions} region{'' if regions == 1 else 's'}</p></div>"
        )
    return f'<div class="bars">{bars}</div><div class="cards">{"".join(cards)}</div>'


def _bar(parts: Mapping[str, int], colours: Colours) -> str:
    pieces = (
        f'<i style="--c: var({colours.get(name, "--runtime")}); flex: {count}" '
        f'title="{escape(name or "nobody")} {_share(count, parts)}"></i>'
        for name, count in parts.items()
        if count
    )
    return f'<div class="bar">{"".join(pieces)}</div>'


def _share(count: int, parts: Mapping[str, int]) -> str:
    return f"{100 * count / max(1, sum(parts.values())):.1f} %"


def swatch(name: str, colours: Colours) -> str:
    """Return a patch of a backend's colour."""
    return f'<span class="swatch" style="--c: var({colours.get(name, "--runtime")})"></span>'


def legend(plan: Plan, colours: Colours) -> str:
    """Return the names of the backends that got something, with their colours."""
    names = dict.fromkeys(row.backend for row in plan.placements)
    return "".join(f"<span>{swatch(name, colours)}{escape(name or 'nobody')}</span>" for name in names)


def reason_section(plan: Plan, numbers: Mapping[tuple[str, str, str], int], colours: Colours) -> str:
    """Return the refusals gathered; the number of operators of one with a number is a link that filters by it."""
    rows = []
    for group in reason_groups(plan):
        number = numbers.get((group.backend, group.code, group.text))
        count = str(len(group.nodes))
        kinds = shortened([f"{name} {count}" for name, count in group.operators], 5)
        style = "code" if group.code.startswith(LOST_TO) else "code real"
        rows.append((
            f'<span class="tag">{swatch(group.backend, colours)}{escape(group.backend)}</span>',
            f'<span class="{style}">{escape(group.code)}</span>',
            count if number is None else f'<button type="button" class="link" data-reason="{number}">{count}</button>',
            f'<div class="reason">{escape(group.text)}</div>',
            escape(kinds),
            escape(group.advice),
        ))  # fmt: skip
    if not rows:
        return '<p class="muted">The first backend took every operator, and no other one was asked.</p>'
    return table(("Backend", "Code", "Operators", "Reason", "Of type", "What would change it"), rows, numbers=(2,))


def boundary_section(report: Report, colours: Colours) -> str:
    """Return what passes between backends in a run."""
    rows = [
        (
            f'<span class="tag">{swatch(row.source, colours)}{escape(row.source or "nobody")}</span>',
            f'<span class="tag">{swatch(row.target, colours)}{escape(row.target or "nobody")}</span>',
            str(row.values),
            size(row.size),
        )
        for row in report.boundaries
    ]
    if not rows:
        return '<p class="muted">No value passes from one backend to another.</p>'
    return table(("From", "To", "Values", "Bytes in a run"), rows, numbers=(2, 3))


def memory_section(report: Report) -> str:
    """Return memory over time without recomputation and with it; "" for a model that computes nothing again."""
    if report.memory is None:
        return ""
    names = ("without recomputation", "with recomputation")
    peaks = "".join(
        f'<span><span class="swatch" style="--c: var(--b{number})"></span>{name}: peak {size(max(course))}</span>'
        for number, (name, course) in enumerate(zip(names, report.memory, strict=True))
    )
    return (
        f'<p class="legend">{peaks}</p>{courses_picture(report.memory)}'
        '<p class="muted">Bytes of values between kernels, by kernel in the order in which they run.</p>'
    )


def environment_section(report: Report) -> str:
    """Return versions and machine."""
    rows = [(escape(name), f"<code>{escape(text)}</code>") for name, text in report.environment.items()]
    return table(("", ""), rows)


def artifact_section(report: Report) -> str:
    """Return modules, members and interface of an artifact; "" for a model that was only planned.

    Raise ArtifactError for a damaged manifest.
    """
    if report.manifest is None:
        return ""
    try:
        return "".join(_artifact(report.manifest))
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise ArtifactError(f"'{report.title}' has a damaged manifest: {type(error).__name__} {error}") from error


def _artifact(manifest: Mapping[str, Any]) -> Iterator[str]:
    entry, members = manifest["procedures"][0], manifest["members"]
    calls = sum(len(procedure["calls"]) for procedure in manifest["procedures"])
    procedure = procedure_from_json(entry)
    arena = arena_text(procedure)
    arena += ", planned for the largest shapes" if procedure.symbols else ""
    is_later = procedure.symbols and not procedure.arena_bytes
    yield (
        f"<p>{calls} calls; arena {'planned for each binding of the symbols' if is_later else arena}; "
        f"constants {size(members['constants.safetensors']['size'])}</p>"
    )
    if picture := arena_picture(procedure):
        yield f"<h3>Arena over time</h3><p>Peak {escape(peak_text(procedure))}</p>{picture}"
    yield "<h3>Interface</h3>"
    yield table(
        ("", "Name", "Type", "Shape"),
        [
            (kind, *(f"<code>{escape(str(text))}</code>" for text in (one.name, one.dtype, shape(shape_texts(one)))))
            for kind, indices in (("input", procedure.inputs), ("output", procedure.outputs))
            for one in (procedure.tensors[index] for index in indices)
        ],
    )
    if variants := [procedure_from_json(manifest["procedures"][number]) for number in manifest.get("variants", ())]:
        yield "<h3>Variants</h3>"
        yield table(
            ("Name", "Inputs", "Calls"),
            [(escape(one.name), f"<code>{escape(_inputs(one))}</code>", str(len(one.calls))) for one in variants],
            numbers=(2,),
        )
    yield "<h3>Modules</h3>"
    yield table(
        ("Name", "Kind", "Functions", "Size", "Plugin", "Install"),
        [
            (f"<code>{escape(one['name'])}</code>", escape(one["kind"]), str(len(one["functions"])),
             size(members[one["member"]]["size"]), escape(one["plugin"]), f"<code>{escape(one['install'])}</code>")
            for one in manifest["modules"]
        ],
        numbers=(2, 3),
    )  # fmt: skip
    yield "<h3>Files</h3>"
    yield table(
        ("Member", "Size", "SHA-256"),
        [
            (f"<code>{escape(name)}</code>", size(one["size"]), f"<code>{escape(one['sha256'])}</code>")
            for name, one in sorted(members.items())
        ],
        numbers=(1,),
    )


def _inputs(procedure: Procedure) -> str:
    tensors = [procedure.tensors[index] for index in procedure.inputs]
    return ", ".join(f"{one.name} {shape(shape_texts(one))}" for one in tensors)


def plugin_sections(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the sections of plugins as they gave them: title, and HTML that is trusted as their code is."""
    for title, body in report.sections:
        yield title, f'<div class="plugin">{body}</div>'


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Return a table of cells that are HTML already; the columns ``numbers`` are aligned to the right."""
    kinds = [' class="number"' if index in numbers else "" for index in range(len(columns))]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for name, kind in zip(columns, kinds, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{cell}</td>' for cell, kind in zip(row, kinds, strict=True))}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
