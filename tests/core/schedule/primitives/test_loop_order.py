import re

import numpy as np
import pytest

from graft.core.schedule.primitives.schedule_text import apply_schedule
from graft.core.schedule.primitives.step import loops
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import If
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.printer import print_expression
from graft.core.tensor_ir.visit import walk_statements
from graft.errors import ScheduleError
from tests.core.schedule.primitives.nests import check, matmul, names, nest


def test_fused_loops_may_be_shared_and_put_in_order():
    stages, function = matmul()
    check(stages, apply_schedule(function, "fuse i j -> ij\nreorder k ij"))
    check(stages, apply_schedule(function, "fuse i j -> ij\nparallel ij"))


def test_a_tail_is_a_loop_of_its_own_behind_whole_blocks():
    stages, function = matmul(5, 7, 6)
    cut = apply_schedule(function, "split j 4 -> j0 j tail j1\nvectorize j\nparallel i")
    assert names(cut)[2:] == ["i", "j0", "j", "k", "j1", "k.j1"]
    assert not any(isinstance(one, If) for one in walk_statements(cut.body))
    check(stages, cut)


def test_the_tail_of_a_loop_whose_extent_is_no_number_is_what_the_blocks_leave():
    function = parse_function("""
    function f(x: float32[n], y: float32[1]) -> (z: float32[n]) { serial i < n { z[i] = x[i] + y[0] } }
    """)
    cut = apply_schedule(function, "split i 4 -> i0 i tail i1\nvectorize i")
    assert [print_expression(loop.extent) for loop in loops(cut.body)] == ["n / 4", "4", "n % 4"]
    for size in (3, 8, 9):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(run_function(cut, [x, np.ones(1, np.float32)], [(size,)])[0], x + 1)


def test_three_loops_become_one_whose_iterations_may_be_shared():
    text = """
    function f(x: float32[24]) -> (y: float32[24]) {
      serial a < 2 { serial b < 3 { serial c < 4 { y[a * 12 + b * 4 + c] = x[a * 12 + b * 4 + c] } } }
    }
    """
    fused = apply_schedule(parse_function(text), "fuse a b c -> t\nsplit t 5 -> t0 t1\nbind t0 block.x\nbind t1 lane.x")
    x = np.arange(24, dtype=np.float32)
    np.testing.assert_array_equal(run_function(fused, [x])[0], x)


def test_a_reorder_is_refused_where_a_dependence_forbids_it():
    text = """
    function f(x: float32[4, 4]) -> (y: float32[5, 5]) {
      serial i < 4 { serial j < 4 { y[i + 1, j] = y[i, j + 1] + x[i, j] } }
    }
    """
    message = "cannot 'reorder j i': 'y' is written and used again along 'i', 'j', in that order"
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        apply_schedule(parse_function(text), "reorder j i")
    apply_schedule(parse_function(text.replace("j + 1]", "j]")), "reorder j i")


def test_sums_of_floats_keep_their_order_and_exact_ones_need_not():
    text = """
    input a: {t}[4, 3, 2]
    stage c: {t}[4] at (i) = reduce add over p < 3, q < 2 from {t}({zero}): a[i, p, q]
    """
    _, function = nest(text.format(t="float32", zero="0.0"))
    message = "cannot 'reorder q p': 'c' is written and used again along 'p', 'q', in that order"
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        apply_schedule(function, "reorder q p")
    stages, function = nest(text.format(t="int32", zero="0"))
    check(stages, apply_schedule(function, "reorder q p"))


@pytest.mark.parametrize("step", ["reorder j i", "fuse i j -> ij"])
@pytest.mark.parametrize("between", ["if y[i] < float32(0.5)", "let v: float32 = y[i]"])
def test_what_stands_between_loops_and_reads_what_they_write_stays_there(step, between):
    function = parse_function(
        f"function f(x: float32[4]) -> (y: float32[4]) {{ serial i < 4 {{ {between} {{ serial j < 3 {{"
        " y[i] = x[j] + float32(1.0) } } } }"
    )
    message = f"cannot '{step}': what stands between 'i' and 'j' reads what the loops write"
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        apply_schedule(function, step)


