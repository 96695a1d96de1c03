from graft.core.tensor_ir.ir import Binary, Buffer, Constant, Load, Ramp, Shuffle, Store, Variable
from graft.core.tensor_ir.parser import parse_function, parse_stages
from graft.core.tensor_ir.printer import print_expression, print_statement
from graft.core.types import FLOAT32, INT64, Type

FUNCTION = """\
function `layer/0.scale`(x: float32[64, n], `a b`: bfloat16[] align 64) -> (y: float32[64, n]) from "\\"1\\"", "Relu" {
  parallel i < 64 bind "block.x" {
    let v: float32x16 = x[i, ramp(0, 1, 16); ramp(0, 1, 16) < broadcast(n, 16)]
    allocate t: float32[2, 16] strides [16, 1] in register align 64
    t[0, ramp(0, 1, 16)] = v * broadcast(cast<float32>(`a b`[]), 16)
    serial k < n / 16 * 2 - (1 - i) {
      if k == 0 & !(i >= 3) | false {
        y[i, k] = horizontal<add>(shuffle([v, v], [0, 31, 2]))
      } else {
        call prefetch(x[i, k], 1)
      }
    }
    y[i, 0; i < 3] = intrinsic<float32>("extern:f", float32(-inf), v_1[0])
  }
}
""".replace("!(i >= 3)", "not(i >= 3)").replace(", v_1[0]", "")

STAGES = """\
input a: float32[4, 5]
input b: float32[5, 3]
stage c: float32[4, 3] at (i, j) from "MatMul" = reduce add over k < 5 from float32(0.0): a[i, k] * b[k, j]
  then r: float32 = max(r, float32(nan))
stage d: int8[3] in sram at (m) = select(c[0, m] > float32(0.0), int8(-1), cast<int8>(fma(c[0, m], c[1, m], c[2, 0])))
"""


PITCHED = """\
function f(x: float32[2, n, 3] strides [pitch, 3, 1]) -> (y: float32[2, n, 3], z: int64[1]) {
  z[0] = pitch
}
"""


def test_variables_of_strides_print_as_they_were_read():
    assert str(parse_function(PITCHED)) == PITCHED


def test_a_function_prints_as_it_was_read():
    assert str(parse_function(FUNCTION)) == FUNCTION


def test_a_function_says_what_it_may_be_written_over():
    text = 'function f(x: float32[4], a: float32[], z: int32[4]) -> (y: float32[4]) in_place 0, 2 from "Add" {\n}\n'
    assert str(parse_function(text)) == text
    assert parse_function(text).in_place == (0, 2)


def test_stages_print_as_they_were_read():
    from graft.core.tensor_ir.printer import print_stages

    assert print_stages(parse_stages(STAGES)) == STAGES


def test_things_of_one_name_are_told_apart():
    first, second = Variable("i"), Variable("i")
    i = Buffer("i", "int64", (Constant(4, INT64),))
    assert print_statement(Store(i, (first,), second)) == "i[i_1] = i_2\n"


def test_a_let_that_ends_early_has_braces():
    text = """\
function f(x: float32[2]) -> (y: float32[2]) {
  let v: float32 = x[0] {
    y[0] = v
  }
  y[1] = x[1]
}
"""
    assert str(parse_function(text)) == text


def test_parentheses_stand_only_where_they_are_needed():
    x = Variable("x")
    left = Binary("sub", Binary("sub", x, Constant(1, INT64)), Constant(-2, INT64))
    right = Binary("sub", x, Binary("sub", Constant(1, INT64), x))
    assert print_expression(left) == "x - 1 - -2"
    assert print_expression(right) == "x - (1 - x)"
    assert print_expression(Binary("mul", left, right)) == "(x - 1 - -2) * (x - (1 - x))"


def test_vectors_print_with_their_lanes():
    x, lanes = Buffer("x", "float32", (Constant(8, INT64),)), (Ramp(Constant(0, INT64), 2, 4),)
    assert print_expression(Shuffle((Load(x, lanes),), (3, 2))) == "shuffle([x[ramp(0, 2, 4)]], [3, 2])"
    assert print_expression(Constant(1.5, Type("bfloat16", 8))) == "bfloat16x8(1.5)"
    assert print_expression(Constant(1.5, FLOAT32)) == "float32(1.5)"


CONCURRENT = """\
function f(x: float32[4]) -> (`push`: float32[4]) {
  parallel b < 4 bind "block.x" {
    parallel t < 1 bind "thread.x" {
      barrier "block"
    }
  }
  issue "load" {
    pop "compute" -> "load"
    push "load" -> "compute"
  }
  barrier "queue"
  `push`[0] = x[0]
}
"""


def test_barriers_and_tokens_print_as_they_were_read():
    assert str(parse_function(CONCURRENT)) == CONCURRENT
