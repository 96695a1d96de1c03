"""Terms that a condition leaves out, added as zeros: which conditions become masks, and that sums stay the same."""

import re

import numpy as np
import pytest

from graft.core.schedule.primitives.schedule_text import apply_schedule, parse_schedule, print_schedule
from graft.core.schedule.primitives.vectorize import lowered
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import If
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.visit import walk_statements
from graft.errors import ScheduleError

DOT = """function f(a: {dtype}[3, n], w: {dtype}[n]) -> (c: {dtype}[3]) {{
  serial i < 3 {{ c[i] = {dtype}({zero}) }}
  serial j < 3 {{ serial k < n {{ {added} }} }}
}}"""
FORMS = {
    "fma": ("float32", "c[j] = fma(a[j, k], w[k], c[j])"),
    "a product and a sum": ("float32", "c[j] = c[j] + a[j, k] * w[k]"),
    "whole numbers": ("int32", "c[j] = c[j] + a[j, k] * w[k]"),
}
ALONG = "split k 4 -> v k\nrfactor c at k in register -> parts around v\nmask parts\n"


def function_of(form: str):
    dtype, added = FORMS[form]
    return parse_function(DOT.format(dtype=dtype, zero="0.0" if "float" in dtype else "0", added=added)), dtype


def test_the_text_is_read_back():
    assert print_schedule(parse_schedule("mask c\n")) == "mask c\n"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("extent", [0, 1, 3, 4, 11])
def test_lanes_that_are_off_add_zeros(form, extent):
    function, dtype = function_of(form)
    steps = ALONG + "vectorize parts.in\nvectorize k\nhorizontal parts.turn"
    changed = lowered(apply_schedule(function, steps))
    assert not any(isinstance(one, If) for one in walk_statements(changed.body))
    assert "select(" not in str(changed)  # no lane chooses between the sum and what it was
    random = np.random.default_rng(extent)
    a, w = (random.integers(-9, 9, shape).astype(dtype) for shape in ((3, extent), extent))
    (wanted,) = run_function(function, [a, w], [(3,)])
    np.testing.assert_array_equal(run_function(changed, [a, w], [(3,)])[0], wanted)


def test_what_lies_behind_a_row_is_not_read():
    """Were one factor alone masked, infinity times zero would be no number."""
    function, _ = function_of("fma")
    changed = apply_schedule(function, ALONG)
    w = np.array([1, 2, 3, np.inf, 1, np.inf], np.float32)
    a = np.ones((3, 6), np.float32)
    (found,) = run_function(changed, [a, w], [(3,)])
    assert np.isposinf(found).all()


def test_a_mask_is_added_to_another():
    function = parse_function("""function f(x: float32[9], w: float32[9]) -> (c: float32[1]) {
      c[0] = float32(0.0)
      serial k < 9 { if k < 7 { c[0] = fma(x[k + 1; k < 5], w[k], c[0]) } }
    }""")
    masked = apply_schedule(function, "mask c")
    assert "x[k + 1; k < 5 & k < 7]" in str(masked) and "w[k; k < 7]" in str(masked)
    arrays = [np.arange(9, dtype=np.float32), np.full(9, 2, np.float32)]
    assert run_function(masked, arrays)[0] == run_function(function, arrays)[0] == 30


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("serial k < 4 { c[k] = x[k] }", "nothing that is added to 'c' has a condition of its own"),
        ("serial k < 4 { if k < 3 { c[k] = x[k] } }", "to 'c' something else is added than a product of two elements"),
        (
            "serial k < 4 { if k < 3 { c[k] = c[k] + x[k] * c[k + 1] } }",
            "to 'c' something else is added than a product of two elements",
        ),
        ("serial k < 4 { if x[k] < float32(1.0) { c[k] = c[k] + x[k] * x[k] } }", "the condition 'x[k] < "),
        (
            "serial k < 4 { if k < 3 { c[0] = c[0] + x[k] * x[cast<int64>(x[k])] } }",
            "places of factors are read from memory",
        ),
        (
            "serial k < 9 { if k < 4 { c[k] = c[k] + x[0] * x[1] } }",
            "'k' may lie outside of 'c' where 'k < 4' does not hold",
        ),
        (
            "parallel k < 4 { if k < 1 { c[0] = c[0] + x[k] * x[k] } }",
            "iterations of 'k' that add nothing may write what others add to",
        ),
    ],
)
def test_why_it_is_refused_is_said(body, reason):
    function = parse_function(f"function f(x: float32[9]) -> (c: float32[4]) {{ {body} }}")
    with pytest.raises(ScheduleError, match=re.escape(f"cannot 'mask c': {reason}")):
        apply_schedule(function, "mask c")
