"""Copies in a layout of their own, and memory with room behind its rows."""

import numpy as np
import pytest

from graft.core.schedule.primitives.schedule_text import apply_schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.parser import parse_function
from graft.errors import ScheduleError
from tests.core.schedule.primitives.random_steps import check_same

MOVED = """function moved(x: float32[50, 100]) -> (y: float32[100, 50]) {
  serial s < 50 { serial a < 100 { y[a, s] = x[s, a] } }
}"""
TILES = """
split s 32 -> s.tile s
split a 32 -> a.tile a
reorder s.tile a.tile a s
fuse s.tile a.tile -> tile
bind tile block.x
reindex_cache_read x at tile in shared -> near over s a
pad near 1 33
"""
WINDOWS = """function windows(x: float32[2, 6], w: float32[2, 3]) -> (y: float32[4]) {
  serial z < 4 { y[z] = float32(0.0) }
  serial i < 4 {
    serial k < 6 {
      let c: int64 = k / 3
      let q: int64 = k % 3
      if i + q < 5 { y[i] = fma(x[c, i + q], w[c, q], y[i]) }
    }
  }
}"""


def numbers(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def test_a_transposition_through_tiles_is_a_list_of_steps():
    steps = "fuse near.0 near.1 -> fill\nfuse a s -> empty\nparallel fill\nparallel empty\nspmd tile 256 thread.x -> t"
    changed, x = apply_schedule(parse_function(MOVED), TILES + steps), numbers(50, 100)
    check_same(changed, [x], [x.T])
    text = str(changed)
    assert "allocate near: float32[32, 33] in shared" in text and text.count('barrier "block"') == 1


def test_axes_of_a_copy_are_loops_whatever_the_index():
    """Windows side by side (im2col): two axes that are one loop, under the condition of the reader."""
    function, given = parse_function(WINDOWS), [numbers(2, 6), numbers(2, 3)]
    changed = apply_schedule(function, "split i 2 -> i0 i1\nreindex_cache_read x at i0 in scratch -> near over k i1")
    assert "allocate near: float32[6, 2] in scratch" in str(changed)
    check_same(changed, given, run_function(function, given))


@pytest.mark.parametrize(
    ("function", "step", "reason"),
    [
        (MOVED, "reindex_cache_read x at s in shared -> near over s", "there is no loop 's'; there are a"),
        (
            WINDOWS, "reindex_cache_read x at i in shared -> near over c", "there is no loop 'c'; there are k",
        ),
        (
            WINDOWS.replace("serial i < 4 {", "serial o < 1 { serial i < 4 {") + " }",
            "reindex_cache_read x at o in shared -> near over k",
            "what is read of 'x' depends on 'i', which is no axis of the copy",
        ),
        (
            "function f(x: float32[4]) -> (y: float32[4]) "
            "{ serial o < 1 { serial i < 4 { y[i] = x[i] } serial j < 4 { y[j] = float32(1.0) } } }",
            "reindex_cache_read x at o in shared -> near over i j",
            "'x' is not read in 'j'",
        ),
        (
            "function f(x: float32[4]) -> (y: float32[3]) { serial o < 1 { serial i < 3 { y[i] = x[i] + x[i + 1] } } }",
            "reindex_cache_read x at o in shared -> near over i",
            "'x' is read at 2 places inside of 'o'",
        ),
        (  # one place under two conditions
            "function f(x: float32[4]) -> (y: float32[4]) "
            "{ serial o < 1 { serial i < 4 { if i < 3 { y[i] = x[i] } if i > 1 { y[i] = x[i] } } } }",
            "reindex_cache_read x at o in shared -> near over i",
            "'x' is read at 2 places inside of 'o'",
        ),
        (
            "function f(x: float32[4]) -> (y: float32[4]) { serial o < 1 { serial i < 4 { y[i] = y[i] + x[i] } } }",
            "reindex_cache_read y at o in shared -> near over i",
            "'y' is written inside of 'o'",
        ),
        (
            "function f(x: float32[4], n: int64[4]) -> (m: int64[4], y: float32[4]) "
            "{ serial o < 1 { serial i < 4 { m[i] = n[i] y[i] = x[m[i]] } } }",
            "reindex_cache_read x at o in shared -> near over i",
            "what tells the places in 'x' is written inside of 'o'",
        ),
    ],
)  # fmt: skip
def test_copies_that_would_hold_something_else_are_refused(function, step, reason):
    with pytest.raises(ScheduleError) as caught:
        apply_schedule(parse_function(function), step)
    assert str(caught.value) == f"cannot '{step}': {reason}"


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("pad x 1 128", "'x' lies as its caller says"),
        ("pad near 2 33", "dimension 2 is out of range for 'near' of rank 2"),
        ("pad near 0 31", "dimension 0 of 'near' is not known to have 31 or fewer elements"),
    ],
)
def test_rows_that_cannot_be_longer_are_refused(step, reason):
    with pytest.raises(ScheduleError) as caught:
        apply_schedule(parse_function(MOVED), TILES + step)
    assert str(caught.value) == f"cannot '{step}': {reason}"
