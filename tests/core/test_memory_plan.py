from hypothesis import given
from hypothesis import strategies as st

from graft.core.memory_plan import ALIGNMENT, Lifetime, plan_memory


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


def test_a_chain_needs_only_two_buffers():
    chain = [Lifetime(1000, step, step + 1) for step in range(50)]
    plan = plan_memory(chain)
    assert plan.arena_bytes == plan.bound_bytes == 2 * 1024


def test_the_plan_is_deterministic():
    rows = [Lifetime(64 * (i * 7 % 11 + 1), i % 5, i % 5 + i % 3) for i in range(30)]
    assert plan_memory(rows) == plan_memory(list(rows))
