import re

import numpy as np
import pytest

from graft.core.schedule.primitives.schedule_text import apply_schedule, parse_schedule, print_schedule
from graft.core.schedule.primitives.step import loops
from graft.core.schedule.primitives.vectorize import lowered
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import If
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.printer import print_expression, print_statement
from graft.core.tensor_ir.visit import conjuncts, loads, statement_expressions, walk_statements
from graft.errors import ScheduleError

COPY = "function f(x: float32[{n}]) -> (y: float32[{n}]) {{ serial i < {n} {{ y[i] = x[i] + float32(1.0) }} }}"
SLIDE = """
function f(x: float32[{width}], w: float32[{taps}]) -> (y: float32[{count}]) {{
  serial i < {count} {{ y[i] = float32(0.0) }}
  serial i.sum < {count} {{
    serial k < {taps} {{
      y[i.sum] = fma(x[{place}; {place} >= 0 & {place} < {width}], w[k], y[i.sum])
    }}
  }}
}}
"""


def sliding(width=9, taps=3, count=9, stride=1, step=1, pad=1):
    place = f"i.sum * {stride} + k * {step} - {pad}"
    function = parse_function(SLIDE.format(width=width, taps=taps, count=count, place=place))
    random = np.random.default_rng(width)
    x, w = (random.integers(-4, 5, extent).astype(np.float32) for extent in (width, taps))
    padded = np.zeros(pad + max(width, (count - 1) * stride + (taps - 1) * step + 1) + pad, np.float32)
    padded[pad : pad + width] = x
    expected = [sum(padded[i * stride + k * step] * w[k] for k in range(taps)) for i in range(count)]
    return function, [x, w], np.array(expected, np.float32)


def conditions(function):
    """How many conditions and masks a function has."""
    parts = list(walk_statements(function.body))
    masks = [load.mask for one in parts for load in loads(*statement_expressions(one))]
    return sum(isinstance(one, If) for one in parts) + sum(mask is not None for mask in masks)


def same(function, inputs, expected):
    for one in (function, lowered(function)):
        np.testing.assert_array_equal(run_function(one, inputs)[0], expected)


def refused(text, schedule, reason):
    with pytest.raises(ScheduleError, match=f"^{re.escape(f'cannot {schedule!r}: {reason}')}$"):
        apply_schedule(parse_function(text), schedule)


def test_the_text_of_each_step_is_read_back():
    text = "overlap i 4 -> i0 i\nskew i 2 k 3 -> t\nclip k\nhoist k\nguard c\nunswitch i0 else rest\npack w 0 16 -> p\n"
    assert print_schedule(parse_schedule(text)) == text


# ---- Overlap ----


@pytest.mark.parametrize("n", [4, 7, 8, 9])
def test_the_last_of_overlapping_tiles_ends_where_the_loop_does(n):
    tiled = apply_schedule(parse_function(COPY.format(n=n)), "overlap i 4 -> i0 i\nvectorize i")
    assert conditions(tiled) == 0
    x = np.arange(n, dtype=np.float32)
    same(tiled, [x], x + 1)


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 11])
def test_tiles_of_a_loop_whose_extent_varies_are_guarded_where_it_is_short(n):
    tiled = apply_schedule(parse_function(COPY.format(n="n")), "overlap i 4 -> i0 i\nvectorize i")
    x = np.arange(n, dtype=np.float32)
    for one in (tiled, lowered(tiled)):
        np.testing.assert_array_equal(run_function(one, [x], [(n,)])[0], x + 1)


def test_no_tile_overlaps_where_an_iteration_may_not_run_twice():
    text = "function f(x: float32[9]) -> (y: float32[9]) { serial i < 9 { y[i] = y[i] + x[i] } }"
    refused(text, "overlap i 4 -> i0 i", "'i' reads 'y', which it writes: no iteration may run twice")
    refused(COPY.format(n=3), "overlap i 4 -> i0 i", "'i' has fewer iterations than a tile")
    refused(COPY.format(n=3), "overlap i 0 -> i0 i", "the factor is less than 1")


# ---- Skew ----


@pytest.mark.parametrize(("stride", "step"), [(1, 1), (2, 1), (1, 2), (3, 2), (2, 3)])
def test_a_skewed_loop_reads_each_element_in_one_iteration(stride, step):
    function, inputs, expected = sliding(stride=stride, step=step, count=4)
    skewed = apply_schedule(function, f"skew i.sum {stride} k {step} -> t")
    front = next(loop for loop in loops(skewed.body) if loop.variable.name == "t")
    assert print_expression(front.extent) == str(3 * stride + 2 * step + 1)
    same(skewed, inputs, expected)
    same(apply_schedule(function, f"reorder k i.sum\nskew i.sum {stride} k {step} -> t\nunroll t"), inputs, expected)


