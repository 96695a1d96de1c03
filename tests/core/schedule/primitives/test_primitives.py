"""What primitives make of loops, what they refuse, and that any sequence of them keeps the result."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.schedule.primitives.plain_nest import plain_nest
from graft.core.schedule.primitives.schedule_text import apply_schedule, parse_schedule, print_schedule
from graft.core.schedule.primitives.step import loops
from graft.core.schedule.primitives.vectorize import lower_loops
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.ir import Allocate, If
from graft.core.tensor_ir.parser import parse_function, parse_stages
from graft.core.tensor_ir.printer import print_expression
from graft.core.tensor_ir.rewriting.simplify import simplify_statement
from graft.core.tensor_ir.visit import loads, walk_statements
from graft.errors import ScheduleError

MATMUL = """
input a: {t}[{m}, {k}]
input b: {t}[{k}, {n}]
stage c: {t}[{m}, {n}] at (i, j) = reduce add over k < {k} from {t}({zero}): a[i, k] * b[k, j]
"""
CHAIN = """
input x: float32[{m}, {n}]
stage p: float32[{m}, {n}] at (i, j) = x[i, j] * float32(2.0) + float32(1.0)
stage y: float32[{m}, {n}] at (u, v) = p[u, v] + p[{m} - 1 - u, v; u < {m}]
"""
WINDOW = """
input x: float32[{m}, {n}]
stage y: float32[{m}] at (i) = reduce max over d < 3 from float32(-inf): x[i, d + 0; d < {n}]
  then r: float32 = r * float32(0.5)
