import re
from dataclasses import replace
from typing import NamedTuple

import pytest

from graft.core.tensor_ir.ir import Binary, Buffer, Cast, Constant, For, Function, Load, Stage, Store, Variable
from graft.core.tensor_ir.parser import parse_function, parse_stages
from graft.core.tensor_ir.verifying.verifier import verify, verify_stage, verify_stages
from graft.core.types import FLOAT32, INT64, Type
from graft.errors import CompileError


def function(body, head="x: float32[8]) -> (y: float32[8]"):
    return parse_function(f"function f({head}) {{\n{body}\n}}\n")


GOOD = """
  allocate t: float32[4] in register
  parallel i < 2 {
    let v: float32x4 = x[ramp(i * 4, 1, 4)]
    serial k < 4 { t[k] = x[i + k] * float32(2.0) }
    if i < 1 { y[i + 7] = float32(1.0) }
    y[ramp(i * 4, 1, 4)] = select(v < broadcast(float32(0.0), 4), exp(v), v)
  }
"""


def test_a_good_function_passes():
    verify(function(GOOD.replace("t[k] =", "y[i * 4 + k] =")))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y[0] = x[0] + 1", "the operands of 'add' are float32 and int64, in 'x[0] + 1'"),
        ("y[0] = 1", "the value is int64, the place float32, in 'y[0] = 1'"),
        ("y[ramp(0, 1, 4)] = x[0]", "the value is float32, the place float32x4, in 'y[ramp(0, 1, 4)] = x[0]'"),
        ("y[0] = x[0] % x[1]", "'mod' of float32; it is for integers; floats have 'fmod', in 'x[0] % x[1]'"),
        ("y[0] = cast<float32>(sqrt(4))", "'sqrt' of int64; it is for floats, in 'sqrt(4)'"),
        (
            "y[0] = exp2d(x[0])",
            "the intrinsic 'exp2d' is unknown; a C symbol is written 'extern:exp2d', in 'exp2d(x[0])'",
        ),
        ("y[0] = pow(x[0])", "'pow' takes 2 arguments, not 1, in 'pow(x[0])'"),
        ("y[0, 0] = x[0]", "'y' has 1 dimensions, 2 indices are given, in 'y[0, 0] = x[0]'"),
        ("y[8] = x[0]", "index 8 to 8 leaves dimension 0 of 'y' (8), in 'y[8] = x[0]'"),
        ("serial i < 8 { y[i] = x[i + 1] }", "index 1 to 8 leaves dimension 0 of 'x' (8), in 'x[i + 1]'"),
        (
            "serial i < 2 { y[ramp(i * 5, 1, 4)] = x[ramp(0, 1, 4)] }",
            "index 0 to 8 leaves dimension 0 of 'y' (8), in 'y[ramp(i * 5, 1, 4)] = x[ramp(0, 1, 4)]'",
        ),
        (
            "parallel i < 8 { y[0] = x[i] }",
            "all iterations of the parallel loop over 'i' write the same elements, in 'y[0] = x[i]'",
        ),
        ("if 1 { y[0] = x[0] }", "the condition is int64, not bool, in 'if 1 {'"),
        (
            "y[0] = shuffle([x[ramp(0, 1, 4)]], [4])",
            "a shuffle of 4 lanes has no lane 4, in 'shuffle([x[ramp(0, 1, 4)]], [4])'",
        ),
        ("y[0; x[0]] = x[0]", "the mask is float32, not bool, in 'y[0; x[0]] = x[0]'"),
        (
            "y[0] = bitcast<float32>(int8(1))",
            "a bitcast from int8 to float32, of which no whole number has as many bits, in 'bitcast<float32>(int8(1))'",
        ),
        (
            "vector i < cast<int64>(x[0]) { y[i] = x[i] }",
            "the extent of a vector loop must be constant, in 'vector i < cast<int64>(x[0]) {'",
        ),
        ("let v: float64 = x[0] { y[0] = x[0] }", "'v' is float64, its value float32, in 'let v: float64 = x[0]'"),
    ],
)  # fmt: skip
def test_a_broken_invariant_is_an_error_that_says_what_and_where(body, message):
    message = f"function 'f': {message}"
    with pytest.raises(CompileError, match=f"^{re.escape(message)}$"):
        verify(function(body))


@pytest.mark.parametrize(
    "head",
    [
        "(x: float32[8]) -> (y: float32[8]) in_place 1",
        "(x: float32[8]) -> (y: float32[4]) in_place 0",
        "(x: float64[8]) -> (y: float32[8]) in_place 0",
        "(x: float32[8]) -> (y: float32[8], z: float32[8]) in_place 0",
    ],
)
def test_a_result_takes_the_place_of_as_many_bytes_only(head):
    number = head[-1]
    message = f"function 'f': its output cannot be in the place of input {number}, in 'function f'"
    with pytest.raises(CompileError, match=f"^{re.escape(message)}$"):
        verify(parse_function(f"function f{head} {{\n}}\n"))