def test_a_skew_is_refused_where_a_dependence_would_turn_round():
    text = """
    function f(x: float32[9, 9]) -> (y: float32[9, 9]) {
      serial i < 4 { serial k < 4 { y[i + 2, k] = y[i, k + 3] + x[i, k] } }
    }
    """
    refused(text, "skew i 1 k 1 -> t", "'y' is written and used again along 'i' and 'k'")
    x = np.arange(81, dtype=np.float32).reshape(9, 9)
    plain = parse_function(text)
    skewed = apply_schedule(plain, "skew i 2 k 1 -> t")
    np.testing.assert_array_equal(run_function(skewed, [x])[0], run_function(plain, [x])[0])


def test_a_skew_takes_factors_of_1_or_more():
    text = SLIDE.format(width=9, taps=3, count=9, place="i.sum + k")
    refused(text, "skew i.sum 0 k 1 -> t", "the factors must be 1 or more")


def test_loops_that_do_not_stand_in_each_other_are_not_skewed():
    refused(
        SLIDE.format(width=9, taps=3, count=9, place="i.sum + k"),
        "skew i 1 k 1 -> t",
        "'i' is not in one nest with the others",
    )


# ---- Clip ----


@pytest.mark.parametrize(("stride", "step", "pad"), [(1, 1, 1), (2, 1, 3), (1, 2, 4), (3, 3, 5)])
def test_a_clipped_loop_has_bounds_in_the_place_of_conditions(stride, step, pad):
    function, inputs, expected = sliding(stride=stride, step=step, pad=pad, taps=4, count=5)
    clipped = apply_schedule(function, "clip k")
    assert conditions(function) == 1 and conditions(clipped) == 0
    same(clipped, inputs, expected)


def test_a_condition_on_a_loop_outside_is_tested_around_it():
    text = """
    function f(x: float32[9]) -> (y: float32[9]) {
      serial i < 9 { serial k < 3 { if i >= 2 & k < i - 3 { y[i] = x[i] } } }
    }
    """
    clipped = apply_schedule(parse_function(text), "clip k")
    x = np.arange(9, dtype=np.float32)
    assert conditions(clipped) == 1
    np.testing.assert_array_equal(run_function(clipped, [x])[0][4:], x[4:])


def test_what_only_part_of_a_loop_needs_is_no_bound():
    text = """
    function f(x: float32[9]) -> (y: float32[9], z: float32[9]) {
      serial i < 9 {
        if i < 5 { y[i] = x[i] }
        z[i] = x[i; i < 5]
      }
    }
    """
    function = parse_function(text)
    assert apply_schedule(function, "clip i") == function


def test_a_mask_of_what_is_no_factor_of_a_sum_is_no_bound():
    text = "function f(x: float32[9]) -> (y: float32[9]) { serial i < 9 { y[i] = x[i; i < 5] + float32(1.0) } }"
    function = parse_function(text)
    assert apply_schedule(function, "clip i") == function


# ---- Hoist ----


def test_what_does_not_move_with_a_loop_is_tested_around_it_and_the_loop_keeps_its_bounds():
    function = parse_function("""
    function f(x: float32[5, 9], w: float32[9]) -> (y: float32[9]) {
      serial i < 9 { y[i] = float32(0.0) }
      serial r < 7 {
        serial k < 9 { y[k] = fma(x[r - 1, k; r - 1 >= 0 & r - 1 < 5 & k >= 2], w[k], y[k]) }
      }
    }
    """)
    hoisted = apply_schedule(function, "hoist k\nunroll k")
    assert "if r - 1 >= 0 & 0 - r + 5 >= 0 {" in str(hoisted) and "; k - 2 >= 0]" not in str(function)
    random = np.random.default_rng(0)
    inputs = [random.standard_normal(shape).astype(np.float32) for shape in ((5, 9), (9,))]
    np.testing.assert_array_equal(run_function(hoisted, inputs)[0], run_function(function, inputs)[0])


def test_where_all_conditions_move_with_a_loop_nothing_is_hoisted():
    function = parse_function(
        "function f(x: float32[9]) -> (y: float32[9]) { serial i < 9 { if i < 5 { y[i] = x[i] } } }"
    )
    assert apply_schedule(function, "hoist i") == function


# ---- Guard ----


def test_terms_that_a_mask_makes_zero_are_left_out_of_unrolled_loops():
    function, inputs, expected = sliding(count=9)
    guarded = apply_schedule(function, "guard y\nunroll i.sum\nunroll k")
    same(guarded, inputs, expected)
    assert str(lowered(guarded)).count("fma") == 9 * 3 - 2
    plain = apply_schedule(function, "unroll i.sum\nunroll k")
    assert str(lowered(plain)).count("fma") == 9 * 3


# ---- Unswitch ----


