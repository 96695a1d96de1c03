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