def test_a_bound_that_is_computed_between_loops_keeps_them_in_order():
    function = parse_function("""
    function f(x: float32[4]) -> (y: float32[4, 4]) {
      serial i < 4 { let e: int64 = i * 2 % 3 { serial j < e { y[i, j] = x[j] } } }
    }
    """)
    message = "cannot 'reorder j i': the extent of 'j' depends on another of them"
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        apply_schedule(function, "reorder j i")


def test_a_parallel_loop_moves_outwards_where_its_iterations_stay_apart_alone():
    text = """
    function f(x: float32[6, 6]) -> (y: float32[6, 6]) {
      serial i < 6 { serial j < 6 { y[i, j] = x[i, j] } }
      serial k < 5 { parallel p < 5 { y[k + 1, p + 1] = y[k, p] + float32(1.0) } }
    }
    """
    message = "cannot 'reorder p k': iterations of 'p', which is parallel, would share 'y'"
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        apply_schedule(parse_function(text), "reorder p k")
    apply_schedule(parse_function(text.replace("y[k, p]", "y[k, p + 1]")), "reorder p k")


@pytest.mark.parametrize("tail", ["", " tail i2"])
def test_a_loop_that_changes_its_own_extent_stays_whole(tail):
    function = parse_function("""function f(x: int32[4]) -> (n: int32[1]) {
      n[0] = x[0]
      serial i < cast<int64>(n[0]) { n[0] = n[0] - int32(1) }
    }""")
    message = f"cannot 'split i 2 -> i0 i1{tail}': 'i' writes what its extent is read from"
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        apply_schedule(function, f"split i 2 -> i0 i1{tail}")


def test_a_parallel_loop_moves_outwards_only_where_it_is_told_that_its_iterations_stay_apart():
    text = """
    function f(x: int32[3], u: int32[3]) -> (y: int32[3]) {
      serial f < 3 { y[f] = x[f] }
      serial i < 3 { serial j < 3 { y[i] = y[i] + u[j] } }
    }
    """
    message = "cannot 'reorder j t': iterations of 'j', which is parallel, would share 'y'"
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        apply_schedule(parse_function(text), "skew i 1 j 3 -> t\nbind j thread.x\nreorder j t")


# ---- Peel, merge ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "loops"), [
    ("peel i 1 -> rest", ["i", "j", "k", "rest", "j.rest", "k.rest"]),
    ("peel j 4 -> rest\nvectorize rest\nunroll j", ["i", "j", "k", "rest", "k.rest"]),
    ("peel k 5 -> last", ["i", "j", "k", "last"]),
])  # fmt: skip
def test_iterations_behind_the_first_ones_are_a_loop_of_their_own(steps, loops):
    stages, function = matmul()
    peeled = apply_schedule(function, steps)
    assert [name for name in names(peeled) if ".first" not in name] == loops
    check(stages, peeled)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
def test_a_loop_over_a_variable_has_as_many_iterations_when_it_is_peeled(n):
    function = parse_function("function f(x: int32[n]) -> (y: int32[n]) { serial i < n { y[i] = x[i] * int32(2) } }")
    x = np.arange(n, dtype=np.int32)
    np.testing.assert_array_equal(run_function(apply_schedule(function, "peel i 2 -> r"), [x], [(n,)])[0], x * 2)


MERGED = """function f(x: int32[6]) -> (y: int32[6], z: int32[6]) {{
  serial i < 6 {{ y[i] = x[i] * int32(2) }}
  serial j < {extent} {{ {body} }}
}}"""