def test_a_copy_of_a_body_has_no_conditions():
    function, inputs, expected = sliding(width=40, count=40)
    switched = apply_schedule(function, "overlap i 8 -> i0 i\nsplit i.sum 8 -> s0 i.sum\nunswitch s0 else rest")
    (test,) = (one for one in walk_statements(switched.body) if isinstance(one, If))
    assert test.else_body is not None
    assert not any(load.mask for one in walk_statements(test.then_body) for load in loads(*statement_expressions(one)))
    assert len(list(conjuncts(test.condition))) == 2
    same(switched, inputs, expected)


def test_a_copy_of_a_body_chooses_nothing_where_the_choice_is_known():
    function = parse_function("""function f(x: float32[9]) -> (y: float32[16]) {
      serial i0 < 4 { serial i < 4 {
        y[i0 * 4 + i] = select(i0 * 4 + i < 9, x[i0 * 4 + i; i0 * 4 + i < 9], float32(1.0))
      } }
    }""")
    switched = apply_schedule(function, "unswitch i0 else rest")
    (test,) = (one for one in walk_statements(switched.body) if isinstance(one, If))
    assert "select" not in print_statement(test.then_body)
    x = np.arange(9, dtype=np.float32)
    np.testing.assert_array_equal(run_function(switched, [x])[0], np.r_[x, np.ones(7, np.float32)])


@pytest.mark.parametrize(
    ("number", "is_decided"),
    [("min(max(n - i + 1, 0), 3) - max(1 - i, 0)", True), ("min(n - i, 3)", False), ("max(2 - i, 0)", False)],
)
def test_a_copy_of_a_body_has_the_minima_and_maxima_that_follow_from_its_conditions(number, is_decided):
    number = number.replace("i", "(i0 * 4 + i)").replace("m(i0 * 4 + i)n", "min")
    function = parse_function(f"""function f(x: float32[n]) -> (y: float32[n]) {{
      serial i0 < n / 4 {{ serial i < 4 {{ serial k < 3 {{
        y[i0 * 4 + i] = y[i0 * 4 + i] + x[i0 * 4 + i + k - 1; i0 * 4 + i + k - 1 >= 0 & i0 * 4 + i + k - 1 < n]
          * cast<float32>({number})
      }} }} }}
    }}""")
    switched = apply_schedule(function, "unswitch i0 else rest")
    (test,) = (one for one in walk_statements(switched.body) if isinstance(one, If))
    text = print_statement(test.then_body)
    assert ("min(" not in text and "max(" not in text) == is_decided
    x = np.random.default_rng(0).standard_normal(16).astype(np.float32)
    zeros = np.zeros(16, np.float32)
    (found,), (plain,) = (run_function(one, [x], [zeros.shape]) for one in (switched, function))
    np.testing.assert_array_equal(found, plain)


def test_a_loop_without_conditions_of_its_own_stays_as_it_is():
    function, _, _ = sliding()
    assert apply_schedule(function, "unswitch i else rest") == function


# ---- What a loop itself changes ----


COUNTED = """function f(x: int64[8]) -> (n: int64[1], y: int64[8]) {
  serial z < 8 { y[z] = 0 }
  n[0] = x[0]
  serial i < 8 { if i < n[0] {
    y[i] = x[i]
    n[0] = n[0] - x[1]
  } }
}"""


@pytest.mark.parametrize("step", ["clip i", "hoist i", "unswitch i else r"])
def test_a_condition_on_what_a_loop_writes_is_asked_each_time(step):
    function, x = parse_function(COUNTED), np.int64([6, 1, 2, 3, 4, 5, 6, 7])
    changed = apply_schedule(function, step)
    for got, wanted in zip(run_function(changed, [x]), run_function(function, [x]), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("serial i < n[0] { n[0] = i }", "'i' writes what its extent is read from"),
        ("serial i < 9 { call count(n[0]) }", "'i' calls what may not run twice"),
    ],
)
def test_no_tiles_overlap_where_a_loop_changes_its_extent_or_calls(body, reason):
    function = parse_function(f"function f(x: int64[8]) -> (n: int64[1]) {{ n[0] = x[0] {body} }}")
    with pytest.raises(ScheduleError, match=f"^cannot 'overlap i 4 -> a b': {reason}$"):
        apply_schedule(function, "overlap i 4 -> a b")


@pytest.mark.parametrize(("step", "what"), [("clip", "bounds"), ("hoist", "conditions")])
def test_a_loop_that_lanes_share_is_not_changed_for_one_of_them(step, what):
    function = parse_function("""function f(x: float32[15]) -> (y: float32[15]) {
      vector i < 2 { serial j < 8 { if i * 8 + j < 15 { y[i * 8 + j] = x[i * 8 + j] } } }
    }""")
    message = f"cannot '{step} j': 'j' is inside of 'i', whose lanes share its {what}"
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        apply_schedule(function, f"{step} j")
