import re

import pytest

from graft.core.schedule.primitives.schedule_text import apply_schedule
from graft.core.tensor_ir.ir import Allocate
from graft.core.tensor_ir.visit import walk_statements
from graft.errors import ScheduleError
from tests.core.schedule.primitives.nests import check, matmul, names, nest


def test_an_initial_value_moves_into_the_loop_that_reduces():
    stages, function = matmul()
    moved = apply_schedule(function, "compute_at c at j\nparallel i")
    assert names(moved) == ["i", "j", "i.first", "j.first", "k"]
    check(stages, moved)


def test_a_stage_moves_into_its_reader_and_keeps_only_what_an_iteration_needs():
    text = """
    input x: float32[9]
    stage p: float32[9] at (i) = x[i] * float32(2.0)
    stage y: float32[7] at (u) = p[u] + p[u + 2]
    """
    stages, function = nest(text)
    moved = apply_schedule(function, "split u 4 -> u0 u1\ncompute_at p at u0\nparallel u0")
    (kept,) = [one.buffer for one in walk_statements(moved.body) if isinstance(one, Allocate)]
    assert [int(extent.value) for extent in kept.shape] == [6]
    check(stages, moved)


def test_what_fills_a_part_of_a_sum_is_computed_inside_of_what_was_moved_before():
    stages, function = nest("""
    input a: float32[6, 8]
    stage p: float32[6, 8] at (i, k) = a[i, k] * float32(2.0)
    stage c: float32[6] at (i) = reduce add over k < 8 from float32(0.0): p[i, k]
    """)
    steps = "split i.2 4 -> i0 i1\ncompute_at c at i0\ncompute_at p at i1"
    changed = apply_schedule(function, steps)
    (part,) = [one.buffer for one in walk_statements(changed.body) if isinstance(one, Allocate)]
    assert [int(extent.value) for extent in part.shape] == [1, 8]
    check(stages, changed)


def test_lanes_of_a_vector_have_no_memory_of_their_own():
    _, function = matmul()
    function = apply_schedule(function, "vectorize j")
    message = (
        "cannot 'cache_read a at k in shared -> s': 'j' is a vector already, and its lanes have no memory of their own"
    )
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        apply_schedule(function, "cache_read a at k in shared -> s")
