"""The pictures of the README: what `graft plan` prints, and the graph of the report, as SVG."""

from __future__ import annotations

import json
import re
from html import escape

LETTER, LINE, ROW, BOX, GAP = 7.3, 19, 62, 46, 30
COLOURS = {"onednn": "#2f6bd6", "llvm": "#cf7a1c", "model input": "#8b94a1", "model output": "#8b94a1"}
MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace"


def terminal(command: str, printed: str) -> str:
    """Return a command and what it prints, in a terminal."""
    lines = [f"$ {command}", *printed.rstrip("\n").split("\n")]
    width = int(max(map(len, lines)) * LETTER) + 36
    height = len(lines) * LINE + 32
    rows = "\n".join(
        f'<text x="18" y="{30 + number * LINE}" fill="{"#7ee2a8" if number == 0 else "#dfe4ec"}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="{MONO}" font-size="12" xml:space="preserve">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#171a21"/>\n{rows}\n</svg>\n'
    )


def graph(page: str) -> str:
    """Return the graph of operators of a report, a HTML page, from left to right, in the colours of the backends."""
    found = re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert found is not None
    view = json.loads(found[1])["views"]["operators"]
    place: dict[int, tuple[float, float, float]] = {}
    at = GAP / 2
    layers = sorted({vertex[4] for vertex in view["vertices"]})
    for layer in layers:
        here = [number for number, vertex in enumerate(view["vertices"]) if vertex[4] == layer]
        widest = max(view["vertices"][number][5] for number in here)
        for row, number in enumerate(here):
            place[number] = (at, 14 + row * ROW, widest)
        at += widest + GAP
    height = int(28 + max(y for _, y, _ in place.values()) + BOX - 14)
    parts = [
        f'<path d="M{place[source][0] + place[source][2]:.0f} {place[source][1] + BOX / 2:.0f} '
        f'L{place[target][0]:.0f} {place[target][1] + BOX / 2:.0f}" stroke="#a9b1bd" stroke-width="1.6"/>'
        for source, target, *_ in view["edges"]
    ]
    for number, (x, y, width) in sorted(place.items()):
        _, _, backend, _, _, _, label, note, *_ = view["vertices"][number]
        colour = COLOURS.get(backend, "#727b88")
        parts += [
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{BOX}" rx="5" fill="{colour}" '
            f'fill-opacity="0.14" stroke="{colour}"/>',
            f'<rect x="{x:.0f}" y="{y:.0f}" width="5" height="{BOX}" fill="{colour}"/>',
            f'<text x="{x + 12:.0f}" y="{y + 20:.0f}" font-weight="600">{escape(label)}</text>',
            f'<text x="{x + 12:.0f}" y="{y + 36:.0f}" fill="#5b6472">{escape(note)}</text>',
        ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {at:.0f} {height}" width="{at:.0f}" height="{height}" '
        f'font-family="system-ui,sans-serif" font-size="13">\n<rect width="100%" height="100%" fill="#f6f7f9"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
