"""A sweep as one HTML page: tables and plots, with nothing to load from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

from graft.datatypes.study import LayerRow, SweepReport, TypeRow

COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0")
WIDTH, HEIGHT, LEFT = 760, 300, 60
CEILING = 160.0
"""Decibels at which the plot ends: float64 itself has no more to say."""
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{padding:.25rem .7rem;border-bottom:1px solid #ddd;"
    "text-align:right;vertical-align:bottom}td{white-space:nowrap}td:first-child,th:first-child,td:nth-child(2).t{text-align:left}svg{max-width:100%;height:auto}"
    "text{font:11px system-ui,sans-serif;fill:#444}.key{display:inline-block;white-space:nowrap;margin-right:1rem}"
    ".key svg{width:26px;height:10px;margin-right:.3rem}details{margin:.5rem 0}.wrap{overflow-x:auto}"
)
COLUMNS = (
    "form", "accuracy", "same class as float64", "max abs error", "max rel error", "SNR dB", "saturated",
    "underflowed", "bits a weight", "bits an activation", "kB of weights", "ms", "time / float32",
)  # fmt: skip
LAYER_COLUMNS = ("layer", "operator", "max abs error", "max rel error", "SNR dB", "saturated", "underflowed", "NaN")


COSTS: Mapping[str, Callable[[TypeRow], float]] = {
    "bits a weight": lambda row: row.weight_bits, "ms": lambda row: row.milliseconds,
}  # fmt: skip
"""What the plots of Pareto fronts set against accuracy, or against signal where there are no labels."""


def page(report: SweepReport) -> str:
    """Return the page."""
    title = f"{escape(report.model)} in {len(report.rows) - 1} forms"
    accuracy = "accuracy on the labels given, " if report.labelled else ""
    measured = _plural(report.inputs, "input", "inputs")
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>",
        f"<h1>{title}</h1><p>{measured}; sums rounded: {escape(report.accumulate)}. Shown are {accuracy}"
        "and errors against the same model in float64.</p>",
        _table(COLUMNS, [_cells(row) for row in report.rows]),
        "<h2>Same class as float64</h2>" if not report.labelled else "<h2>Accuracy</h2>",
        _bars(report.rows),
        *(f"<h2>Pareto front: {name}</h2>{_front(report, name, cost)}" for name, cost in COSTS.items()),
        "<h2>Signal-to-noise ratio by layer</h2>",
        _lines(report.rows),
        "<h2>Layers</h2>",
        *(_details(row) for row in report.rows),
        "</html>",
    ]
    return "\n".join(parts)


def _plural(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def number(value: float | None) -> str:
    """Return a number for people; empty for None."""
    if value is None:
        return ""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.0f}" if 100 <= abs(value) < 1e7 else f"{value:.3g}"


def _cells(row: TypeRow) -> list[str]:
    accuracy = "" if row.accuracy is None else f"{row.accuracy:.4f}"
    output = row.output
    return [
        escape(row.name), accuracy, f"{row.agreement:.4f}", number(output.max_abs), number(output.max_rel),
        number(output.snr_db), str(row.saturated), str(row.underflowed), number(row.weight_bits),
        number(row.activation_bits), number(row.weight_bytes / 1000), number(row.milliseconds), number(row.ratio),
    ]  # fmt: skip


def _layer_cells(row: LayerRow) -> list[str]:
    return [
        escape(row.layer), escape(row.operator), number(row.max_abs), number(row.max_rel), number(row.snr_db),
        str(row.saturated), str(row.underflowed), str(row.invalid),
    ]  # fmt: skip


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" for cells in rows)
    return f"<div class=wrap><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _details(row: TypeRow) -> str:
    table = _table(LAYER_COLUMNS, [_layer_cells(layer) for layer in row.layers])
    return f"<details><summary>{escape(row.name)}</summary>{table}</details>"


# ---- Plots ----


def _svg(parts: Sequence[str], labels: Sequence[str]) -> str:
    """Return a plot with room for the rotated labels below it."""
    height = HEIGHT + 26 + round(4.2 * max(map(len, labels), default=0))
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(parts)}</svg>'


def _text(x: float, y: float, text: str, anchor: str = "middle", turn: bool = False) -> str:
    rotated = f' transform="rotate(-40 {x:.1f} {y:.1f})"' if turn else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{rotated}>{escape(text)}</text>'


def _grid(values: Sequence[float], low: float, high: float) -> list[str]:
    parts = []
    for value in values:
        y = _height(value, low, high)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e5e5e5"/>')
        parts.append(_text(LEFT - 6, y + 4, f"{value:g}", "end"))
    return parts


def _height(value: float, low: float, high: float) -> float:
    return HEIGHT - (min(max(value, low), high) - low) / (high - low) * (HEIGHT - 18)


def _bars(rows: Sequence[TypeRow]) -> str:
    """One bar per type; where the colours begin again, bars are paler."""
    parts = _grid((0, 0.25, 0.5, 0.75, 1), 0, 1)
    step = (WIDTH - LEFT) / len(rows)
    for place, row in enumerate(rows):
        share = row.agreement if row.accuracy is None else row.accuracy
        x, y = LEFT + place * step, _height(share, 0, 1)
        place_and_size = f'x="{x + step * 0.15:.1f}" y="{y:.1f}" width="{step * 0.7:.1f}" height="{HEIGHT - y:.1f}"'
        paint = f'fill="{COLOURS[place % len(COLOURS)]}" opacity="{1 if place < len(COLOURS) else 0.6}"'
        parts.append(f"<rect {place_and_size} {paint}><title>{escape(row.name)}: {share:.4f}</title></rect>")
        parts.append(_text(x + step / 2, y - 3, f"{share:.3f}"))
        parts.append(_text(x + step / 2, HEIGHT + 16, row.name, "end", turn=True))
    return _svg(parts, [row.name for row in rows])


def _front(report: SweepReport, name: str, cost: Callable[[TypeRow], float]) -> str:
    """One point per row, to the right the dearer, up the better; a line through those that none beats."""
    worths = {row.name: report.worth(row)[0 if report.labelled else 1] for row in report.rows}
    known = [worth for worth in worths.values() if math.isfinite(worth)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    margin = (high - low) * 0.1 or 1.0
    low, high, dearest = low - margin, high + margin, max(map(cost, report.rows)) * 1.05 or 1.0
    parts = _grid([float(f"{low + (high - low) * part / 4:.3g}") for part in range(5)], low, high)
    places = {
        row.name: (LEFT + cost(row) / dearest * (WIDTH - LEFT), _height(worths[row.name], low, high))
        for row in report.rows
    }
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (places[row.name] for row in report.front(cost)))
    parts.append(f'<polyline points="{path}" fill="none" stroke="#999"/>')
    for place, row in enumerate(report.rows):
        x, y = places[row.name]
        said = f"{escape(row.name)}: {number(cost(row))} {name}, {number(worths[row.name])}"
        colour = COLOURS[place % len(COLOURS)]
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{said}</title></circle>')
        parts.append(_text(x, y - 8, row.name))
    parts += [_text(LEFT + part / 4 * (WIDTH - LEFT), HEIGHT + 16, number(dearest * part / 4)) for part in range(4)]
    return _svg(parts, [])


def _lines(rows: Sequence[TypeRow]) -> str:
    """One line per type over the layers in order; what is infinite stands at the upper edge."""
    layers = list(dict.fromkeys(layer.layer for row in rows for layer in row.layers))
    values = [min(max(layer.snr_db, -20.0), CEILING) for row in rows for layer in row.layers]
    low, high = 20 * math.floor(min((0.0, *values)) / 20), 20 * math.ceil(max((20.0, *values)) / 20)
    parts = _grid(range(low, high + 1, 20), low, high)
    step = (WIDTH - LEFT) / max(len(layers), 1)
    places = {layer: LEFT + (number + 0.5) * step for number, layer in enumerate(layers)}
    every = max(1, len(layers) // 40)
    parts += [_text(x, HEIGHT + 16, layer, "end", turn=True) for layer, x in list(places.items())[::every]]
    for place, row in enumerate(rows):
        colour = COLOURS[place % len(COLOURS)]
        points = [(places[layer.layer], _height(layer.snr_db, low, high), layer) for layer in row.layers]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
        parts.append(f'<polyline points="{path}" fill="none" {_stroke(place)}/>')
        parts += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}">'
            f"<title>{escape(row.name)}, {escape(layer.layer)}: {number(layer.snr_db)} dB</title></circle>"
            for x, y, layer in points
        ]
    return f"<p>{''.join(_key(place, row.name) for place, row in enumerate(rows))}</p>{_svg(parts, layers)}"


def _stroke(place: int) -> str:
    """Return the line of a type: a colour, and dashes where the colours begin again."""
    dashes = ("", "7 4", "2 3")[place // len(COLOURS) % 3]
    return f'stroke="{COLOURS[place % len(COLOURS)]}" stroke-width="2" stroke-dasharray="{dashes}"'


def _key(place: int, name: str) -> str:
    return (
        f'<span class=key><svg viewBox="0 0 26 10"><line x1="0" x2="26" y1="5" y2="5" {_stroke(place)}/></svg>'
        f"{escape(name)}</span>"
    )