@pytest.mark.parametrize("body", ["z[j] = y[j] + int32(1)", "z[j] = x[5 - j]", "z[j] = y[j - 1; j >= 1]"])
def test_loops_behind_each_other_become_one_where_all_that_is_used_is_there(body):
    function = parse_function(MERGED.format(extent=6, body=body))
    x = np.array([3, 1, 4, 1, 5, 9], np.int32)
    changed = apply_schedule(function, "merge i j -> ij")
    assert names(changed) == ["ij"]
    for got, wanted in zip(run_function(changed, [x]), run_function(function, [x]), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("extent", "body", "steps", "reason"),
    [
        (6, "z[j] = y[5 - j]", "merge i j -> ij", "'j' would use 'y' before 'i' is done with it"),
        (6, "z[j] = y[j + 1; j < 5]", "merge i j -> ij", "'j' would use 'y' before 'i' is done with it"),
        (6, "y[j] = x[j]\nz[j] = y[j / 2]", "merge j i -> ij", "'i' does not stand directly behind 'j'"),
        (5, "z[j] = y[j]", "merge i j -> ij", "'i' and 'j' have different extents"),
        (6, "z[j] = y[j]", "parallel j\nmerge i j -> ij", "'j' is parallel already; merge it before"),
        (6, "z[j] = y[j]", "peel i 6 -> rest", "'i' has no more than 6 iterations"),
        (6, "z[j] = y[j]", "peel i 0 -> rest", "the first iterations are less than 1"),
        (6, "z[j] = y[j]", "unroll i\npeel i 2 -> rest", "'i' is unrolled already; peel it before"),
    ],
)
def test_what_would_change_the_order_is_not_merged_nor_what_has_none_left_peeled(extent, body, steps, reason):
    function = parse_function(MERGED.format(extent=extent, body=body))
    with pytest.raises(ScheduleError, match=f"^{re.escape(f'cannot {steps.splitlines()[-1]!r}: {reason}')}$"):
        apply_schedule(function, steps)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5])
def test_loops_that_have_fewer_than_no_iterations_are_fused_to_none(n):
    function = parse_function("""function f(x: int32[n]) -> (y: int32[n]) {
      serial z < n { y[z] = x[z] }
      serial i < n - 2 { serial j < n - 2 { y[0] = y[0] + x[j] } }
    }""")
    x = np.arange(1, n + 1, dtype=np.int32)
    (got,), (wanted,) = (
        run_function(one, [x], [(n,)]) for one in (apply_schedule(function, "fuse i j -> ij"), function)
    )
    np.testing.assert_array_equal(got, wanted)


def test_an_extent_that_a_let_between_loops_binds_is_not_fused():
    function = parse_function("""function f(x: int32[4]) -> (y: int32[4]) {
      serial i < 4 { let e: int64 = i * 2 % 3 { serial j < e { y[i] = x[j] } } }
    }""")
    with pytest.raises(ScheduleError, match=r"the extent of 'j' is not the same everywhere$"):
        apply_schedule(function, "fuse i j -> ij")


TWICE = """
function f(x: float32[7, 9]) -> (y: float32[7, 9]) { serial i < 7 { serial j < 9 { y[i, j] = VALUE } } }
"""


def test_tiles_that_overlap_along_two_axes_are_put_in_order():
    steps = "overlap i 3 -> i0 i\noverlap j 4 -> j0 j\nreorder i0 j0 i j"
    function = parse_function(TWICE.replace("VALUE", "x[i, j] + float32(1.0)"))
    x = np.arange(63, dtype=np.float32).reshape(7, 9)
    np.testing.assert_array_equal(run_function(apply_schedule(function, steps), [x])[0], x + 1)


@pytest.mark.parametrize("value", ["x[i, j] + cast<float32>(i0)", "x[i0, j]"])
def test_what_is_stored_twice_stays_in_order_where_it_depends_on_more_than_its_place(value):
    text = """
    function f(x: float32[7, 9]) -> (y: float32[7, 9]) {
      serial i0 < 3 { serial i < 3 { serial j0 < 3 { serial j < 4 {
        y[min(i0 * 3, 4) + i, min(j0 * 4, 5) + j] = VALUE
      } } } }
    }
    """
    same, other = (parse_function(text.replace("VALUE", one)) for one in ("float32(1.0)", value))
    apply_schedule(same, "reorder i0 j0 i j")
    with pytest.raises(ScheduleError, match="'y' is written and used again"):
        apply_schedule(other, "reorder i0 j0 i j")


def test_a_factor_that_divides_an_open_extent_leaves_nothing_over():
    function = parse_function(
        "function f(x: float32[8 * n]) -> (y: float32[8 * n]) { serial i < 8 * n { y[i] = x[i] } }"
    )
    changed = apply_schedule(function, "split i 8 -> v i")
    assert "if " not in str(changed)
    assert [print_expression(loop.extent) for loop in loops(changed.body)] == ["n", "8"]
    tailed = apply_schedule(function, "split i 8 -> v i tail rest")  # who asks for one goes on with it
    assert [loop.variable.name for loop in loops(tailed.body)] == ["v", "i", "rest"]
