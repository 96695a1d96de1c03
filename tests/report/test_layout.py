from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graft.report.layout import GAP, Layout, layered

WIDTH = 100.0


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    count = draw(st.integers(1, 30))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda pair: pair[0] < pair[1])
    return count, draw(st.lists(pairs, max_size=60)) if count > 1 else []


def rows(layout: Layout) -> list[list[float]]:
    found: dict[int, list[float]] = {}
    for x, layer in zip(layout.x, layout.layer, strict=True):
        found.setdefault(layer, []).append(x)
    return [sorted(row) for row in found.values()]


@given(graphs())
def test_edges_go_down_and_vertices_of_a_layer_do_not_touch(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = graph
    layout = layered([WIDTH] * count, edges)
    assert all(layout.layer[source] < layout.layer[target] for source, target in edges)
    for row in rows(layout):
        assert all(right - left >= WIDTH + GAP - 0.2 for left, right in pairwise(row))
        assert row[0] >= WIDTH / 2 - 0.1


@given(graphs())
def test_a_long_edge_bends_once_in_every_layer_that_it_passes(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = graph
    layout = layered([WIDTH] * count, edges)
    for source, target in edges:
        between = list(range(layout.layer[source] + 1, layout.layer[target]))
        assert [layer for _, layer in layout.bends[source, target]] in (between, [])


@given(graphs())
def test_the_layout_is_the_same_every_time(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = graph
    assert layered([WIDTH] * count, edges) == layered([WIDTH] * count, edges + edges[:1])


def test_vertices_of_a_layer_keep_their_order_and_a_gap_between_them() -> None:
    assert layered([50.0, 80.0, 30.0], []).x == (25.0, 25.0 + 65.0 + GAP, 25.0 + 65.0 + 55.0 + 2 * GAP)
    x = layered([WIDTH] * 5, [(0, 3), (1, 3), (2, 4)]).x
    assert x[0] < x[1] < x[2] and x[3] < x[4]
    assert (x[3], x[4]) == ((x[0] + x[1]) / 2, x[2])


def test_a_long_edge_and_what_it_passes_are_straight_between_its_ends() -> None:
    layout = layered([WIDTH] * 4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    (first, _), (second, _) = layout.bends[0, 3]
    assert layout.x[1] == layout.x[2] < layout.x[0] == layout.x[3] < first == second


def test_edges_from_one_vertex_share_their_bends() -> None:
    layout = layered([WIDTH] * 6, [(0, 1), (1, 2), (2, 3), (3, 4), (0, 3), (0, 4), (5, 4)])
    short, long = layout.bends[0, 3], layout.bends[0, 4]
    assert [layer for _, layer in long] == [1, 2, 3] and short == long[:2]
    assert layout.bends[5, 4] == layout.bends[0, 1] == ()


def test_a_chain_is_straight() -> None:
    layout = layered([50.0, 80.0, 50.0], [(0, 1), (1, 2)])
    assert set(layout.x) == {40.0}
    assert layout.layer == (0, 1, 2)


def test_the_halves_of_a_diamond_stand_around_its_ends() -> None:
    layout = layered([WIDTH] * 4, [(0, 1), (0, 2), (1, 3), (2, 3)])
    assert layout.x[0] == layout.x[3] == (layout.x[1] + layout.x[2]) / 2


def test_an_input_stands_just_above_its_first_reader() -> None:
    assert layered([WIDTH] * 4, [(0, 1), (1, 2), (3, 2)]).layer == (0, 1, 2, 1)


def test_nothing_is_drawn_of_nothing() -> None:
    assert layered([], []) == Layout((), (), {})


def test_a_cycle_is_refused() -> None:
    with pytest.raises(ValueError, match="the graph to be drawn has a cycle"):
        layered([WIDTH] * 2, [(0, 1), (1, 0)])
