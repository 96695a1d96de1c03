"""Backends drawn beside random models."""

from __future__ import annotations

from hypothesis import strategies as st

from graft.patterns import Composite, is_op, wildcard
from tests.partition.graphs import (
    BINARY,
    UNARY,
    Toy,
    everything,
    toy,
)

BACKENDS = st.lists(st.sets(st.sampled_from((*UNARY, *BINARY))), min_size=1, max_size=3)


PATTERNS = (
    Composite("toy.add_relu", is_op("Relu")(is_op("Add")(wildcard(), wildcard()))),
    Composite("toy.mul_add", is_op("Mul")(wildcard(), wildcard()) + wildcard()),
)


def backends_of(operators: list[set[str]]) -> list[Toy]:
    toys = [toy(f"b{i}", *sorted(names), patterns=PATTERNS if i == 0 else ()) for i, names in enumerate(operators)]
    return [*toys, everything()]
