from dataclasses import replace

import numpy as np
import pytest

from graft.core.schedule.loops.inline import inline_stages
from graft.core.schedule.primitives.schedule_text import apply_schedule
from graft.core.schedule.primitives.vectorize import guarded, lower_loops, vectorize_expression
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.ir import (
    Binary,
    Broadcast,
    Buffer,
    Constant,
    Function,
    Load,
    Ramp,
    Variable,
)
from graft.core.tensor_ir.parser import parse_function, parse_stages
from graft.core.tensor_ir.printer import print_expression, print_stages
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.types import FLOAT32, INT64
from graft.errors import ScheduleError
from graft.runtime.dtypes import numpy_dtype


def lowered(body, head="x: float32[8]) -> (y: float32[8]"):
    function = parse_function(f"function f({head}) {{\n{body}\n}}\n")
    return Function("f", function.parameters, 1, lower_loops(function.body))


def text(function):
    return "\n".join(line[2:] for line in str(function).splitlines()[1:-1])


def test_a_vector_loop_becomes_ramps_and_broadcasts():
    function = lowered("vector i < 8 { y[i] = x[i] * x[0] + cast<float32>(i) }")
    assert text(function) == ("y[ramp(0, 1, 8)] = x[ramp(0, 1, 8)] * broadcast(x[0], 8) + cast<float32>(ramp(0, 1, 8))")
    x = np.arange(8, dtype=np.float32) + 1
    np.testing.assert_array_equal(run_function(function, [x])[0], x + np.arange(8))


def test_a_branch_inside_a_vector_loop_becomes_masks():
    function = lowered("vector i < 4 { if i < 3 { y[i] = x[i] } else { y[i] = float32(7.0) } }")
    assert text(function) == (
        "y[ramp(0, 1, 4); ramp(0, 1, 4) < broadcast(3, 4)] = x[ramp(0, 1, 4); ramp(0, 1, 4) < broadcast(3, 4)]\n"
        "y[ramp(0, 1, 4); not(ramp(0, 1, 4) < broadcast(3, 4))] = broadcast(float32(7.0), 4)"
    )
    verify(function)


def test_a_let_inside_a_vector_loop_becomes_a_vector():
    function = lowered("vector i < 4 { let v: float32 = x[i]\n y[i] = v * v }")
    assert text(function) == "let v: float32x4 = x[ramp(0, 1, 4)]\ny[ramp(0, 1, 4)] = v * v"


def test_unrolled_loops_are_copied_with_fresh_variables():
    function = lowered("unrolled i < 2 { serial k < 4 { y[i * 4 + k] = x[k] } }")
    assert text(function) == "serial k < 4 {\n  y[0 * 4 + k] = x[k]\n}\nserial k_1 < 4 {\n  y[1 * 4 + k_1] = x[k_1]\n}"
    verify(function)


def test_all_lanes_cannot_store_to_one_element():
    with pytest.raises(AssertionError, match=r"^all lanes store to one element of 'y'"):
        lowered("vector i < 4 { y[0] = x[i] }")


def test_one_element_for_many_masked_lanes_is_read_once():
    x = Buffer("x", "float32", (Constant(8, INT64),))
    i = Variable("i")
    mask = Binary("lt", Ramp(Constant(0, INT64), 1, 4), Broadcast(Constant(2, INT64), 4))
    value = vectorize_expression(Binary("mul", Load(x, (i,)), Constant(2.0, FLOAT32)), {}, mask)
    assert print_expression(value) == "x[i; horizontal<or>(ramp(0, 1, 4) < broadcast(2, 4))] * float32(2.0)"


STAGES = """\
input x: float32[4, 5]
stage a: float32[4, 5] at (i, j) = x[i, j] * float32(2.0)
stage b: float32[5, 4] at (p, q) = a[q, p] + float32(1.0)
stage c: float32[5, 6] at (m, n) = b[m, n - 1; n >= 1 & n < 5]
"""


def test_inlining_substitutes_indices_and_carries_masks():
    stages = parse_stages(STAGES)
    inlined = inline_stages(stages, [stages[-1].buffer])
    assert print_stages(inlined) == (
        "input x: float32[4, 5]\n"
        "stage c: float32[5, 6] at (m, n) = select(n >= 1 & n < 5, x[n - 1, m; n >= 1 & n < 5] * float32(2.0) + "
        "float32(1.0), float32(0.0))\n"
    )
    x = next(load.buffer for load in [stages[0].value.left])
    data = np.random.default_rng(0).standard_normal((4, 5), np.float32)
    before, after = (run_stages(part, {x: data})[stages[-1].buffer] for part in (stages, inlined))
    np.testing.assert_array_equal(before, after)


