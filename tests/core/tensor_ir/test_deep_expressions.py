"""Expressions of any depth, and such that a tree of them would have more nodes than there are atoms."""

from graft.core.tensor_ir.ir import (
    Binary,
    Cast,
    Select,
)
from graft.core.tensor_ir.rewriting.simplify import simplify
from graft.core.tensor_ir.visit import walk_expressions
from graft.core.types import FLOAT32, Type
from tests.core.tensor_ir.test_visit import deep


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
