"""The arena over time: which tensors lie where while which calls run, in numbers and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from graft.compiler.memory.lifetimes import Lifetime
from graft.compiler.memory.spans import spans_of
from graft.report.quantities import size
from graft.runtime.dtypes import element_type
from graft.runtime.procedure import Procedure, TensorSpec, contiguous_bytes

WIDTH, HEIGHT, EDGE = 960, 260, 1.0
MOST = 1500
"""Rectangles in a picture: of more tensors the largest are drawn."""


@dataclass(frozen=True, slots=True)
class Block:
    """A tensor in the arena, from its first call to its last."""

    name: str
    offset: int
    lifetime: Lifetime


def blocks_of(procedure: Procedure) -> list[Block]:
    """Return the tensors of the arena; none where it is planned later, for each binding of the symbols."""
    if not procedure.arena_bytes:
        return []
    spans = spans_of(procedure.tensors, procedure.calls)
    return [
        Block(tensor.name, tensor.offset, Lifetime(_bytes(tensor), *spans[index]))
        for index, tensor in enumerate(procedure.tensors)
        if tensor.storage == "arena" and index in spans
    ]


def _bytes(tensor: TensorSpec) -> int:
    shape = tensor.static_shape
    return tensor.room if shape is None else contiguous_bytes(element_type(tensor.dtype).bytes, shape)


def arena_text(procedure: Procedure) -> str:
    """Return size, lower bound and their ratio: ``7.0 MiB (lower bound 6.9 MiB, ratio 1.014)``."""
    arena, bound = procedure.arena_bytes, procedure.arena_bound
    ratio = f", ratio {arena / bound:.3f}" if bound else ""
    return f"{size(arena)} (lower bound {size(bound)}{ratio})"


def peak_text(procedure: Procedure) -> str:
    """Return the call at which the arena is fullest, and the largest tensors there; "" for an empty arena."""
    blocks = blocks_of(procedure)
    if not blocks:
        return ""
    used = [sum(one.lifetime.room for one in _distinct(blocks, step)) for step in range(len(procedure.calls))]
    step = used.index(max(used))
    call = procedure.calls[step]
    live = sorted(_distinct(blocks, step), key=lambda one: (-one.lifetime.room, one.offset))
    named = ", ".join(f"{one.name} {size(one.lifetime.bytes)}" for one in live[:3])
    more = f" and {len(live) - 3} more" if len(live) > 3 else ""
    return f"{size(used[step])} at call {step + 1} of {len(used)}, {call.function or call.kind}: {named}{more}"


def _distinct(blocks: Sequence[Block], step: int) -> list[Block]:
    """Return what is live at a step; of tensors that take one another's place, the last."""
    live = {one.offset: one for one in blocks if one.lifetime.first <= step <= one.lifetime.last}
    return list(live.values())


def arena_picture(procedure: Procedure) -> str:
    """Return an SVG: calls from left to right, addresses from the bottom up, a rectangle for each tensor."""
    blocks = sorted(blocks_of(procedure), key=lambda one: -one.lifetime.room)[:MOST]
    if not blocks:
        return ""
    label = f"Arena over time: {len(blocks)} tensors in {arena_text(procedure)}"
    return (
        f'<svg class="arena" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"{''.join(_rectangles(blocks, procedure))}</svg>"
    )


def _rectangles(blocks: Sequence[Block], procedure: Procedure) -> Iterator[str]:
    across, up = WIDTH / len(procedure.calls), HEIGHT / procedure.arena_bytes
    for number, one in enumerate(sorted(blocks, key=lambda block: (block.lifetime.first, block.offset))):
        life = one.lifetime
        width, height = (life.last - life.first + 1) * across, life.room * up
        calls = f"call {life.first + 1}" if life.first == life.last else f"calls {life.first + 1} to {life.last + 1}"
        title = f"{one.name}: {size(life.bytes)} at {one.offset}, {calls}"
        yield (
            f'<rect style="--c: var(--b{number % 8})" x="{life.first * across:.1f}" '
            f'y="{max(HEIGHT - one.offset * up - height, 0):.1f}" width="{max(width - EDGE, EDGE):.1f}" '
            f'height="{max(height - EDGE, EDGE / 2):.1f}"><title>{escape(title)}</title></rect>'
        )
