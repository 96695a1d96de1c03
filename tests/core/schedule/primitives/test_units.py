"""What the units of a level do together: turns at parallel loops, what each does and the first, barriers, trees."""

import numpy as np
import pytest

from graft.core.schedule.primitives.schedule_text import apply_schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.parser import parse_function
from graft.errors import ScheduleError
from tests.core.schedule.primitives.random_steps import EXTERNS, check_same

TWO = """function two(x: float32[3, 10]) -> (y: float32[3, 10], z: float32[3]) {
  parallel b < 3 bind "block.x" {
    allocate near: float32[10] in shared
    allocate best: float32[1] in register
    parallel i < 10 { near[i] = x[b, i] }
    best[0] = near[0]
    serial k < 10 { best[0] = max(best[0], near[k]) }
    z[b] = best[0]
    parallel j < 10 { y[b, j] = near[9 - j] - best[0] }
  }
}"""


def spmd(text, units=4):
    return apply_schedule(parse_function(text), f"spmd b {units} thread.x -> t")


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("units", [1, 4, 5, 10, 16])
def test_units_take_turns_and_wait_where_they_meet(units):
    changed, x = spmd(TWO, units), numbers(3, 10)
    check_same(changed, [x], run_function(parse_function(TWO), [x]))
    assert str(changed).count('barrier "block"') == (units > 1)


def test_a_loop_of_no_iterations_has_no_turns():
    none = "parallel o < 0 { y[b, o + 20] = x[b, o + 20] }"
    changed, x = spmd(TWO.replace("parallel i <", f"{none} parallel i <")), numbers(3, 10)
    check_same(changed, [x], run_function(parse_function(TWO), [x]))


def test_each_unit_writes_its_own_memory_and_the_first_one_what_all_see():
    text = str(spmd(TWO))
    assert "if t == 0 {\n        z[b] = best[0]" in text
    assert "\n      best[0] = near[0]" in text


def test_units_that_stay_with_their_elements_do_not_wait():
    text = """function f(x: float32[2, 8]) -> (y: float32[2, 8]) {
      parallel b < 2 bind "block.x" {
        allocate near: float32[8] in shared
        parallel i < 8 { near[i] = x[b, i] }
        parallel j < 8 { y[b, j] = near[j] }
      }
    }"""
    changed, x = spmd(text), numbers(2, 8)
    assert "barrier" not in str(changed)
    check_same(changed, [x], [x])


def test_turns_of_a_loop_around_units_are_apart_if_they_meet():
    text = """function f(x: float32[2, 3, 8]) -> (y: float32[2, 8]) {
      parallel b < 2 bind "block.x" {
        parallel z < 8 { y[b, z] = x[b, 0, z] }
        serial s < 3 {
          parallel i < 8 { y[b, i] = y[b, i] + x[b, s, 7 - i] }
        }
        serial r < 3 {
          allocate near: float32[8] in shared
          parallel k < 8 { near[k] = y[b, k] }
          parallel j < 8 { y[b, j] = near[7 - j] }
        }
      }
    }"""
    changed, x = spmd(text), numbers(2, 3, 8)
    check_same(changed, [x], run_function(parse_function(text), [x]))
    assert str(changed).count('barrier "block"') == 4


def test_conditions_are_the_same_for_all_units():
    text = """function f(x: float32[4, 8]) -> (y: float32[4, 8]) {
      parallel b < 4 bind "block.x" {
        allocate near: float32[8] in shared
        if b < 2 {
          parallel i < 8 { near[i] = x[b, i] }
          parallel j < 8 { y[b, j] = near[7 - j] }
        } else {
          y[b, 3] = x[b, 4]
        }
      }
    }"""
    changed, x = spmd(text, 8), numbers(4, 8)
    found = run_function(changed, [x])[0]
    assert (found[:2] == x[:2, ::-1]).all() and (found[2:, 3] == x[2:, 4]).all()


