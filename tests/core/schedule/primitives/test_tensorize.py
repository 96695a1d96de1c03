import re

import numpy as np
import pytest

from graft.core.schedule.primitives.schedule_text import apply_schedule
from graft.core.schedule.primitives.tensorize import Tensorize
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.parser import parse_function
from graft.errors import ScheduleError
from tests.core.schedule.primitives.nests import DOT, check, nest


def test_a_loop_that_means_an_instruction_becomes_it():
    stages, function = nest(DOT)
    tensorized = apply_schedule(function, "split k 4 -> k0 k1\ntensorize k1 dot4_u8s8")
    assert "dot4_u8s8(c[i, j], a[i, ramp(k0 * 4, 1, 4)], b[j, ramp(k0 * 4, 1, 4)])" in str(tensorized)
    check(stages, tensorized)


def test_a_block_instruction_takes_the_addresses_of_operands_that_lie_in_one_piece():
    block = parse_function("""
    function gemm(a: int8[1, 4], b: int8[4, 4]) -> (c: int32[1, 4]) {
      serial n < 4 { serial k < 4 { c[0, n] = c[0, n] + cast<int32>(a[0, k]) * cast<int32>(b[n, k]) } }
    }
    """)
    stages, function = nest("""
    input a: int8[3, 2, 4]
    input b: int8[2, 4, 4]
    stage c: int32[3, 4] at (i, n) = reduce add over o < 2, k < 4 from int32(0):
      cast<int32>(a[i, o, k]) * cast<int32>(b[o, n, k])
    """)
    function = apply_schedule(function, "reorder o n")
    changed = Tensorize("n", "gemm", {"gemm": block}).apply(function)
    assert "call gemm(c[i, 0], a[i, o, 0], b[o, 0, 0])" in str(changed)
    inputs = [np.arange(24, dtype=np.int8).reshape(3, 2, 4), np.arange(32, dtype=np.int8).reshape(2, 4, 4)]

    def gemm(c, a, b):
        c[:4] += b[:16].reshape(4, 4).astype(np.int32) @ a[:4].astype(np.int32)

    expected = run_stages(stages, dict(zip(function.input_buffers, inputs, strict=True)))[function.output_buffers[0]]
    np.testing.assert_array_equal(run_function(changed, inputs, externs={"gemm": gemm})[0], expected)


def test_conditions_that_loops_do_not_change_stay_around_their_instruction():
    stages, function = nest(DOT)
    tensorized = apply_schedule(
        function, "split i 3 -> i0 i1\nsplit k 4 -> k0 k1\nreorder i0 i1 j k0 k1\ntensorize k1 dot4_u8s8"
    )
    assert re.search(r"if i1 < .*\{\n +c\[i0 \* 3 \+ i1, j\] = dot4_u8s8", str(tensorized))
    check(stages, tensorized)


def test_lanes_of_a_vector_have_no_instructions_of_their_own():
    _, function = nest(DOT)
    message = r"cannot 'tensorize k1 dot4_u8s8': 'j' is a vector, whose lanes have no instructions of their own$"
    with pytest.raises(ScheduleError, match=message):
        apply_schedule(function, "split k 4 -> k0 k1\nvectorize j\ntensorize k1 dot4_u8s8")


SUM = parse_function("""function sum(a: int32[4]) -> (c: int32[1]) { serial k < 4 { c[0] = c[0] + a[k] } }""")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("serial k < 4 { y[0] = y[0] + x[k] }", ""),
        ("serial k < 4 { if x[0] > int32(0) { y[0] = y[0] + x[k] } }", ""),
        ("serial k < 4 { if y[0] > int32(0) { y[0] = y[0] + x[k] } }", "'k' is not what 'sum' means: a if stands"),
        ("serial k < 4 { y[0] = y[0] + y[k] }", "'y' is what is computed, and an operand or the place of one, too"),
        ("serial k < 4 { y[0] = y[0] + x[cast<int64>(y[0]) + k] }", "'y' is what is computed, and an operand or"),
    ],
)
def test_an_instruction_reads_nothing_of_what_it_writes_but_its_sum(body, reason):
    function = parse_function(f"function f(x: int32[8]) -> (y: int32[8]) {{ {body} }}")
    if not reason:
        assert "call sum(y[0], x[0])" in str(Tensorize("k", "sum", {"sum": SUM}).apply(function))
        return
    with pytest.raises(ScheduleError, match=f"^cannot 'tensorize k sum': {re.escape(reason)}"):
        Tensorize("k", "sum", {"sum": SUM}).apply(function)


GROUP = parse_function("""
function pairs(a: int32[4, m], b: int32[m]) -> (c: int32[4, 2]) {
  parallel lane < 4 {
    serial h < 2 { serial k < 2 { c[lane, h] = c[lane, h] + a[lane % 2 * 2 + h, k] * b[k + lane / 2] } }
  }
}
""")
GROUPS = """
function f(x: int32[4, 6], y: int32[7]) -> (z: int32[8, 2]) {
  parallel b < 1 bind "block.x" {
    allocate sums: int32[8, 2] in register
    parallel p < 8 { serial o < 2 { sums[p, o] = int32(0) } }
    serial s < 3 {
      parallel u < 8 {
        serial h < 2 {
          serial k < 2 { sums[u, h] = sums[u, h] + x[u % 2 * 2 + h, s * 2 + k] * y[s * 2 + k + u % 4 / 2] }
        }
      }
    }
    parallel q < 8 { serial o < 2 { z[q, o] = sums[q, o] } }
  }
}
"""
STEP = Tensorize("h", "pairs", {"pairs": GROUP}, ("u",))


def test_units_of_a_group_pass_their_own_parts_and_the_same_other_operands():
    changed = STEP.apply(parse_function(GROUPS))
    assert str(STEP) == "tensorize h pairs by u"
    assert "call pairs(sums[u, 0], x[0, s * 2], y[s * 2])" in str(changed)
    assert "call pairs(sums[0], x[0, s * 2], y[s * 2])" in str(apply_schedule(changed, "spmd b 8 thread.x -> thread"))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("+ u % 4 / 2]", "+ u % 8 / 2 % 3]", "'y' is not gone through in steps of one"),
        ("y[s * 2 + k + u % 4 / 2]", "y[s * 2 + k + u % 4 / 2 + u % 4]", "'y' is not gone through in steps of one"),
        ("x[u % 2 * 2 + h,", "x[u % 2 + h,", "'x' is not gone through in steps of one"),
        ("sums[u, h] = sums[u, h]", "sums[7 - u, h] = sums[7 - u, h]", "'sums' is not gone through in steps of one"),
        ("parallel u < 8 {", "parallel u < 7 {", "groups of 4 iterations of 'u' do not all come to 'h' together"),
        ("parallel u < 8 {", "parallel u < 8 { if u < 5 {", "groups of 4 iterations of 'u' do not all come to 'h'"),
        ("parallel u < 8 {", "serial u < 8 {", "groups of 4 iterations of 'u' do not all come to 'h' together"),
    ],
)
def test_what_units_of_a_group_do_not_do_together_is_refused(old, new, reason):
    text = GROUPS.replace(old, new).replace("        }\n      }", f"        }} {'}' * new.count(' if ')}\n      }}")
    with pytest.raises(ScheduleError, match=f"^cannot 'tensorize h pairs by u': .*{re.escape(reason)}"):
        STEP.apply(parse_function(text))
