"""A layered drawing of an acyclic graph, in the manner of Sugiyama, Tagawa and Toda (1981).

Vertices stand in layers by their longest path, layers are ordered by barycentres, and positions in a layer are the
closest to what the neighbours want that keeps the order. The result depends on the order of vertices and edges alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SWEEPS = 6
"""How often the layers are gone through, down and up, for the order and again for the positions."""
GAP = 24.0
BEND_WIDTH = 10.0
BENDS_PER_VERTEX = 20
"""Bounds the bends of long edges; edges beyond it are drawn straight."""

Edge = tuple[int, int]
Point = tuple[float, int]
"""A position: x, and the layer."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions of vertices (centre x, and layer) and the bends that each edge passes on its way down."""

    x: tuple[float, ...]
    layer: tuple[int, ...]
    bends: dict[Edge, tuple[Point, ...]]


def layered(widths: Sequence[float], edges: Iterable[Edge]) -> Layout:
    """Return the layout of vertices 0, 1, ... with these widths; edges go from lower to higher layers."""
    count = len(widths)
    edges = list(dict.fromkeys(edges))
    layer = layers_of(count, edges)
    chains, full_layer = _chains(count, edges, layer)
    above, below = _neighbours(edges, full_layer, chains)
    rows = _ordered(full_layer, above, below)
    x = _positions(rows, [*widths, *([BEND_WIDTH] * (len(full_layer) - count))], above, below)
    bends: dict[Edge, tuple[Point, ...]] = {}
    for source, target in edges:
        chain = chains.get(source, [])
        passed = [bend for bend in chain if full_layer[bend] < layer[target]]
        bends[source, target] = tuple((x[bend], full_layer[bend]) for bend in passed)
    return Layout(tuple(x[:count]), tuple(layer), bends)


def layers_of(count: int, edges: Sequence[Edge]) -> list[int]:
    """Return each vertex's layer: the longest path to it; vertices without predecessors stand above their first reader.

    Raises ValueError on a cycle.
    """
    after: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for source, target in edges:
        after[source].append(target)
        waiting[target] += 1
    sources = [vertex for vertex in range(count) if not waiting[vertex]]
    layer, ready, done = [0] * count, list(sources), 0
    while ready:
        vertex = ready.pop()
        done += 1
        for target in after[vertex]:
            layer[target] = max(layer[target], layer[vertex] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    if done != count:
        raise ValueError("the graph to be drawn has a cycle")
    for vertex in sources:
        if after[vertex]:
            layer[vertex] = min(layer[target] for target in after[vertex]) - 1
    return layer


def _chains(count: int, edges: Sequence[Edge], layer: Sequence[int]) -> tuple[dict[int, list[int]], list[int]]:
    """Return, by vertex, the bends that its long edges share, one a layer, and the layers of vertices and bends."""
    reach: dict[int, int] = {}
    for source, target in edges:
        if layer[target] > layer[source] + 1:
            reach[source] = max(reach.get(source, 0), layer[target])
    budget = BENDS_PER_VERTEX * count
    full, chains = list(layer), {}
    for source, last in sorted(reach.items(), key=lambda item: (item[1] - layer[item[0]], item[0])):
        between = range(layer[source] + 1, last)
        if len(between) > budget:
            break
        budget -= len(between)
        chains[source] = [len(full) + number for number in range(len(between))]
        full.extend(between)
    return chains, full


def _neighbours(
    edges: Sequence[Edge], layer: Sequence[int], chains: dict[int, list[int]]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return each vertex's neighbours one layer above and one below, bends included."""
    above: list[list[int]] = [[] for _ in layer]
    below: list[list[int]] = [[] for _ in layer]
    links = {link for source, chain in chains.items() for link in zip([source, *chain], chain, strict=False)}
    for source, target in edges:
        before = [source, *chains.get(source, [])]
        place = layer[target] - layer[source] - 1
        if place < len(before):
            links.add((before[place], target))
    for source, target in sorted(links):
        below[source].append(target)
        above[target].append(source)
    return above, below


def _ordered(layer: Sequence[int], above: list[list[int]], below: list[list[int]]) -> list[list[int]]:
    """Return the layers, each in an order that has few crossings."""
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for vertex, number in enumerate(layer):
        rows[number].append(vertex)
    place = [0.0] * len(layer)
    for row in rows:
        _number(row, place)
    for _ in range(SWEEPS):
        for order, neighbours in ((rows, above), (rows[::-1], below)):
            for row in order:
                wanted = {vertex: _mean(neighbours[vertex], place, place[vertex]) for vertex in row}
                row.sort(key=lambda vertex: (wanted[vertex], place[vertex]))
                _number(row, place)
    return rows


def _number(row: Sequence[int], place: list[float]) -> None:
    """Give the vertices of a layer places between 0 and 1."""
    for number, vertex in enumerate(row):
        place[vertex] = (number + 1) / (len(row) + 1)


def _mean(vertices: Sequence[int], values: Sequence[float], otherwise: float) -> float:
    return sum(values[vertex] for vertex in vertices) / len(vertices) if vertices else otherwise


def _positions(
    rows: Sequence[Sequence[int]], widths: Sequence[float], above: list[list[int]], below: list[list[int]]
) -> list[float]:
    """Return the centre of each vertex and bend."""
    x = [0.0] * len(widths)
    for row in rows:
        _place(row, widths, [0.0] * len(row), x)
    for _ in range(SWEEPS):
        for order, neighbours in ((rows, above), (rows[::-1], below)):
            for row in order:
                _place(row, widths, [_mean(neighbours[vertex], x, x[vertex]) for vertex in row], x)
    left = min((x[vertex] - widths[vertex] / 2 for row in rows for vertex in row), default=0.0)
    return [round(value - left, 1) for value in x]


def _place(row: Sequence[int], widths: Sequence[float], wanted: Sequence[float], x: list[float]) -> None:
    """Set the positions of a layer: least squares to ``wanted``, the order and the gaps kept.

    Less the room that the vertices before it need, positions must not fall: pool adjacent violators (Ayer et al.,
    1955).
    """
    room, offsets = 0.0, []
    for number, vertex in enumerate(row):
        if number:
            room += (widths[row[number - 1]] + widths[vertex]) / 2 + GAP
        offsets.append(room)
    blocks: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        total, size = want - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / size:
            earlier, more = blocks.pop()
            total, size = total + earlier, size + more
        blocks.append((total, size))
    number = 0
    for total, size in blocks:
        for _ in range(size):
            x[row[number]] = total / size + offsets[number]
            number += 1
