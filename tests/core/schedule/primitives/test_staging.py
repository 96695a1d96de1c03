import re

import numpy as np
import pytest

from graft.core.schedule.primitives.schedule_text import apply_schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import Allocate, If
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.visit import loads, statement_expressions, walk_statements
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


def test_what_a_loop_over_a_whole_axis_needs_exists_whatever_the_extent():
    _, function = nest("""
    input x: float32[n, 8]
    stage p: float32[n, 8] in scratch at (i, j) = x[i, j] * float32(2.0)
    stage y: float32[n] at (i) = reduce add over k < 8 from float32(0.0): p[i, k]
    """)
    moved = apply_schedule(function, "compute_at p at i.2")
    assert not any(isinstance(one, If) for one in walk_statements(moved.body))
    assert not any(load.mask for one in walk_statements(moved.body) for load in loads(*statement_expressions(one)))


def test_lanes_of_a_vector_have_no_memory_of_their_own():
    _, function = matmul()
    function = apply_schedule(function, "vectorize j")
    message = (
        "cannot 'cache_read a at k in shared -> s': 'j' is a vector already, and its lanes have no memory of their own"
    )
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        apply_schedule(function, "cache_read a at k in shared -> s")


ROWS = """function f(x: float32[6, 4]) -> (y: float32[6, 4], z: float32[4]) {{
  allocate p: float32[6, 4] in scratch
  {before}
  serial u < 6 {{ serial v < 4 {{ {body} }} }}
  {behind}
}}"""
MADE = "serial i < 6 { serial j < 4 { p[i, j] = x[i, j] * float32(2.0) } }"


@pytest.mark.parametrize(
    ("before", "body", "behind", "reason"),
    [
        (MADE.replace("i < 6", "i < 5"), "y[u, v] = p[u, v]", "", "the loops that compute 'p' do not run over all of"),
        (
            MADE + "serial k < 6 { serial l < 4 { p[k, l] = p[k, l] + p[k, 3 - l] } }",
            "y[u, v] = p[u, v]",
            "",
            "elements of 'p' are computed from others of it",
        ),
        (
            MADE + "serial k < 6 { serial l < 4 { y[k, l] = p[k, l] } }",
            "y[u, v] = y[5 - u, v] + p[u, v]",
            "",
            "'p' is needed as a whole elsewhere",
        ),
        (MADE, "if p[u, v] < float32(1.0) { serial w < 1 { y[u, v] = p[u, v] } }", "", "no nest before that of 'w'"),
        (MADE, "p[u, v] = p[u, v] + x[u, v]", "serial q < 4 { z[q] = p[2, q] }", ""),
        (
            MADE,
            "if v < u { serial w < 1 { p[u, v] = p[u, v] + x[u, v] } }",
            "serial q < 4 { z[q] = p[2, q] }",
            "iterations of 'w' may leave out elements of 'p'",
        ),
        (
            MADE,
            "if v < 3 { p[u, v] = p[u, v] + p[u, v + 1] }",
            "serial q < 4 { z[q] = p[2, q] }",
            "iterations of 'v' share elements of 'p'",
        ),
    ],
)
def test_a_nest_moves_where_all_that_it_computes_is_still_computed_once_and_in_time(before, body, behind, reason):
    function = parse_function(ROWS.format(before=before, body=body, behind=behind))
    loop = "w" if "serial w < 1" in body else "v"
    if not reason:
        moved = apply_schedule(function, f"compute_at p at {loop}")
        x = np.arange(24, dtype=np.float32).reshape(6, 4)
        np.testing.assert_array_equal(run_function(moved, [x])[1], x[2] * 3)
        return
    with pytest.raises(ScheduleError, match=f"^cannot 'compute_at p at {loop}': {re.escape(reason)}"):
        apply_schedule(function, f"compute_at p at {loop}")


def test_a_nest_moves_inside_of_a_loop_around_both_unless_it_is_kept_there():
    text = """function f(x: float32[3, 4]) -> (y: float32[3, 4]) {
      {outside} serial t < 3 { {inside}
        serial i < 4 { p[i] = x[t, i] * float32(2.0) }
        serial j < 4 { y[t, j] = p[j] * p[j] }
      }
    }"""
    home, x = "allocate p: float32[4] in scratch", np.arange(12, dtype=np.float32).reshape(3, 4)
    function = parse_function(text.replace("{outside}", "").replace("{inside}", home))
    moved = apply_schedule(function, "split j 2 -> j0 j1\ncompute_at p at j0")
    np.testing.assert_array_equal(run_function(moved, [x])[0], 4 * x * x)
    function = parse_function(text.replace("{outside}", home).replace("{inside}", ""))
    message = "cannot 'compute_at p at j': 'p' is kept from one iteration of 't' to the next"
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        apply_schedule(function, "compute_at p at j")


