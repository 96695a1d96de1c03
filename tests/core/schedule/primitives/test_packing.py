import re

import numpy as np
import pytest

from graft.core.schedule.primitives.packing import Pack
from graft.core.schedule.primitives.schedule_text import apply_schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.parser import parse_function
from graft.errors import ScheduleError

SCALE = """
function f(x: float32[{n}, 3], w: float32[{n}, 3]) -> (y: float32[{n}, 3]) {{
  serial i < {n} {{ serial j < 3 {{ y[i, j] = x[i, j] * w[i, j; i < {n}] }} }}
}}
"""


@pytest.mark.parametrize(("axis", "width"), [(0, 4), (0, 16), (1, 2), (1, 1)])
@pytest.mark.parametrize("n", [5, 8])
def test_a_constant_in_panels_is_read_in_their_order(n, axis, width):
    loop = "ij"[axis]
    function = parse_function(SCALE.format(n=n))
    packed = apply_schedule(function, f"split {loop} {width} -> {loop}0 {loop}\npack w {axis} {width} -> panels")
    shape = [int(extent.value) for extent in packed.input_buffers[1].shape]
    assert shape == [-(-[n, 3][axis] // width), [n, 3][1 - axis], width]
    x, w = (np.arange(3 * n, dtype=np.float32).reshape(n, 3) + one for one in (1, 5))
    contents = Pack("w", axis, width, "panels").contents(w)
    assert contents.shape == tuple(shape) and contents.sum() == w.sum()
    np.testing.assert_array_equal(run_function(packed, [x, contents])[0], x * w)


def test_zeros_of_the_last_panel_stand_for_a_mask():
    function = apply_schedule(parse_function(SCALE.format(n=5)), "pack w 0 4 -> panels")
    assert "panels[i / 4, j, i % 4]" in str(function)


def test_a_mask_stays_where_places_lie_behind_the_last_panel():
    function = parse_function("""
    function f(w: float32[5]) -> (y: float32[3, 5]) {
      serial i < 3 { serial j < 5 { y[i, j] = w[i * 2 + j; i * 2 + j < 5] } }
    }
    """)
    w = np.arange(5, dtype=np.float32)
    contents = Pack("w", 0, 4, "panels").contents(w)
    (made,) = run_function(apply_schedule(function, "pack w 0 4 -> panels"), [contents])
    np.testing.assert_array_equal(made, run_function(function, [w])[0])


def test_masks_of_lanes_stay():
    function = parse_function("""
    function f(w: float32[5]) -> (y: float32[8]) {
      y[ramp(0, 1, 8)] = w[ramp(0, 1, 8); ramp(0, 1, 8) < broadcast(5, 8)]
    }
    """)
    w = np.arange(5, dtype=np.float32)
    (made,) = run_function(apply_schedule(function, "pack w 0 4 -> panels"), [Pack("w", 0, 4, "p").contents(w)])
    np.testing.assert_array_equal(made, [0, 1, 2, 3, 4, 0, 0, 0])


def test_what_an_instruction_reads_is_not_packed_behind_it():
    text = "function f(w: float32[6]) -> (y: float32[6]) { serial i < 3 { call twice(y[i * 2], w[i * 2]) } }"
    with pytest.raises(ScheduleError, match=r"'twice' reads 'w' as it lies$"):
        apply_schedule(parse_function(text), "pack w 0 4 -> panels")


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("pack y 0 4 -> p", "'y' is no input"),
        ("pack w 2 4 -> p", "'w' has 2 axes, and panels have 1 to 1024 elements"),
        ("pack v 0 4 -> p", "no buffers are called 'v'; there are x, w, y"),
    ],
)
def test_only_inputs_are_packed_along_axes_that_they_have(step, reason):
    with pytest.raises(ScheduleError, match=f"^{re.escape(f'cannot {step!r}: {reason}')}$"):
        apply_schedule(parse_function(SCALE.format(n=5)), step)