def test_inlining_keeps_outputs_and_what_is_not_wanted():
    stages = parse_stages(STAGES)
    kept = inline_stages(stages, [stages[0].buffer, stages[-1].buffer])
    assert [stage.buffer.name for stage in kept] == ["a", "c"]
    kept = inline_stages(stages, [stages[-1].buffer], wanted=lambda stage: stage.buffer.name == "a")
    assert [stage.buffer.name for stage in kept] == ["b", "c"]


def test_lanes_that_are_off_stay_inside_of_memory_of_their_own():
    text = """
    function f(x: float32[3]) -> (y: float32[3]) {
      vector i < 4 { if i < 3 {
        allocate t: float32[3] in scratch
        serial j < 3 { t[j] = x[j] }
        y[i] = t[i] + t[2 - i]
      } }
    }"""
    function = parse_function(text)
    made = Function("f", function.parameters, 1, lower_loops(function.body))
    x = np.float32([1, 2, 4])
    np.testing.assert_array_equal(run_function(made, [x])[0], x + x[::-1])
    assert "t[j, ramp(0, 1, 4)] =" in str(made)  # all lanes may store there: it needs no mask


GROUPS = """function f(a: int32[8], b: int32[8, 16], q: bfloat16[16]) -> (y: float32[16]) {
  serial j < 16 {
    y[j] = float32(0.0)
    serial k < 8 { y[j] = dot2_bf16(y[j], bitcast<bfloat16>(LEFT), bitcast<bfloat16>(b[k, j])) }
  }
}"""


@pytest.mark.parametrize("left", ["a[k]", "bitcast<int32>(q[ramp(2 * k, 1, 2)])"])
def test_a_word_that_all_lanes_share_is_a_group_in_each(left):
    function = parse_function(GROUPS.replace("LEFT", left))
    vectors = apply_schedule(function, "vectorize j")
    vectors = replace(vectors, body=lower_loops(vectors.body))
    verify(vectors)
    assert "broadcast(" in str(vectors)
    random = np.random.default_rng(0)
    pairs = random.standard_normal((8 + 128 + 8, 2)).astype(numpy_dtype("bfloat16"))
    words = pairs.view(np.int32)[:, 0]
    inputs = [words[:8], words[8:136].reshape(8, 16), pairs[136:].reshape(16)]
    np.testing.assert_array_equal(run_function(vectors, inputs)[0], run_function(function, inputs)[0])


def test_words_that_lanes_share_are_not_switched_off_by_lanes():
    left = "bitcast<int32>(q[ramp(2 * k, 1, 2)])"
    text = (
        GROUPS.replace("LEFT", left).replace("serial k < 8 {", "serial k < 8 { if j < 3 {").replace(") }\n", ") } }\n")
    )
    with pytest.raises(ScheduleError, match="a condition in 'j' would switch off vectors that its lanes share"):
        apply_schedule(parse_function(text), "vectorize j")


def test_copies_side_by_side_share_a_condition_that_is_the_same_for_all():
    function = parse_function("""function f(x: float32[4], n: int64[1]) -> (y: float32[4]) {
      serial i < 4 { if n[0] < 2 { y[i] = x[i] } else { y[i] = float32(0.0) } }
    }""")
    changed = apply_schedule(function, "jam i")
    assert str(changed).count("if ") == 1
    x = np.arange(4, dtype=np.float32)
    for n in (1, 2):
        inputs = [x, np.array([n])]
        np.testing.assert_array_equal(run_function(changed, inputs)[0], run_function(function, inputs)[0])


def test_what_is_guarded_reads_only_where_its_mask_is_on():
    i, j, row = Variable("i"), Variable("j"), Buffer("x", "float32", (Constant(4, INT64),))
    value = Binary("add", Load(row, (i,)), Load(row, (j,)))
    mask = Binary("lt", i, Constant(3, INT64))
    assert print_expression(guarded(value, mask, (i,))) == "x[i; i < 3] + x[j]"
