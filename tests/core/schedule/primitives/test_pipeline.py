import re

import numpy as np
import pytest

from graft.core.schedule.primitives.schedule_text import apply_schedule
from graft.core.schedule.primitives.vectorize import lowered
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import Allocate
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.visit import walk_statements
from graft.errors import ScheduleError
from tests.core.schedule.primitives.nests import check, matmul
from tests.core.schedule.primitives.random_steps import EXTERNS


def test_double_buffering_fills_the_next_place_while_this_one_is_used():
    stages, function = matmul(4, 4, 12)
    steps = "split k 4 -> k0 k1\nreorder k0 i j k1\ncache_read a at k0 in scratch -> near\npipeline k0 near"
    piped = apply_schedule(function, steps)
    (near,) = [one.buffer for one in walk_statements(piped.body) if isinstance(one, Allocate)]
    assert [int(extent.value) for extent in near.shape] == [2, 4, 4]
    check(stages, piped)


TILES = """function tiles(x: float32[n, 3, 8]) -> (y: float32[3, 8]) {
  parallel b < 3 bind "block.x" {
    allocate sums: float32[4, 8] in register
    parallel p < 4 { serial z < 8 { sums[p, z] = float32(0.0) } }
    serial s < n {
      allocate near: float32[8] in shared
      parallel i < 2 { vector l < 4 { near[i * 4 + l] = x[s, b, i * 4 + l] } }
      parallel q < 4 { serial k < 8 { sums[q, k] = sums[q, k] + near[k] * float32(2.0) } }
    }
    parallel r < 4 { serial o < 2 { y[b, r * 2 + o] = sums[r, r * 2 + o] } }
  }
}"""


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_copies_of_later_iterations_are_under_way_behind_one_barrier(stages):
    steps = f"spmd b 4 thread.x -> t\npipeline_async s {stages} near"
    changed = apply_schedule(lowered(parse_function(TILES)), steps)
    text = str(changed)
    assert f"allocate near: float32[{stages}, 8] in shared" in text and text.count('barrier "block"') == 1
    assert f"call copy_async(near[(s + {stages - 1}) % {stages}, t * 4], x[s + {stages - 1}, b, t * 4], 16)" in text
    assert text.count("call commit_copies()") == 2 and f"call wait_copies({stages - 2})" in text
    for count in range(5):
        x = np.random.default_rng(0).standard_normal((count, 3, 8)).astype(np.float32)
        wanted = run_function(parse_function(TILES), [x])[0]
        assert (run_function(changed, [x], externs=EXTERNS)[0] == wanted).all()


def test_what_a_mask_leaves_out_is_stored_at_once_and_what_is_computed_is_too():
    masked = TILES.replace("i * 4 + l] }", "i * 4 + l; s < 2] }")
    for text, told in ((masked, "else"), (masked.replace("x[s", "float32(2.0) * x[s"), "float32(2.0)")):
        changed = apply_schedule(lowered(parse_function(text)), "spmd b 4 thread.x -> t\npipeline_async s 3 near")
        assert told in str(changed) and ("copy_async" in str(changed)) == (told == "else")
        x = np.random.default_rng(0).standard_normal((5, 3, 8)).astype(np.float32)
        wanted = run_function(parse_function(text), [x])[0]
        assert (run_function(changed, [x], externs=EXTERNS)[0] == wanted).all()


def test_a_copy_of_one_element_without_axes_is_under_way_too():
    text = """function f(x: float32[]) -> (y: float32[3]) {
      allocate near: float32[] in shared
      serial s < 3 { near[] = x[]  y[s] = near[] + float32(1.0) }
    }"""
    changed = apply_schedule(parse_function(text), "pipeline_async s 2 near")
    assert "call copy_async(near[(s + 1) % 2], x[], 4)" in str(changed)
    (y,) = run_function(changed, [np.float32(2)], externs=EXTERNS)
    assert (y == 3).all()


def test_one_place_hides_no_copy():
    with pytest.raises(ScheduleError, match="with one place no copy is under way while it is used"):
        apply_schedule(parse_function(TILES), "spmd b 4 thread.x -> t\npipeline_async s 1 near")


def test_a_barrier_within_what_uses_the_caches_stays():
    text = """function f(x: float32[6, 4]) -> (y: float32[6, 4]) {
      parallel b < 1 bind "block.x" {
        allocate near: float32[4] in shared
        allocate far: float32[4] in shared
        parallel t < 4 bind "thread.x" {
          serial s < 6 {
            near[t] = x[s, t]
            barrier "block"
            far[t] = near[3 - t]
            barrier "block"
            y[s, t] = far[3 - t]
            barrier "block"
          }
        }
      }
    }"""
    x = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    piped = apply_schedule(parse_function(text), "pipeline s near")
    assert (run_function(piped, [x])[0] == x).all()


@pytest.mark.parametrize(
    ("before", "body", "behind", "reason"),
    [
        ("", "y[0] = x[i] z[i] = y[0]", "", "'y' is no memory that is allocated in 'i' or around it"),
        ("{t}", "t[0] = x[i] z[i] = t[0]", "y[0] = t[0]", "'t' is used outside of 'i'"),
        ("{t}", "t[i] = x[i] z[i] = t[max(i - 1, 0)]", "", "iterations of 'i' do not fill 't' alike"),
        ("{t}", "if i < 1 { t[0] = x[i] } z[i] = t[0]", "", "iterations of 'i' do not fill 't' alike"),
        ("{t}", "t[0] = x[i] + t[0] z[i] = t[0]", "", "iterations of 'i' do not fill 't' alike"),
    ],
)
def test_a_cache_keeps_nothing_from_one_iteration_to_the_next(before, body, behind, reason):
    before = before.format(t="allocate t: float32[4] in scratch")
    function = parse_function(
        f"function f(x: float32[4]) -> (y: float32[1], z: float32[4]) {{ {before} serial i < 4 {{ {body} }} {behind} }}"
    )
    step = f"pipeline i {'t' if before else 'y'}"
    with pytest.raises(ScheduleError, match=f"^{re.escape(f'cannot {step!r}: {reason}')}$"):
        apply_schedule(function, step)
