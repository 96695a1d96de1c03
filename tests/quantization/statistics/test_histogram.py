"""Histograms: independent of order and pieces, and of what NumPy counts."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from graft.quantization.statistics.histogram import BINS, COUNTED, Histogram

NUMBERS = st.floats(-1e4, 1e4, width=32).filter(lambda x: x == 0 or abs(x) > 1e-30)
PIECES = st.lists(st.lists(NUMBERS, min_size=1, max_size=20), min_size=1, max_size=6)


def of(pieces) -> Histogram:
    found = Histogram()
    for piece in pieces:
        found.add(np.array(piece, np.float32))
    return found


@given(PIECES)
def test_the_order_of_the_pieces_does_not_matter(pieces):
    one, other = of(pieces), of(pieces[::-1])
    assert (one.low, one.high, one.limit) == (other.low, other.high, other.limit)
    assert np.array_equal(one.counts, other.counts)


@given(PIECES, PIECES)
def test_two_histograms_add(first, second):
    merged = of(first)
    merged.merge(of(second))
    whole = of([*first, *second])
    assert np.array_equal(merged.counts, whole.counts)
    assert (merged.low, merged.high, merged.limit) == (whole.low, whole.high, whole.limit)


def test_counts_are_those_of_numpy():
    x = np.random.default_rng(0).normal(size=50_000).astype(np.float32)
    found = of([x])
    edges = np.linspace(-found.limit, found.limit, 2 * BINS + 1)
    assert np.array_equal(found.counts, np.histogram(x.astype(np.float64), edges)[0])
    assert found.limit == 2.0 ** np.ceil(np.log2(np.abs(x).max()))


def test_of_a_large_piece_a_part_is_counted_and_the_ends_are_exact():
    x = np.linspace(-3, 5, 10 * COUNTED, dtype=np.float32)
    found = of([x])
    assert (found.low, found.high) == (-3, 5)
    assert COUNTED / 2 < found.counts.sum() <= COUNTED
    assert abs(found.counts[:BINS].sum() / found.counts.sum() - 3 / 8) < 0.01


def test_numbers_that_are_not_finite_are_counted_apart():
    found = of([[1.0, np.nan, np.inf, -2.0]])
    assert (found.invalid, found.low, found.high, found.counts.sum()) == (2, -2.0, 1.0, 2)


def test_zeros_alone_have_no_limit():
    found = of([[0.0, 0.0]])
    assert (found.limit, found.low, found.high, found.counts[BINS]) == (0.0, 0.0, 0.0, 2)
