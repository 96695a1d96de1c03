"""The smallest cut between two sides of a network."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from graft.partition.min_cut import INFINITE, SINK, SOURCE, Network


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 9)), max_size=14))
def test_the_cut_is_minimal_and_its_sink_side_the_smallest(arcs: list[tuple[int, int, int]]) -> None:
    network = Network()
    for _ in range(4):
        network.vertex()
    for tail, head, capacity in arcs:
        network.arc(tail, head, capacity)
    side = network.sink_side()

    def weight(sink_side: set[int]) -> int:
        return sum(capacity for tail, head, capacity in arcs if tail not in sink_side and head in sink_side)

    choices = [{SINK, *(vertex for vertex in range(2, 6) if bits >> vertex & 1)} for bits in range(0, 64, 4)]
    least = min(weight(choice) for choice in choices)
    assert SOURCE not in side
    assert weight(side) == least
    assert all(side <= choice for choice in choices if weight(choice) == least)


def test_an_infinite_arc_is_never_cut() -> None:
    network = Network()
    middle = network.vertex()
    network.arc(SOURCE, middle, INFINITE)
    network.arc(middle, SINK, 5)
    assert network.sink_side() == {SINK}
