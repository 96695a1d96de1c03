"""Functions of vectors, taken apart into scalars that compute the same."""

import numpy as np
import pytest

from graft.core.tensor_ir import ir
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.rewriting.scalar_lanes import without_vectors
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import statement_expressions, walk_expressions, walk_statements
from graft.core.types import INT64
from graft.errors import CompileError
from tests.core.tensor_ir.kinds import PLACE, X, expressions, operations

BODIES = {
    "copy": "y[ramp(0, 1, 4)] = x[ramp(4, 1, 4)]",
    "stride": "y[ramp(0, 1, 4)] = x[ramp(1, 2, 4)] + x[ramp(0, 1, 4)]",
    "broadcast": "y[ramp(2, 1, 4)] = x[ramp(0, 1, 4)] * broadcast(x[7], 4)",
    "masked": "y[ramp(0, 1, 4); ramp(0, 1, 4) < broadcast(3, 4)] = x[ramp(0, 1, 4)]",
    "shuffle": "y[ramp(0, 1, 4)] = shuffle([x[ramp(0, 1, 4)], x[ramp(4, 1, 4)]], [0, 5, 2, 7])",
    "sum": "y[0] = horizontal<add>(x[ramp(0, 1, 8)])",
    "bound": "let v: float32x4 = x[ramp(0, 1, 4)] * x[ramp(4, 1, 4)]\n y[ramp(0, 1, 4)] = v - x[ramp(0, 1, 4)]",
    "overlap": "y[ramp(0, 1, 4)] = x[ramp(0, 1, 4)]\n y[ramp(1, 1, 4)] = y[ramp(0, 1, 4)]",
    "branch": "if x[0] < x[1] { y[ramp(0, 1, 4)] = x[ramp(0, 1, 4)] } else { y[0] = x[3] }",
}


def most_lanes(function: ir.Function) -> int:
    """The most lanes of an expression of a function."""
    statements = walk_statements(function.body)
    nodes = walk_expressions(*(one for statement in statements for one in statement_expressions(statement)))
    return max(node.type.lanes for node in nodes)


@pytest.mark.parametrize("name", BODIES)
def test_scalars_compute_what_the_vectors_did(name: str) -> None:
    clear = "serial i < 8 { y[i] = float32(0.0) }\n"
    text = f"function f(x: float32[8]) -> (y: float32[8]) {{ {clear}{BODIES[name]} }}"
    function = parse_function(text)
    scalars = without_vectors(function)
    verify(scalars)
    assert most_lanes(scalars) == 1
    x = np.arange(8, dtype=np.float32) ** 2
    np.testing.assert_array_equal(run_function(scalars, [x])[0], run_function(function, [x])[0])


def test_a_function_without_vectors_is_the_same_object() -> None:
    function = parse_function("function f(x: float32[4]) -> (y: float32[4]) { serial i < 4 { y[i] = x[i] } }")
    assert without_vectors(function) is function


DOT = """
function f(a: uint8[8], b: int8[8]) -> (y: int32[2]) {
  y[ramp(0, 1, 2)] = dot4_u8s8(broadcast(int32(3), 2), a[ramp(0, 1, 8)], b[ramp(0, 1, 8)])
}
"""


def test_a_dot_product_becomes_its_meaning() -> None:
    a, b = np.arange(8, dtype=np.uint8), np.arange(-4, 4, dtype=np.int8)
    scalars = without_vectors(parse_function(DOT))
    verify(scalars)
    expected = 3 + (a.astype(np.int32) * b).reshape(2, 4).sum(1)
    np.testing.assert_array_equal(run_function(scalars, [a, b])[0], expected)


def test_with_words_a_dot_product_takes_the_words_that_its_bytes_come_from() -> None:
    text = """
    function f(a: int32[2], b: int32[2]) -> (y: int32[2]) {
      serial i < 2 { y[i] = dot4_u8s8(int32(3), bitcast<uint8>(a[i]), bitcast<int8>(b[i])) }
    }
    """
    function = parse_function(text)
    made = str(without_vectors(function, packed=True))
    assert "y[i] = dot4_u8s8(int32(3), a[i], b[i])" in made
    inputs = [np.array([0x04030201, 7], np.int32), np.array([0x01FF02FE, -1], np.int32)]
    plain = without_vectors(function)
    np.testing.assert_array_equal(run_function(plain, inputs)[0], run_function(function, inputs)[0])


def test_an_unknown_instruction_of_vectors_on_scalars_is_an_error() -> None:
    text = """
    function f(x: float32[4]) -> (y: float32[4]) {
      y[ramp(0, 1, 4)] = intrinsic<float32x4>("extern:widen", x[ramp(0, 1, 2)])
    }
    """
    with pytest.raises(CompileError, match=r"^function 'f' has the vector instruction 'extern:widen' on scalars$"):
        without_vectors(parse_function(text))


@pytest.mark.parametrize("node", [*expressions(4).values(), *operations(4)], ids=str)
def test_every_kind_of_expression_and_every_operator_is_taken_apart_into_lanes(node: ir.Expression) -> None:
    lanes = node.type.lanes
    out = ir.Buffer("out", node.type.dtype, (ir.Constant(4 + lanes, INT64),))
    place = PLACE if lanes == 1 else ir.Ramp(PLACE, 1, lanes)
    body: ir.Statement = ir.For(PLACE, ir.Constant(5, INT64), "serial", ir.Store(out, (place,), node))
    operands = {one for one in walk_expressions(node) if isinstance(one, ir.Variable) and one is not PLACE}
    given = [ir.Buffer(f"given_{one.name}", one.type.dtype, (ir.Constant(4, INT64),)) for one in operands]
    for variable, buffer in zip(operands, given, strict=True):
        body = ir.Let(variable, ir.Load(buffer, (ir.Ramp(ir.Constant(0, INT64), 1, 4),)), body)
    function = ir.Function("f", (X, *given, out), 1, body)
    verify(function)
    scalars = without_vectors(function)
    verify(scalars)
    assert most_lanes(scalars) == 1
    arrays = [np.arange(-4, 4, dtype=np.float32), *(np.arange(1, 5).astype(one.dtype) for one in given)]
    np.testing.assert_array_equal(run_function(scalars, arrays)[0], run_function(function, arrays)[0])
