import re

import numpy as np
import pytest

from graft.core.schedule.primitives.schedule_text import apply_schedule
from graft.core.schedule.primitives.vectorize import lower_loops
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.parser import parse_function
from graft.errors import ScheduleError
from tests.core.schedule.primitives.random_steps import check_same

ABOVE = """
function above(x: float32[n], least: float32[1]) -> (y: float32[n], count: int64[1]) {
  serial z < n { y[z] = float32(0.0) }
  count[0] = 0
  serial i < n {
    let v: float32 = x[i]
    if v > least[0] {
      y[count[0]] = v
      count[0] = count[0] + 1
    }
  }
}
"""
RUNNING = """
function running(x: float32[24], p: int64[24]) -> (most: float32[1]) {
  most[0] = float32(0.0)
  serial i < 24 { if x[p[i]] > most[0] { most[0] = x[p[i]] } }
}
"""


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 30])
@pytest.mark.parametrize("least", [-1.0, 0.5, 0.9, 2.0])
@pytest.mark.parametrize(
    "steps", ["split i 8 -> part i\nskip i", "split i 8 -> part i tail rest\nskip i", "split i 1 -> part i\nskip i"]
)
def test_a_loop_of_which_no_iteration_does_anything_is_left_out(steps: str, least: float, count: int) -> None:
    function = parse_function(ABOVE)
    inputs = [np.random.default_rng(count).random(count).astype(np.float32), np.array([least], np.float32)]
    changed = apply_schedule(function, steps)
    check_same(changed, inputs, run_function(function, inputs, [(count,), (1,)]), [(count,), (1,)])


def test_a_condition_on_what_the_loop_changes_holds_for_none_until_it_holds_for_one() -> None:
    function = parse_function(RUNNING)
    random = np.random.default_rng(1)
    inputs = [random.standard_normal(24).astype(np.float32), random.permutation(24)]
    changed = apply_schedule(function, "split i 8 -> part i\nskip i")
    assert "horizontal<or>" in str(changed)
    check_same(changed, inputs, run_function(function, inputs))


def test_conditions_on_places_are_tested_where_they_hold_if_anywhere() -> None:
    function = parse_function("""function f(x: float32[n]) -> (y: float32[n]) {
      serial i < 40 { if i < n & i >= 3 - n { y[i] = x[i] } }
    }""")
    text = str(apply_schedule(function, "split i 8 -> part i\nskip i"))
    assert "if part * 8 < n" in text and "if part * 8 + 7 >= 0 - n + 3" in text
    assert "horizontal" not in text


@pytest.mark.parametrize(
    ("body", "steps", "reason"),
    [
        ("serial i < 8 { y[i] = x[i] }", "skip i", "'i' does more than what a condition leaves out"),
        ("serial i < n { if x[i] > y[0] { y[i] = x[i] } }", "skip i", "the extent of 'i' is not a number"),
        ("serial i < 0 { if x[i] > y[0] { y[i] = x[i] } }", "skip i", "'i' has no iterations"),
        ("serial i < 8 { if x[i] > y[i] { y[i] = x[i] } }", "unroll i\nskip i",
         "'i' is unrolled already; skip it before"),
        (
            "serial j < 4 { serial i < 8 { if x[i] > float32(1.5) { y[j] = x[i] } } }", "vectorize j\nskip i",
            "'i' is inside of 'j', whose lanes share its conditions",
        ),
        (
            "serial i < 4 { serial j < 4 { if x[i * 4 + j] > float32(0.0) { y[i * 4 + j] = x[j] } } }",
            "skip j\nskip i", "conditions in 'i' are of vectors already",
        ),
        (
            "serial i < 8 { if x[p[0]] > y[0] { p[0] = 1 } }", "skip i",
            "where the condition reads 'x' depends on what 'i' writes",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_skipped_is_refused(body: str, steps: str, reason: str) -> None:
    text = f"function f(x: float32[n]) -> (y: float32[n], p: int64[1]) {{ p[0] = 0 {body} }}"
    with pytest.raises(ScheduleError, match=f"^cannot 'skip i': {re.escape(reason)}$"):
        apply_schedule(parse_function(text), steps)


def test_what_is_skipped_may_be_lowered() -> None:
    function = parse_function(RUNNING)
    changed = apply_schedule(function, "split i 8 -> part i\nskip i")
    assert str(lower_loops(changed.body)) == str(changed.body)
