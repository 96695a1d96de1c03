"""Expressions of any depth, and such that a tree of them would have more nodes than there are atoms."""

import time

import numpy as np
import pytest

from graft.core.operators.definition.build import index
from graft.core.schedule.loops.inline import inline_stages
from graft.core.schedule.loops.nest import operations
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.ir import (
    Binary,
    Buffer,
    Cast,
    Constant,
    Expression,
    Load,
    Select,
    Stage,
    Store,
    Unary,
    Variable,
)
from graft.core.tensor_ir.rewriting.sharing import bind_shared
from graft.core.tensor_ir.rewriting.simplify import simplify
from graft.core.tensor_ir.visit import ExpressionMap, substitute, unknown, walk_expressions
from graft.core.types import FLOAT32, Type

DEPTH = 20_000


def deep(depth: int = DEPTH) -> Expression:
    value: Expression = Variable("x", FLOAT32)
    for _ in range(depth):
        value = Binary("add", value, value)
    return value


def test_a_map_visits_every_node_of_a_deep_expression_once():
    seen = []
    result = ExpressionMap(lambda node: (seen.append(1), node)[1])(value := deep())
    assert result is value
    assert len(seen) == DEPTH + 1


def test_a_deep_expression_is_substituted():
    variable = Variable("x", FLOAT32)
    value: Expression = variable
    for _ in range(DEPTH):
        value = Unary("neg", value)
    replaced = substitute(value, {variable: Constant(1.0, FLOAT32)})
    assert next(walk_expressions(replaced)) == Constant(1.0, FLOAT32)


def test_a_deep_expression_is_simplified():
    assert sum(1 for _ in walk_expressions(simplify(deep(5000)))) == 5001


def test_the_type_of_a_deep_expression_is_known():
    value = deep()
    assert value.type == FLOAT32
    test = Binary("lt", value, value)
    assert test.type == Type("bool")
    assert Select(test, value, value).type == FLOAT32
    assert Cast(test, "int32").type == Type("int32")
    assert Cast(Cast(value, "float64"), "float16").type == Type("float16")


def test_a_deep_statement_is_bound_to_names():
    output = Buffer("y", "float32", ())
    started = time.process_time()
    bind_shared(Store(output, (), deep(2000)))
    assert time.process_time() - started < 20


def test_what_is_unknown_is_yielded_operands_first():
    value = deep(3)
    known: set[int] = set()
    order = []
    for node in unknown(value, known):
        known.add(id(node))
        order.append(node)
    assert order == list(walk_expressions(value))
    assert list(unknown(value, known)) == []


def chain(length: int) -> tuple[Buffer, list[Stage]]:
    """Stages that each add the one before to itself, loaded twice."""
    source = before = Buffer("x", "float32", (index(3),))
    stages = []
    for number in range(length):
        axis, buffer = Variable("i"), Buffer(f"v{number}", "float32", (index(3),))
        value = Binary("add", Load(before, (axis,)), Load(before, (axis,)))
        stages.append(Stage(buffer, (axis,), value))
        before = buffer
    return source, stages


def test_a_value_that_is_read_twice_is_inlined_once():
    source, stages = chain(60)
    (whole,) = inline_stages(stages, {stages[-1].buffer})
    count = operations(whole.value)  # an assertion would print the expression as a tree
    assert count == 60 + 2
    x = np.array([1, 2, 3], np.float32)
    result = run_stages([whole], {source: x})[stages[-1].buffer]
    np.testing.assert_array_equal(result, x * np.float32(2.0**60))


def test_equal_indices_that_are_not_one_object_are_one_place():
    source = Buffer("x", "float32", (index(4),))
    middle, last = Buffer("v", "float32", (index(4),)), Buffer("y", "float32", (index(3),))
    i, j = Variable("i"), Variable("j")
    first = Stage(middle, (i,), Unary("neg", Load(source, (i,))))
    loads = [Load(middle, (Binary("add", j, index(1)),)) for _ in range(2)]
    (whole,) = inline_stages([first, Stage(last, (j,), Binary("mul", *loads))], {last})
    assert isinstance(whole.value, Binary)
    assert whole.value.left is whole.value.right


@pytest.mark.parametrize("length", [1, 5])
def test_short_chains_are_inlined_as_before(length):
    source, stages = chain(length)
    x = np.array([1, 2, 3], np.float32)
    whole = inline_stages(stages, {stages[-1].buffer})
    assert len(whole) == 1
    np.testing.assert_array_equal(
        run_stages(whole, {source: x})[stages[-1].buffer], run_stages(stages, {source: x})[stages[-1].buffer]
    )
