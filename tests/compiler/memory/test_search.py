from itertools import pairwise, permutations
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from graft.compiler.memory.first_fit import best_of_orders, first_fit
from graft.compiler.memory.lifetimes import Lifetime, live_bytes, lower_bound, overlapping
from graft.compiler.memory.plan import plan_memory
from graft.compiler.memory.search import ExactSearch, climb


@st.composite
def lifetimes(draw):
    first = draw(st.integers(0, 6))
    return Lifetime(64 * draw(st.integers(1, 6)), first, first + draw(st.integers(0, 3)))


def chain(count, seed):
    random = Random(seed)
    sizes = [random.choice([64, 128, 640, 1024, 3008, 4096]) for _ in range(count)]
    return [Lifetime(size, step, step + random.choice([1, 1, 2, 3, 5, 8])) for step, size in enumerate(sizes)]


@settings(max_examples=40)
@given(st.lists(lifetimes(), min_size=1, max_size=5))
def test_the_plan_of_few_tensors_is_the_best_of_all_orders(rows):
    overlaps = overlapping(rows)
    best = min(first_fit(order, rows, overlaps).total for order in permutations(range(len(rows))))
    assert plan_memory(rows).arena_bytes == best


@given(st.lists(lifetimes(), min_size=1, max_size=12))
def test_the_exact_search_finds_arenas_below_its_limit_or_none(rows):
    bound = lower_bound(rows)
    assert ExactSearch(rows, bound).run() is None
    offsets = ExactSearch(rows, bound + 64).run()
    for one, offset in zip(rows, offsets or (), strict=False):
        assert offset + one.room <= bound
        for other, theirs in zip(rows, offsets or (), strict=False):
            together = one is not other and one.first <= other.last and other.first <= one.last
            assert not together or offset + one.room <= theirs or theirs + other.room <= offset


def test_climbing_reaches_the_bound_where_first_fit_does_not():
    missed = 0
    for seed in range(20):
        rows = chain(60, seed)
        overlaps, bound = overlapping(rows), lower_bound(rows)
        greedy = best_of_orders(rows, overlaps, bound)
        missed += greedy.total > bound
        assert climb(greedy, rows, overlaps, bound).total <= min(greedy.total, 1.01 * bound)
    assert missed


def test_what_is_live_is_counted_by_step():
    assert live_bytes([Lifetime(10, 0, 1), Lifetime(100, 1, 3), Lifetime(64, 4, 4)]) == [64, 192, 128, 128, 64]
    assert live_bytes([]) == []


@given(st.lists(lifetimes(), max_size=12))
def test_overlaps_are_shared_steps(rows):
    found = overlapping(rows)
    for i, one in enumerate(rows):
        shared = [j for j, other in enumerate(rows) if j != i and one.first <= other.last and other.first <= one.last]
        assert sorted(found[i]) == shared


def test_a_plan_of_many_tensors_keeps_those_that_live_together_apart():
    rows = chain(300, 1)
    plan = plan_memory(rows)
    for step in range(300):
        live = sorted((plan.offsets[i], one.room) for i, one in enumerate(rows) if one.first <= step <= one.last)
        assert all(offset + room <= after for (offset, room), (after, _) in pairwise(live))