def test_a_branch_may_guard_an_index():
    verify(function("serial i < 9 { if i < 8 { y[i] = x[i] } }"))


def test_a_loop_that_may_have_no_iterations_reaches_no_bounds():
    verify(function("serial i < 3 { serial j < i / 10 { serial k < 9 { y[k] = x[k] } } }"))
    verify(function("serial i < 3 { serial j < i / 2 { serial k < 9 { y[j * 4 + k] = x[0] } } }"))
    verify(function("serial i < 3 { serial j < i / 10 { y[8] = x[0] } }"))
    verify(
        function(
            "serial i < 3 { serial j < (i + 4) / 5 { serial k < 1 { if k + 3 < i - j * 5 { y[8 + k] = x[0] } } } }"
        )
    )
    verify(function("serial i < 5 { if i < 4 { serial j < max(i - 3, 0) { y[8 + j] = x[0] } } }"))
    with pytest.raises(CompileError, match="index 8 to 8 leaves dimension 0 of 'y'"):
        verify(function("serial i < 3 { serial j < i / 2 { y[8] = x[0] } }"))


def test_an_index_that_is_outside_whenever_a_condition_holds_is_refused_but_where_it_never_holds():
    verify(function("serial i < 1 { if 1 < 1 - i * 2 { y[i + 8] = x[0] } }"))
    verify(function("let e: int64 = 0 - 2 { if e >= 0 { y[8] = x[0] } }"))
    with pytest.raises(CompileError, match=r"index 8 to 8 leaves dimension 0 of 'y' \(8\), in 'y\[i \+ 8\] = x\[0\]'$"):
        verify(function("serial i < 1 { if 0 < 1 - i * 2 { y[i + 8] = x[0] } }"))


def test_a_variable_must_be_bound_around_its_use_and_only_once():
    x, y = (Buffer(name, "float32", (Constant(8, INT64),)) for name in "xy")
    i = Variable("i")
    store = Store(y, (i,), Load(x, (i,)))
    with pytest.raises(CompileError, match=r"^function 'f': variable 'i' is not bound here, in 'y\[i\] = x\[i\]'$"):
        verify(Function("f", (x, y), 1, store))
    loop = For(i, Constant(8, INT64), "serial", store)
    with pytest.raises(CompileError, match=r"^function 'f': variable 'i' is bound twice, in 'serial i < 8 {'$"):
        verify(Function("f", (x, y), 1, For(i, Constant(2, INT64), "serial", loop)))


def test_an_unknown_buffer_is_an_error():
    x, y, z = (Buffer(name, "float32", (Constant(8, INT64),)) for name in "xyz")
    store = Store(y, (Constant(0, INT64),), Load(z, (Constant(0, INT64),)))
    with pytest.raises(
        CompileError, match=r"^function 'f': buffer 'z' is neither a parameter nor allocated here, in 'z\[0\]'$"
    ):
        verify(Function("f", (x, y), 1, store))


STAGES = """
input a: float32[4, 5]
stage c: float32[4] at (i) = reduce add over k < 5 from float32(0.0): a[i, k]
  then r: float32 = max(r, float32(0.0))
stage d: float32[4] at (j) = c[j] * c[3 - j]
"""


def test_good_stages_pass():
    verify_stages(parse_stages(STAGES))


def test_a_stage_must_stay_inside_what_it_reads():
    with pytest.raises(
        CompileError, match=r"^stage of 'd': index -1 to 2 leaves dimension 0 of 'c' \(4\), in 'c\[2 - j\]'$"
    ):
        verify_stages(parse_stages(STAGES.replace("3 - j", "2 - j")))


def test_a_stage_has_an_axis_for_each_dimension_and_one_type():
    x, y, i = Buffer("x", "float32", (Constant(8, INT64),)), Buffer("y", "int8", (Constant(8, INT64),)), Variable("i")
    with pytest.raises(CompileError, match=r"^stage of 'y': 0 axes for 1 dimensions, in 'input x: float32\[8\]'$"):
        verify_stage(Stage(y, (), Load(x, (Constant(0, INT64),))))
    with pytest.raises(
        CompileError, match=r"^stage of 'y': the value is float32, the buffer int8, in 'input x: float32\[8\]'$"
    ):
        verify_stage(Stage(y, (i,), Load(x, (i,))))
    verify_stage(Stage(y, (i,), Cast(Binary("add", Load(x, (i,)), Constant(1.0, FLOAT32)), Type("int8").dtype)))


class Level(NamedTuple):
    name: str


class Card(NamedTuple):
    """A machine as `verify` sees it."""

    name: str = "card"
    places: tuple[str, ...] = ("host", "shared", "register")
    levels: tuple[Level, ...] = (Level("block"), Level("thread"), Level("load"))


BLOCKS = """
  parallel b < 2 bind "block.x" {
    allocate t: float32[4] in shared
    parallel k < 4 bind "thread.x" {
      t[k] = x[b * 4 + k]
      barrier "block"
      y[b * 4 + k] = t[3 - k]
    }
  }
  issue "load" {
    push "load" -> "compute"
  }
"""


