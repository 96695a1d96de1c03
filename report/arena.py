"""The arena over time: which tensors lie where while which calls run, in numbers and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from graft.report.quantities import size
from graft.runtime.arena import Block, blocks_of, fullest_moment
from graft.runtime.procedure import Procedure

WIDTH, HEIGHT, EDGE = 960, 260, 1.0
MOST = 1500
"""Rectangles in a picture: of more tensors the largest are drawn."""


def arena_text(procedure: Procedure) -> str:
    """Return size, lower bound and their ratio: ``7.0 MiB (lower bound 6.9 MiB, ratio 1.014)``."""
    arena, bound = procedure.arena_bytes, procedure.arena_bound
    ratio = f", ratio {arena / bound:.3f}" if bound else ""
    return f"{size(arena)} (lower bound {size(bound)}{ratio})"


def peak_text(procedure: Procedure) -> str:
    """Return the call at which the arena is fullest, and the largest tensors there; "" for an empty arena."""
    moment = fullest_moment(procedure)
    if moment is None:
        return ""
    call, live = procedure.calls[moment.step], moment.blocks
    named = ", ".join(f"{one.name} {size(one.bytes)}" for one in live[:3])
    more = f" and {len(live) - 3} more" if len(live) > 3 else ""
    place = f"call {moment.step + 1} of {len(procedure.calls)}, {call.function or call.kind}"
    return f"{size(moment.bytes)} at {place}: {named}{more}"


def arena_picture(procedure: Procedure) -> str:
    """Return an SVG: calls from left to right, addresses from the bottom up, a rectangle for each tensor."""
    blocks = sorted(blocks_of(procedure), key=lambda one: -one.room)[:MOST]
    if not blocks:
        return ""
    label = f"Arena over time: {len(blocks)} tensors in {arena_text(procedure)}"
    return (
        f'<svg class="arena" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"{''.join(_rectangles(blocks, procedure))}</svg>"
    )


def courses_picture(courses: Sequence[Sequence[int]]) -> str:
    """Return an SVG: kernels from left to right, bytes from the bottom up, an area for each course."""
    across, up = WIDTH / max(map(len, courses)), HEIGHT / max(map(max, courses))
    label = f"Memory over time: {', '.join(size(max(course)) for course in courses)} at most"
    areas = []
    for number, course in enumerate(courses):
        line = "".join(f"V{HEIGHT - live * up:.1f}H{(at + 1) * across:.1f}" for at, live in enumerate(course))
        areas.append(f'<path style="--c: var(--b{number})" d="M0 {HEIGHT}{line}V{HEIGHT}Z"/>')
    return (
        f'<svg class="arena" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}" '
        f'preserveAspectRatio="none">{"".join(areas)}</svg>'
    )


def _rectangles(blocks: Sequence[Block], procedure: Procedure) -> Iterator[str]:
    across, up = WIDTH / len(procedure.calls), HEIGHT / procedure.arena_bytes
    for number, one in enumerate(sorted(blocks, key=lambda block: (block.first, block.offset))):
        width, height = (one.last - one.first + 1) * across, one.room * up
        calls = f"call {one.first + 1}" if one.first == one.last else f"calls {one.first + 1} to {one.last + 1}"
        title = f"{one.name}: {size(one.bytes)} at {one.offset}, {calls}"
        yield (
            f'<rect style="--c: var(--b{number % 8})" x="{one.first * across:.1f}" '
            f'y="{max(HEIGHT - one.offset * up - height, 0):.1f}" width="{max(width - EDGE, EDGE):.1f}" '
            f'height="{max(height - EDGE, EDGE / 2):.1f}"><title>{escape(title)}</title></rect>'
        )