def test_extents_may_vary():
    text = """function f(x: float32[2, n]) -> (y: float32[2, n]) {
      parallel b < 2 bind "block.x" { parallel i < n { y[b, i] = x[b, i] + x[b, i] } }
    }"""
    changed = spmd(text)
    for n in (1, 3, 4, 9):
        x = numbers(2, n)
        assert (run_function(changed, [x], [(2, n)])[0] == 2 * x).all()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('bind "block.x" ', "", "'b' is bound to no level, so that nobody could wait for its units"),
        ('"block.x"', '"thread.y"', "'b' is in a loop of units of 'thread' itself"),
        ("parallel i < 10 {", 'parallel i < 10 bind "thread.x" {', "'i' has units already"),
        ("in shared", "in register", "iterations of 'i' write 'near', of which each unit has its own"),
        (
            "parallel i < 10 {", "parallel i < 10 { allocate own: float32[1] in shared",
            "'own' in memory 'shared' is of one iteration of 'i'",
        ),
        (
            "serial k < 10 {", "serial k < cast<int64>(near[0]) { near[k] = best[0]",
            "'k' writes what its extent is read from",
        ),
        (
            "parallel j < 10 {", "parallel o < 1 { parallel j < 10 {",
            "in 'o', which is parallel, are parallel loops; fuse them before",
        ),
    ],
)  # fmt: skip
def test_what_units_cannot_do_together_is_refused(old, new, reason):
    text = TWO.replace(old, new) + (" }" if " o " in new else "")
    with pytest.raises(ScheduleError) as caught:
        spmd(text)
    assert str(caught.value) == f"cannot 'spmd b 4 thread.x -> t': {reason}"


PARTS = """function parts(x: float32[3, 6, 8]) -> (y: float32[3, 4]) {
  parallel b < 3 bind "block.x" {
    allocate sums: float32[4, 2] in register
    allocate near: float32[8] in shared
    parallel p < 4 { sums[p, 0] = float32(0.0) }
    serial s < 6 {
      parallel i < 8 { near[i] = x[b, s, i] }
      parallel q < 4 { sums[q, 0] = sums[q, 0] + near[2 * q] * near[7 - q] }
    }
    parallel r < 4 { y[b, r] = sums[r, 0] }
  }
}"""


def test_a_part_of_each_unit_is_memory_of_its_own():
    changed, x = spmd(PARTS), numbers(3, 6, 8)
    check_same(changed, [x], run_function(parse_function(PARTS), [x]))
    text = str(changed)
    assert "allocate sums: float32[2] in register" in text
    assert text.count('barrier "block"') == 2, "behind the loads, and behind what uses them"


@pytest.mark.parametrize(
    ("old", "new"),
    [("sums[r, 0]", "sums[3 - r, 0]"), ("parallel r < 4", "serial r < 4"), ("float32[4, 2]", "float32[5, 2]")],
)
def test_what_is_no_part_of_each_unit_alone_is_refused(old, new):
    with pytest.raises(ScheduleError, match="write 'sums', of which each unit has its own"):
        spmd(PARTS.replace(old, new))


ROWS = """function rows(x: float32[3, 250]) -> (y: float32[3]) {
  serial r < 3 {
    y[r] = float32(1.0)
    serial k < 250 { y[r] = y[r] + x[r, k] }
  }
}"""
SUMS = """
split k 2 -> k lane
split k {units} -> turn unit
cache_write y at r in register -> total
rfactor total at unit in shared -> parts around turn
reorder unit turn
merge parts.in unit -> unit
cache_write parts at unit in register -> own
rfactor own at lane in register -> each around turn
vectorize each.in
vectorize lane
bind r block.x
parallel unit
spmd r {units} thread.x -> t
"""


def summed(step, units=16):
    return apply_schedule(parse_function(ROWS), SUMS.format(units=units) + step)


@pytest.mark.parametrize("width", [2, 4, 16])
def test_units_reduce_their_parts_by_halves(width):
    changed = summed(f"tree parts.turn by t {width} block\nunroll parts.turn")
    x = np.random.default_rng(0).integers(-9, 9, (3, 250)).astype(np.float32)
    check_same(changed, [x], [1 + x.sum(1)])
    halves = width.bit_length() - 1
    assert str(changed).count('barrier "block"') == halves + 1


def test_units_of_a_group_wait_for_each_other_alone():
    changed = summed("tree parts.turn by t 4 warp\nunroll parts.turn")
    x = np.random.default_rng(0).integers(-9, 9, (3, 250)).astype(np.float32)
    check_same(changed, [x], [1 + x.sum(1)])
    assert str(changed).count('barrier "warp" of 4') == 2 and str(changed).count('barrier "block"') == 1
    wrong = parse_function(str(changed).replace('barrier "warp" of 4', 'barrier "warp" of 2'))
    with pytest.raises(AssertionError, match="race on 'parts"):
        check_same(wrong, [x], [1 + x.sum(1)])


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("tree parts.turn by t 3 block", "16 units are not in groups of 3, or these have no halves"),
        ("tree parts.turn by t 32 block", "16 units are not in groups of 32, or these have no halves"),
        ("tree parts.turn by r 4 block", "the iterations of 'parts.turn' are not those of 'r'"),
        ("tree each.turn by t 4 block", "the iterations of 'each.turn' are not those of 't'"),
        ("tree turn by t 4 block", "'turn' does more than reduce parts, one of each unit"),
    ],
)
def test_parts_that_have_no_halves_are_refused(step, reason):
    with pytest.raises(ScheduleError) as caught:
        summed(step)
    assert str(caught.value) == f"cannot '{step}': {reason}"


