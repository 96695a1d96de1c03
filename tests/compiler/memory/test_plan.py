from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from graft.compiler.memory.lifetimes import ALIGNMENT, Lifetime
from graft.compiler.memory.plan import plan_memory, plan_without_reuse


@st.composite
def lifetimes(draw):
    first = draw(st.integers(0, 20))
    return Lifetime(draw(st.integers(0, 5000)), first, first + draw(st.integers(0, 10)))


@given(st.lists(lifetimes(), max_size=40))
def test_tensors_that_live_together_never_overlap(rows):
    plan = plan_memory(rows)
    for i, left in enumerate(rows):
        assert plan.offsets[i] % ALIGNMENT == 0
        assert plan.offsets[i] + left.bytes <= plan.arena_bytes
        for j, right in enumerate(rows[:i]):
            together = left.first <= right.last and right.first <= left.last
            apart = (
                plan.offsets[i] + max(left.bytes, 1) <= plan.offsets[j]
                or plan.offsets[j] + max(right.bytes, 1) <= plan.offsets[i]
            )
            assert apart or not together


@given(st.lists(lifetimes(), max_size=40))
def test_the_bound_is_a_lower_bound(rows):
    plan = plan_memory(rows)
    assert plan.bound_bytes <= plan.arena_bytes
    assert plan.bound_bytes >= max((row.bytes for row in rows), default=0)


@st.composite
def replacing(draw):
    """Lifetimes of which some take the place of others that end there."""
    rows = draw(st.lists(lifetimes(), min_size=1, max_size=20))
    for _ in range(draw(st.integers(0, 10))):
        on = draw(st.integers(0, len(rows) - 1))
        if all(row.on != on for row in rows):
            begin = rows[on].last
            rows.append(Lifetime(rows[on].bytes, begin, begin + draw(st.integers(0, 8)), on))
    return rows


@given(replacing())
def test_tensors_share_memory_only_where_one_takes_the_place_of_the_other(rows):
    plan = plan_memory(rows)
    for i, left in enumerate(rows):
        if left.on >= 0:
            assert plan.offsets[i] == plan.offsets[left.on]
        for j, right in enumerate(rows[:i]):
            together = left.first <= right.last and right.first <= left.last
            apart = (
                plan.offsets[i] + max(left.bytes, 1) <= plan.offsets[j]
                or plan.offsets[j] + max(right.bytes, 1) <= plan.offsets[i]
            )
            assert apart or not together or _replaces(rows, i, j) or _replaces(rows, j, i)


def _replaces(rows, later, earlier):
    while later not in (earlier, -1):
        later = rows[later].on
    return later == earlier


@given(replacing())
def test_without_reuse_no_two_tensors_share_memory(rows):
    plan = plan_without_reuse(rows)
    ends = sorted((offset, offset + row.bytes) for offset, row in zip(plan.offsets, rows, strict=True))
    assert all(before[1] <= after[0] for before, after in pairwise(ends))
    assert plan.arena_bytes == plan.bound_bytes == sum(-(-max(row.bytes, 1) // 64) * 64 for row in rows)


def test_a_chain_of_replacements_needs_one_buffer():
    chain = [Lifetime(1000, step, step + 1, step - 1) for step in range(50)]
    assert plan_memory(chain).arena_bytes == plan_memory(chain).bound_bytes == 1024


def test_a_chain_needs_only_two_buffers():
    chain = [Lifetime(1000, step, step + 1) for step in range(50)]
    plan = plan_memory(chain)
    assert plan.arena_bytes == plan.bound_bytes == 2 * 1024


def test_the_plan_is_deterministic():
    rows = [Lifetime(64 * (i * 7 % 11 + 1), i % 5, i % 5 + i % 3) for i in range(30)]
    assert plan_memory(rows) == plan_memory(list(rows))
