import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.ir import (
    Binary,
    Block,
    Broadcast,
    Buffer,
    Cast,
    Constant,
    For,
    If,
    Let,
    Load,
    Ramp,
    Select,
    Stage,
    Store,
    Unary,
    Variable,
)
from graft.core.tensor_ir.rewriting.simplify import simplify, simplify_statement
from graft.core.tensor_ir.visit import walk_expressions
from graft.core.types import BOOL, FLOAT32, INT64, Type

P, Q, R = (Variable(name) for name in "ijk")
RANGES = {P: (0, 3), Q: (0, 11), R: (0, 63)}


def index(value):
    return Constant(value, INT64)


def op(operator, left, right):
    wrap = lambda side: index(side) if isinstance(side, int) else side  # noqa: E731
    return Binary(operator, wrap(left), wrap(right))


def add(left, right):
    return op("add", left, right)


def mul(left, right):
    return op("mul", left, right)


def div(left, right):
    return op("div", left, right)


def mod(left, right):
    return op("mod", left, right)


FLAT = add(mul(add(mul(P, 12), Q), 64), R)


def test_division_undoes_the_linear_index_of_a_reshape():
    assert simplify(div(FLAT, 768), RANGES) is P
    assert simplify(mod(div(FLAT, 64), 12), RANGES) is Q
    assert simplify(mod(FLAT, 64), RANGES) is R
    assert simplify(mod(FLAT, 768), RANGES) == add(mul(Q, 64), R)


def test_division_keeps_what_crosses_a_boundary():
    assert simplify(div(FLAT, 128), RANGES) == div(add(mul(P, 12), Q), 2) or simplify(div(FLAT, 128), RANGES) == add(
        mul(P, 6), div(Q, 2)
    )


def test_quotient_and_remainder_join_again():
    x = Variable("x")
    assert simplify(add(mul(div(x, 7), 7), mod(x, 7)), {x: (0, 1000)}) is x
    assert simplify(add(mul(div(x, 7), 35), mul(mod(x, 7), 5)), {x: (0, 1000)}) == mul(x, 5)


def test_the_places_of_three_axes_in_one_index_join_again():
    x = Variable("x")
    parts = add(add(mul(mod(div(x, 24), 5), 24), mul(mod(div(x, 6), 4), 6)), mod(x, 6))
    assert simplify(parts, {x: (0, 5 * 24 - 1)}) is x


def test_neutral_elements_vanish():
    assert simplify(add(mul(P, 1), 0)) is P
    assert simplify(op("sub", add(P, 5), 5)) is P
    assert simplify(mul(P, 0)) == index(0)


def test_masks_that_always_hold_vanish():
    x = Buffer("x", "float32", (index(64),))
    place = Ramp(mul(P, 16), 1, 16)
    mask = Binary("lt", place, Broadcast(index(64), 16))
    assert simplify(Load(x, (place,), mask), RANGES) == Load(x, (Ramp(mul(P, 16), 1, 16),))


def test_masks_that_may_fail_stay():
    place = Ramp(mul(P, 16), 1, 16)
    mask = Binary("lt", place, Broadcast(index(63), 16))
    assert simplify(mask, RANGES) == mask


def test_a_vector_inside_one_row_stays_contiguous():
    place = Ramp(mul(P, 16), 1, 16)
    row, column = (Binary(o, place, Broadcast(index(32), 16)) for o in ("div", "mod"))
    assert simplify(row, RANGES) == Broadcast(div(P, 2), 16)
    assert simplify(column, RANGES) == Ramp(mul(mod(P, 2), 16), 1, 16)


def test_floats_keep_their_signed_zeros():
    x = Load(Buffer("x", "float32", (index(1),)), (index(0),))
    plus_zero = Binary("add", x, Constant(0.0, FLOAT32))
    minus_zero = Binary("sub", x, Constant(-0.0, FLOAT32))
    assert simplify(plus_zero) == plus_zero
    assert simplify(minus_zero) == minus_zero
    assert simplify(Binary("sub", x, Constant(0.0, FLOAT32))) == x
    assert simplify(Binary("mul", x, Constant(1.0, FLOAT32))) == x
    product = Binary("mul", x, Constant(0.0, FLOAT32))
    assert simplify(product) == product