def test_a_function_may_ask_for_what_the_machine_has():
    verify(function(BLOCKS), Card())
    verify(function(BLOCKS))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "in shared",
            "in sram",
            "no memory 'sram' on the machine 'card', which has host, shared, register, in 'allocate t: float32[4] in "
            "sram'",
        ),
        (
            "block.x",
            "warp",
            "no level 'warp' on the machine 'card', which has block, thread, load, in 'parallel b < 2 bind \"warp\" {'",
        ),
        (
            'issue "load"',
            'issue "store"',
            "no level 'store' on the machine 'card', which has block, thread, load, in 'issue \"store\" {'",
        ),
        (
            'barrier "block"',
            'barrier "warp"',
            "no level 'warp' on the machine 'card', which has block, thread, load, in 'barrier \"warp\"'",
        ),
        (
            'barrier "block"',
            'barrier "thread"',
            "a barrier outside of its level: no loop is bound below 'thread' around it, in 'barrier \"thread\"'",
        ),
        (
            'barrier "block"',
            'if k < 2 { barrier "block" }',
            "a barrier that not all iterations of 'k' reach, in 'barrier \"block\"'",
        ),
        (
            'barrier "block"',
            'if k < 2 { barrier "block" of 2 }',
            "a barrier that not all iterations of 'k' reach, in 'barrier \"block\" of 2'",
        ),
        (
            'barrier "block"',
            'serial n < k { barrier "block" }',
            "a barrier that not all iterations of 'k' reach, in 'barrier \"block\"'",
        ),
        (
            "thread.x",
            "block.x",
            "two loops, one in the other, are bound to 'block.x', in 'parallel k < 4 bind \"block.x\" {'",
        ),
        (
            'parallel b < 2 bind "block.x"',
            'parallel b < 2 bind "thread.y"',
            "a barrier outside of its level: no loop is bound below 'block' around it, in 'barrier \"block\"'",
        ),
        (
            "parallel k < 4",
            "serial k < 4",
            "a serial loop is bound; bind a parallel one, in 'serial k < 4 bind \"thread.x\" {'",
        ),
        (
            'issue "load" {',
            'pop "compute" -> "load" issue "load" {',
            "it is for the queue 'load' and stands in no issue, in 'pop \"compute\" -> \"load\"'",
        ),
        (
            'push "load" -> "compute"',
            'push "store" -> "compute"',
            "it is for the queue 'store' and stands in an issue to 'load', in 'push \"store\" -> \"compute\"'",
        ),
        (
            'push "load" -> "compute"',
            'issue "load" { }',
            "an issue inside of an issue to 'load', in 'issue \"load\" {'",
        ),
    ],
)
def test_what_a_machine_lacks_or_nothing_orders_is_an_error(old, new, message):
    message = f"function 'f': {message}"
    with pytest.raises(CompileError, match=f"^{re.escape(message)}$"):
        verify(function(BLOCKS.replace(old, new)), Card())


def test_levels_nest_as_those_of_the_machine():
    text = 'parallel k < 4 bind "thread.x" { parallel b < 2 bind "block.x" { y[b * 4 + k] = x[0] } }'
    message = "function 'f': level 'block' inside of level 'thread', in 'parallel b < 2 bind \"block.x\" {'"
    with pytest.raises(CompileError, match=f"^{re.escape(message)}$"):
        verify(function(text), Card())
    verify(function(text))


@pytest.mark.parametrize(
    ("strides", "message"),
    [
        ("[8]", "'x' has 2 axes and 1 strides"),
        ("[float32(8.0), 1]", "a stride of 'x' is float32, not int64"),
    ],
)
def test_strides_that_are_none_are_named(strides, message):
    text = f"function f(x: float32[2, 8] strides {strides}) -> (y: float32[1]) {{\n}}\n"
    expected = re.escape(f"function 'f': {message}, in 'function f'")
    with pytest.raises(CompileError, match=f"^{expected}$"):
        verify(parse_function(text))


def test_a_stride_of_a_parameter_binds_its_variable():
    verify(parse_function("function f(x: float32[2, 8] strides [pitch, 1]) -> (y: int64[1]) {\n  y[0] = pitch\n}\n"))


def test_places_that_an_iteration_tells_itself_may_differ() -> None:
    text = (
        "function f(x: float32[8]) -> (y: float32[8]) { parallel i < 8 { allocate at: int64[1] in register {"
        " at[0] = 7 - i\ny[at[0]] = x[i] } } }"
    )
    verify(parse_function(text))


def test_truth_values_have_no_sums():
    (stage,) = parse_stages("""
    input x: bool[4, 3]
    stage y: bool[4] at (i) = reduce or over k < 3 from bool(False): x[i, k]
    """)
    assert stage.reduction is not None
    verify_stage(stage)
    added = replace(stage, reduction=replace(stage.reduction, operator="add"))
    with pytest.raises(CompileError, match="'add' of bool; 'or' and 'and' combine truth values"):
        verify_stage(added)