@pytest.mark.parametrize(
    ("behind", "reason"),
    [
        ("y[r] = total[0] + parts[3, 0]", "'parts' is used otherwise than by each unit for itself, before the loop"),
        ("y[r] = total[0]", ""),
    ],
)
def test_parts_are_not_used_behind_the_tree(behind, reason):
    text = f"""function f(x: float32[2, 8]) -> (y: float32[2]) {{
      parallel r < 2 bind "block.x" {{
        allocate parts: float32[8, 1] in shared
        parallel t < 8 bind "thread.x" {{
          allocate total: float32[1] in register
          total[0] = float32(0.0)
          parts[t, 0] = x[r, t]
          barrier "block"
          serial p < 8 {{ total[0] = total[0] + parts[p, 0] }}
          if t == 0 {{ {behind} }}
        }}
      }}
    }}"""
    function, x = parse_function(text), np.ones((2, 8), np.float32)
    if not reason:
        check_same(apply_schedule(function, "tree p by t 4 block"), [x], [x.sum(1)])
        return
    with pytest.raises(ScheduleError) as caught:
        apply_schedule(function, "tree p by t 4 block")
    assert str(caught.value).endswith(reason)


WAITING = """function f(x: int32[n, 8]) -> (y: int32[n, 8]) {
  parallel i < n {
    parallel b < 2 bind "block.x" {
      serial s < 1 {
        allocate near: int32[4] in shared
        parallel t < 4 bind "thread.x" {
          near[t] = x[i, b * 4 + t]
          barrier "block"
          BODY
        }
      }
    }
  }
}"""


@pytest.mark.parametrize(
    ("body", "step", "reason"),
    [
        (
            "y[i, b * 4 + t] = near[3 - t; t < 3]", "unswitch t else u",
            "in 't' units wait for each other, of which the conditions hold for some",
        ),
        (
            "serial k < 4 { y[i, b * 4 + t] = near[k] + x[0, k] }", "reorder b i",
            "in 'i', which is bound to no level, units wait for each other",
        ),
        (
            "y[i, b * 4 + t] = near[3 - t]", "parallel s",
            "in 's', which is bound to no level, units wait for each other",
        ),
    ],
)  # fmt: skip
def test_conditions_and_loops_of_no_level_keep_out_from_between_units_that_wait(body, step, reason):
    text = WAITING.replace("BODY", body)
    with pytest.raises(ScheduleError) as caught:
        apply_schedule(parse_function(text), step)
    assert str(caught.value) == f"cannot '{step}': {reason}"


def test_what_is_read_before_units_meet_is_not_read_behind():
    text = """function f(x: int32[4]) -> (y: int32[4]) {
      parallel b < 1 bind "block.x" {
        allocate all: int32[4] in shared
        parallel t < 4 bind "thread.x" {
          allocate own: int32[1] in register
          all[t] = x[t]
          serial i < 1 { own[i] = x[3 - t] }
          barrier "block"
          serial j < 1 { y[t] = own[j] }
        }
      }
    }"""
    with pytest.raises(ScheduleError, match=r"^cannot 'compute_at own at j': what 'own' is made of is wr"):
        apply_schedule(parse_function(text), "compute_at own at j")


def test_units_fill_memory_of_their_own_in_a_loop_that_calls_something() -> None:
    """A pipeline says behind each copy that it is under way: the first unit does, and each has its copy."""
    function = parse_function("""function sums(a: float32[3, 4, 8]) -> (c: float32[3, 8]) {
      parallel b < 3 bind "block.x" {
        parallel j < 8 { c[b, j] = float32(0.0) }
        serial i < 4 { parallel j1 < 8 { c[b, j1] = c[b, j1] + a[b, i, j1] } }
      }
    }""")
    steps = "reindex_cache_read a at i in scratch -> near over j1\npipeline_async i 3 near\nspmd b 2 thread.x -> unit"
    a = np.arange(96, dtype=np.float32).reshape(3, 4, 8)
    check_same(apply_schedule(function, steps), [a], run_function(function, [a]), externs=EXTERNS)