def test_a_copy_is_filled_first_where_its_loop_sets_a_part():
    function = parse_function("""function f(x: float32[4]) -> (y: float32[4]) {
      serial z < 4 { y[z] = x[z] }
      serial i < 4 { serial j < i { y[j] = float32(0.0) } }
      serial k < 4 { serial l < 0 { y[l] = float32(1.0) } }
    }""")
    copied = apply_schedule(function, "cache_write y at i in scratch -> a\ncache_write y at k in scratch -> b")
    np.testing.assert_array_equal(run_function(copied, [np.ones(4, np.float32)])[0], np.float32([0, 0, 0, 1]))


@pytest.mark.parametrize(
    ("step", "what"),
    [
        ("cache_read y at j in scratch -> s", "copy what others write"),
        ("cache_write y at k in scratch -> s", "write back what others write"),
    ],
)
def test_a_copy_of_more_than_is_used_touches_nothing_that_a_parallel_iteration_writes(step, what):
    function = parse_function("""function f(x: float32[8]) -> (y: float32[8], z: float32[4]) {
      serial w < 8 { y[w] = x[w] }
      parallel i < 2 {
        serial o < 1 { serial k < 2 { y[i + k * 4] = x[i] } }
        serial j < 1 { z[i] = y[i] + y[i + 4] }
      }
    }""")
    step = step.replace("at k", "at o")
    with pytest.raises(ScheduleError, match=f"^cannot '{step}': iterations of 'i' would {what}$"):
        apply_schedule(function, step)


@pytest.mark.parametrize(("dtype", "place"), [("int64", "r[0]"), ("int32", "cast<int64>(r[0])")])
def test_a_copy_is_made_of_a_place_that_is_read_where_it_has_bounds(dtype, place):
    function = parse_function(f"""function f(x: float32[4], s: {dtype}[4]) -> (y: float32[4]) {{
      serial i < 4 {{
        allocate r: {dtype}[1] in scratch
        r[0] = s[i]
        y[i] = x[{place}]
      }}
    }}""")
    step = "cache_read x at i in scratch -> near"
    if dtype == "int64":
        with pytest.raises(ScheduleError, match=f"^cannot '{step}': the places in 'x' that are used have no bounds$"):
            apply_schedule(function, step)
        return
    x, s = np.arange(4, dtype=np.float32), np.int32([3, 0, 2, 1])
    np.testing.assert_array_equal(run_function(apply_schedule(function, step), [x, s])[0], x[s])


def test_units_fill_a_copy_for_a_loop_that_is_none_of_them():
    _, function = matmul()
    step = "cache_read a at j in shared -> s by j"
    message = f"cannot '{step}': 'j' is bound itself, so that its units do not stand together around it"
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        apply_schedule(function, f"bind i block.x\nbind j thread.x\n{step}")


def test_units_that_fill_a_cache_do_not_wait_within_iterations_that_are_at_the_same_time():
    _, function = matmul()
    steps = "bind i block.x\nbind j thread.x\nsplit k 2 -> k0 k1\nrfactor c at k1 in scratch -> p\nparallel k1"
    step = "cache_read a at k1 in shared -> near by j"
    message = f"cannot '{step}': iterations of 'k1' are at the same time, so that units cannot wait in it"
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        apply_schedule(function, f"{steps}\n{step}")


def test_units_that_fill_a_cache_together_are_all_of_their_level():
    _, function = matmul()
    message = (
        "cannot 'cache_read a at k in shared -> near by j': the units are not all that one unit of the level around "
        "them has"
    )
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        apply_schedule(function, "bind i thread.y\nbind j thread.x\ncache_read a at k in shared -> near by j")


@pytest.mark.parametrize("guard", ["if i < 1", "serial j < i"])
def test_a_place_that_data_tell_under_a_condition_is_not_looked_up_before_it(guard):
    text = f"""function f(a: float32[4], r: int64[n]) -> (y: float32[3]) {{
      serial i < 3 {{ y[i] = float32(0.0) {guard} {{ y[i] = a[min(max(r[i], 0), 3)] }} }}
    }}"""
    message = (
        "cannot 'cache_read a at i in scratch -> near': the places in 'a' are told by data, and only under a condition"
    )
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        apply_schedule(parse_function(text), "cache_read a at i in scratch -> near")


def test_units_that_not_all_reach_a_loop_fill_no_cache():
    function = parse_function("""function f(x: float32[2, 4]) -> (y: float32[2, 4]) {
      parallel b < 2 bind "block.x" { parallel t < 3 bind "thread.x" {
        if t == 0 { serial i < 4 { y[b, i] = x[b, i] } }
      } }
    }""")
    step = "cache_read x at i in shared -> near by t"
    with pytest.raises(ScheduleError) as caught:
        apply_schedule(function, step)
    assert str(caught.value) == f"cannot '{step}': 't' and its like must be bound loops around 'i', which all reach"