"""


def nest(text):
    stages = parse_stages(text)
    written = [stage.buffer for stage in stages]
    read = dict.fromkeys(load.buffer for stage in stages for load in loads(stage.value))
    inputs = [buffer for buffer in read if buffer not in written]
    return stages, plain_nest("f", stages, inputs, written[-1:])


def matmul(m=5, n=7, k=6, dtype="float32"):
    return nest(MATMUL.format(m=m, n=n, k=k, t=dtype, zero="0.0" if dtype.startswith("float") else "0"))


def check(stages, function, seed=0):
    """The function computes what the stages mean, as it stands and with its vectors and copies made."""
    random = np.random.default_rng(seed)
    inputs = [
        random.integers(-4, 5, [int(extent.value) for extent in buffer.shape]).astype(buffer.dtype)
        for buffer in function.input_buffers
    ]
    contents = run_stages(stages, dict(zip(function.input_buffers, inputs, strict=True)))
    expected = contents[function.output_buffers[0]]
    np.testing.assert_array_equal(run_function(function, inputs)[0], expected)
    lowered = type(function)(
        function.name, function.parameters, 1, simplify_statement(lower_loops(simplify_statement(function.body)))
    )
    np.testing.assert_array_equal(run_function(lowered, inputs)[0], expected)


def names(function):
    return [loop.variable.name for loop in loops(function.body)]


TILED = """\
split i 2 -> i0 i1
split j 4 -> j0 j1
split k 4 -> k0 k1
reorder i0 j0 k0 i1 j1 k1
cache_read a at k0 in scratch -> near
cache_write c at j0 in register -> sums
vectorize j1
unroll k1
parallel i0
"""


def test_a_tiled_product_with_tails_computes_what_the_stages_mean():
    stages, function = matmul()
    tiled = apply_schedule(function, TILED)
    order = [name for name in names(tiled) if name[0] in "ijk" and "." not in name]
    assert order == ["i0", "j0", "k0", "i1", "j1", "k1"]
    check(stages, tiled)


def test_a_schedule_prints_as_it_was_read():
    text = TILED + "fuse i0 j0 -> ij\nbind ij block.x\ncache_read b at k in shared -> bs by ty tx\npipeline k near bs\n"
    text += "split k 4 -> m k tail rest\njam k\ncompute_at p at i1\ntensorize k1 dot4_u8s8\n"
    assert print_schedule(parse_schedule(text)) == text


def test_fused_loops_may_be_shared_and_put_in_order():
    stages, function = matmul()
    check(stages, apply_schedule(function, "fuse i j -> ij\nreorder k ij"))
    check(stages, apply_schedule(function, "fuse i j -> ij\nparallel ij"))


def test_a_tail_is_a_loop_of_its_own_behind_whole_blocks():
    stages, function = matmul(5, 7, 6)
    cut = apply_schedule(function, "split j 4 -> j0 j tail j1\nvectorize j\nparallel i")
    assert names(cut)[2:] == ["i", "j0", "j", "k", "j1", "k.j1"]
    assert not any(isinstance(one, If) for one in walk_statements(cut.body))
    check(stages, cut)


def test_the_tail_of_a_loop_whose_extent_is_no_number_is_what_the_blocks_leave():
    function = parse_function("""
    function f(x: float32[n], y: float32[1]) -> (z: float32[n]) { serial i < n { z[i] = x[i] + y[0] } }
    """)
    cut = apply_schedule(function, "split i 4 -> i0 i tail i1\nvectorize i")
    assert [print_expression(loop.extent) for loop in loops(cut.body)] == ["n / 4", "4", "n % 4"]
    for size in (3, 8, 9):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(run_function(cut, [x, np.ones(1, np.float32)], [(size,)])[0], x + 1)


SUMS = """
function sums(x: float32[3, {n}]) -> (y: float32[{n}]) {{
  serial j < {n} {{
    allocate total: float32[] in register
    total[] = float32(0.5)
    serial k < 3 {{ total[] = total[] + x[k, j] }}
    y[j] = total[] * float32(2.0)
  }}
}}
"""


@pytest.mark.parametrize("extent", [8, 11, 16])
def test_sums_side_by_side_share_their_loop_and_have_a_register_each(extent):
    function = parse_function(SUMS.format(n=extent))
    steps = "split j 4 -> jv jl\nvectorize jl\njam jv"
    jammed = apply_schedule(function, steps)
    assert names(jammed) == ["k"]
    (total,) = [one.buffer for one in walk_statements(jammed.body) if isinstance(one, Allocate)]
    assert [int(extent.value) for extent in total.shape] == [-(-extent // 4), 4]
    x = np.arange(3 * extent, dtype=np.float32).reshape(3, extent)
    np.testing.assert_array_equal(run_function(jammed, [x])[0], (x.sum(0) + 0.5) * 2)


def test_three_loops_become_one_whose_iterations_may_be_shared():
    text = """
    function f(x: float32[24]) -> (y: float32[24]) {
      serial a < 2 { serial b < 3 { serial c < 4 { y[a * 12 + b * 4 + c] = x[a * 12 + b * 4 + c] } } }
    }
    """
    fused = apply_schedule(parse_function(text), "fuse a b c -> t\nsplit t 5 -> t0 t1\nbind t0 block.x\nbind t1 lane.x")
    x = np.arange(24, dtype=np.float32)
    np.testing.assert_array_equal(run_function(fused, [x])[0], x)


def test_an_initial_value_moves_into_the_loop_that_reduces():
    stages, function = matmul()
    moved = apply_schedule(function, "compute_at c at j\nparallel i")
    assert names(moved) == ["i", "j", "i.first.at", "j.first.at", "k"]
    check(stages, moved)


def test_a_stage_moves_into_its_reader_and_keeps_only_what_an_iteration_needs():
    text = """
    input x: float32[9]
    stage p: float32[9] at (i) = x[i] * float32(2.0)
    stage y: float32[7] at (u) = p[u] + p[u + 2]
    """
    stages, function = nest(text)
    moved = apply_schedule(function, "split u 4 -> u0 u1\ncompute_at p at u0\nparallel u0")
    (kept,) = [one.buffer for one in walk_statements(moved.body) if isinstance(one, Allocate)]
    assert [int(extent.value) for extent in kept.shape] == [6]
    check(stages, moved)


def test_double_buffering_fills_the_next_place_while_this_one_is_used():
    stages, function = matmul(4, 4, 12)
    steps = "split k 4 -> k0 k1\nreorder k0 i j k1\ncache_read a at k0 in scratch -> near\npipeline k0 near"
    piped = apply_schedule(function, steps)
    (near,) = [one.buffer for one in walk_statements(piped.body) if isinstance(one, Allocate)]
    assert [int(extent.value) for extent in near.shape] == [2, 4, 4]
    check(stages, piped)


DOT = """
input a: uint8[4, 8]
input b: int8[5, 8]
stage c: int32[4, 5] at (i, j) = reduce add over k < 8 from int32(0): cast<int32>(a[i, k]) * cast<int32>(b[j, k])
"""


def test_a_loop_that_means_an_instruction_becomes_it():
    stages, function = nest(DOT)
    tensorized = apply_schedule(function, "split k 4 -> k0 k1\ntensorize k1 dot4_u8s8")
    assert "dot4_u8s8(c[i, j], a[i, ramp(k0 * 4, 1, 4)], b[j, ramp(k0 * 4, 1, 4)])" in str(tensorized)
    check(stages, tensorized)


def test_a_block_instruction_takes_the_addresses_of_operands_that_lie_in_one_piece():
    from graft.core.schedule.primitives.tensorize import Tensorize

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


def test_what_fills_a_part_of_a_sum_is_computed_inside_of_what_was_moved_before():
    stages, function = nest("""
    input a: float32[6, 8]
    stage p: float32[6, 8] at (i, k) = a[i, k] * float32(2.0)
    stage c: float32[6] at (i) = reduce add over k < 8 from float32(0.0): p[i, k]
    """)
    steps = "split i.2 4 -> i0 i1\ncompute_at c at i0\ncompute_at p at i1"
    changed = apply_schedule(function, steps)
    (part,) = [one.buffer for one in walk_statements(changed.body) if isinstance(one, Allocate)]
    assert [int(extent.value) for extent in part.shape] == [1, 8]
    check(stages, changed)


def test_conditions_that_loops_do_not_change_stay_around_their_instruction():
    stages, function = nest(DOT)
    tensorized = apply_schedule(
        function, "split i 3 -> i0 i1\nsplit k 4 -> k0 k1\nreorder i0 i1 j k0 k1\ntensorize k1 dot4_u8s8"
    )
    assert re.search(r"if i1 < .*\{\n +c\[i0 \* 3 \+ i1, j\] = dot4_u8s8", str(tensorized))
    check(stages, tensorized)


REFUSED = [
    ("split x 4 -> a b", "there is no loop 'x'; there are i.first, j.first, i, j, k"),
    ("split i 0 -> a b", "the factor is less than 1"),
    ("split i 2 -> a k", "there already is a loop 'k'"),
    ("reorder i j.first", "'i' is not in one nest with the others"),
    ("reorder i", "it takes the names of two or more different loops"),
    ("fuse i k -> ik", "'i', 'k' do not stand directly in each other, in this order"),
    ("fuse j i -> ji", "'j', 'i' do not stand directly in each other, in this order"),
    ("jam k", "one iteration of 'k' writes 'c' where another reads or writes it"),
    ("parallel k", "one iteration of 'k' writes 'c' where another reads or writes it"),
    ("vectorize k", "one iteration of 'k' writes 'c' where another reads or writes it"),
    ("bind k thread.x", "one iteration of 'k' writes 'c' where another reads or writes it"),
    ("cache_read d at k in shared -> s", "no buffers are called 'd'; there are a, b, c"),
    ("cache_read c at k in shared -> s", "'c' is written inside of 'k'"),
    ("cache_read a at k in shared -> s by i", "'i' and its like must be bound loops around 'k'"),
    ("cache_write a at k in register -> s", "'a' is not written inside of 'k'"),
    ("compute_at c at i.first", "no nest before that of 'i.first' computes 'c', or more than loops stand between"),
    ("compute_at c at k", "iterations of 'k' share elements of 'c'"),
    ("pipeline k a", "the body of 'k' does not begin with what fills 'a'"),
    ("tensorize k mma", "there is no instruction 'mma'; there are dot4_u8s8, dot2_bf16"),
    ("tensorize k dot4_u8s8", "'k' is not what 'dot4_u8s8' means: 'k' has another extent"),
]


@pytest.mark.parametrize(("step", "reason"), REFUSED, ids=lambda text: text[:24])
def test_a_step_that_cannot_be_taken_says_which_and_why(step, reason):
    _, function = matmul()
    (parsed,) = parse_schedule(step)
    message = f"cannot '{step}': {reason}"
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        parsed.apply(function)


def test_lanes_of_a_vector_have_no_memory_of_their_own():
    _, function = matmul()
    function = apply_schedule(function, "vectorize j")
    message = (
        "cannot 'cache_read a at k in shared -> s': 'j' is a vector already, and its lanes have no memory of their own"
    )
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        apply_schedule(function, "cache_read a at k in shared -> s")


def test_a_reorder_is_refused_where_a_dependence_forbids_it():
    text = """
    function f(x: float32[4, 4]) -> (y: float32[5, 5]) {
      serial i < 4 { serial j < 4 { y[i + 1, j] = y[i, j + 1] + x[i, j] } }
    }
    """
    message = "cannot 'reorder j i': 'y' is written and used again along 'i', 'j', in that order"
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        apply_schedule(parse_function(text), "reorder j i")
    apply_schedule(parse_function(text.replace("j + 1]", "j]")), "reorder j i")


def test_sums_of_floats_keep_their_order_and_exact_ones_need_not():
    text = """
    input a: {t}[4, 3, 2]
    stage c: {t}[4] at (i) = reduce add over p < 3, q < 2 from {t}({zero}): a[i, p, q]
    """
    _, function = nest(text.format(t="float32", zero="0.0"))
    message = "cannot 'reorder q p': 'c' is written and used again along 'p', 'q', in that order"
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        apply_schedule(function, "reorder q p")
    stages, function = nest(text.format(t="int32", zero="0"))
    check(stages, apply_schedule(function, "reorder q p"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("spilt i 2 -> a b", "schedule, line 1: there is no primitive 'spilt'; did you mean 'split'"),
        (
            "split i x -> a",
            "schedule, line 1: 'split i x -> a' is not of the form 'split loop factor -> outer inner tail tail'",
        ),
        ("bind i", "schedule, line 1: 'bind i' is not of the form 'bind loop level'"),
        ("unroll i j", "schedule, line 1: 'unroll i j' is not of the form 'unroll loop'"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_step_is_an_error_with_its_number(line, message):
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        parse_schedule(line)


def test_a_stage_with_an_order_of_its_own_has_no_plain_nest():
    text = """
    input x: float32[4]
    carry s: float32[4]
    stage s: float32[4] at (t) = s[t - 1] + x[t]
      scan t from float32(0.0)
    """
    with pytest.raises(ScheduleError, match=r"^the stage of 's' is a scan, which has an order of its own$"):
        nest(text)


# ---- Any sequence of primitives keeps the result -------------------------------------------------------------------

SUBJECTS = {
    "product": lambda m, n, k: nest(MATMUL.format(m=m, n=n, k=k, t="float32", zero="0.0")),
    "integers": lambda m, n, k: nest(MATMUL.format(m=m, n=n, k=k, t="int32", zero="0")),
    "chain": lambda m, n, k: nest(CHAIN.format(m=m, n=n)),
    "window": lambda m, n, k: nest(WINDOW.format(m=m, n=max(n, 3))),
}


def random_step(draw, function, number):
    """A step over names that the function has; most of those drawn can be taken."""
    known = names(function)
    one, other, third = (draw(st.sampled_from(known)) for _ in range(3))
    buffers = [buffer.name for buffer in function.parameters]
    buffers += [one.buffer.name for one in walk_statements(function.body) if isinstance(one, Allocate)]
    buffer = draw(st.sampled_from(buffers))
    fresh = [f"v{number}", f"w{number}"]
    return draw(
        st.sampled_from(
            [
                f"split {one} {draw(st.integers(1, 5))} -> {' '.join(fresh)}",
                f"split {one} {draw(st.integers(1, 5))} -> {' '.join(fresh)} tail u{number}",
                f"reorder {one} {other}",
                f"reorder {one} {other} {third}",
                f"fuse {one} {other} -> {fresh[0]}",
                f"vectorize {one}",
                f"unroll {one}",
                f"jam {one}",
                f"parallel {one}",
                f"bind {one} level{number}",
                f"cache_read {buffer} at {one} in scratch -> {fresh[0]}",
                f"cache_write {buffer} at {one} in scratch -> {fresh[0]}",
                f"compute_at {buffer} at {one}",
                f"pipeline {one} {buffer}",
            ]
        )
    )


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(sorted(SUBJECTS)), *(st.integers(1, 6) for _ in range(3)))
def test_any_sequence_of_primitives_keeps_the_result(data, subject, m, n, k):
    stages, function = SUBJECTS[subject](m, n, k)
    taken = []
    for number in range(data.draw(st.integers(1, 9))):
        (step,) = parse_schedule(random_step(data.draw, function, number))
        try:
            function = step.apply(function)
        except ScheduleError as error:
            assert "the result is refused" not in str(error), error
        else:
            taken.append(step)
    assert parse_schedule(print_schedule(taken)) == tuple(taken)
    assert str(parse_function(str(function))) == str(function)
    check(stages, function)


def test_what_a_guard_never_lets_run_may_be_jammed():
    stages, function = SUBJECTS["chain"](1, 1, 1)
    for step in parse_schedule("split i 2 -> v0 w0\nsplit v0 1 -> v1 w1\njam w0"):
        function = step.apply(function)
    check(stages, function)


@pytest.mark.parametrize("step", ["vectorize j", "parallel j"])
def test_a_loop_inside_of_a_vector_is_none_of_its_own(step):
    _, function = SUBJECTS["chain"](2, 3, 1)
    (vectorize,), (inner,) = parse_schedule("vectorize i"), parse_schedule(step)
    with pytest.raises(ScheduleError) as caught:
        inner.apply(vectorize.apply(function))
    assert caught.value.message == (f"cannot '{step}': 'j' is inside of 'i', whose iterations are the lanes of vectors")