def test_constants_fold_in_their_own_type():
    assert simplify(Binary("add", Constant(2**31 - 1, Type("int32")), Constant(1, Type("int32")))) == Constant(
        -(2**31), Type("int32")
    )
    assert simplify(Cast(Constant(0.1, Type("float64")), "float32")) == Constant(float(np.float32(0.1)), FLOAT32)
    assert simplify(Unary("not", Constant(True, BOOL))) == Constant(False, BOOL)


def test_simplifying_a_deeply_shared_expression_is_fast():
    value = Load(Buffer("x", "float32", (index(1),)), (index(0),))
    for _ in range(60):
        value = Binary("add", value, value)
    assert len(list(walk_expressions(simplify(value)))) == 62


def test_equal_subexpressions_become_one_object():
    left, right = add(mul(P, 12), Q), add(mul(P, 12), Q)
    product = simplify(Binary("mul", Cast(left, "float32"), Cast(right, "float32")))
    assert product.left is product.right


def test_loops_of_one_iteration_and_dead_branches_vanish():
    y = Buffer("y", "int64", (index(4), index(1)))
    inner = For(Q, index(1), "serial", If(op("lt", P, 9), Store(y, (P, Q), add(P, Q)), Block(())))
    loop = For(P, index(4), "serial", Let(R, add(P, 0), Block((inner, For(Variable("n"), index(0), "serial", inner)))))
    assert simplify_statement(loop) == For(P, index(4), "serial", Store(y, (P, index(0)), P))


def test_one_variable_with_two_extents_is_kept_apart():
    y = Buffer("y", "int64", (index(8),))
    store = Store(y, (P,), Select(op("lt", P, 4), index(1), index(2)))
    both = simplify_statement(Block((For(P, index(4), "serial", store), For(P, index(8), "serial", store))))
    assert both.statements[0].body.value == index(1)
    assert both.statements[1].body.value == store.value


@st.composite
def expressions(draw, depth=4):
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from([P, Q, R, index(draw(st.integers(-3, 130)))]))
    operator = draw(st.sampled_from(["add", "add", "sub", "mul", "mul", "div", "mod", "div", "mod", "min", "max"]))
    left = draw(expressions(depth=depth - 1))
    if operator in ("mul", "div", "mod"):
        return op(operator, left, draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 64, 96])))
    return op(operator, left, draw(expressions(depth=depth - 1)))


SPACE = Buffer("y", "int64", (index(4), index(12), index(64)))


@settings(max_examples=300, deadline=None)
@given(expressions())
def test_simplified_index_arithmetic_is_equal(expression):
    simple = simplify(expression, RANGES)
    before, after = (run_stages([Stage(SPACE, (P, Q, R), value)], {})[SPACE] for value in (expression, simple))
    np.testing.assert_array_equal(before, after)


@settings(max_examples=200, deadline=None)
@given(expressions(), expressions(), st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"]))
def test_simplified_comparisons_are_equal(left, right, operator):
    condition = Select(Binary(operator, left, right), index(1), index(0))
    before, after = (
        run_stages([Stage(SPACE, (P, Q, R), value)], {})[SPACE] for value in (condition, simplify(condition, RANGES))
    )
    np.testing.assert_array_equal(before, after)


@settings(max_examples=200, deadline=None)
@given(expressions(), st.sampled_from([2, 4, 8]))
def test_simplified_vector_index_arithmetic_is_equal(expression, lanes):
    from graft.core.schedule.primitives.vectorize import vectorize_expression

    ramp = Ramp(mul(Variable("block"), lanes), 1, lanes)
    block = ramp.base.left
    vector = simplify(vectorize_expression(expression, {R: ramp}), {P: (0, 3), Q: (0, 11), block: (0, 64 // lanes - 1)})
    for i, j, b in itertools.product((0, 3), (0, 5, 11), (0, 64 // lanes - 1)):
        fixed = {P: (i, i), Q: (j, j), block: (b, b)}
        lane_values = [
            simplify(expression, {P: (i, i), Q: (j, j), R: (k, k)}).value for k in range(b * lanes, (b + 1) * lanes)
        ]
        assert evaluate(simplify(vector, fixed), lanes) == lane_values


def evaluate(expression, lanes):
    from graft.core.tensor_ir.interpreting.interpreter import run_function
    from graft.core.tensor_ir.ir import Function

    x, y = Buffer("x", "int64", ()), Buffer("y", "int64", (index(lanes),))
    if expression.type.lanes == 1:
        expression = Broadcast(expression, lanes)
    body = Store(y, (Ramp(index(0), 1, lanes),), expression)
    return run_function(Function("f", (x, y), 1, body), [np.int64(0)])[0].tolist()
