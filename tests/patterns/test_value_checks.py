"""Demands on one value, and what is said where they do not hold."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graft.core.graph.view import ValueView
from graft.errors import PatternError
from graft.patterns import (
    Pattern,
    is_constant,
    is_op,
    wildcard,
)
from graft.patterns.language import ConstantPattern
from graft.patterns.matching import match
from graft.patterns.value_checks import answer_of, constant_violation, shape_text, violation
from graft.patterns.value_constraints import Attributes, DtypeIs, RankIs, Where
from tests.patterns.graphs import graph_of, hits, root


def test_constants_match_by_value_and_by_predicate() -> None:
    body, more = "y = Mul(x, two)", {"more": "<float[1] two = {2}>"}
    assert hits(is_op("Mul")(wildcard(), is_constant()), body, **more) == ["y"]
    assert hits(is_op("Mul")(wildcard(), is_constant(2.0)), body, **more) == ["y"]
    assert hits(is_op("Mul")(wildcard(), is_constant(3.0)), body, **more) is None
    assert hits(is_op("Mul")(wildcard(), is_constant(where=lambda array: array.size == 1)), body, **more) == ["y"]
    assert hits(is_op("Mul")(wildcard(), is_constant(where=lambda array: array.size > 1)), body, **more) is None
    assert hits(is_op("Mul")(is_constant(), is_constant()), body, **more) is None
    assert hits(wildcard() * 2.0, "t = Constant <value = float {2.0}> ()\ny = Mul(x, t)") == ["y"]


def test_predicates_see_the_value() -> None:
    def is_wide(value: ValueView) -> bool:
        shape = value.static_shape
        return shape is not None and shape[-1] > 2

    assert hits(is_op("Relu").where(is_wide), "y = Relu(x)") == ["y"]
    assert hits(is_op("Relu").where(is_wide), "y = Relu(x)", inputs="float[3,2] x", outputs="float[3,2] y") is None


def test_constants_of_several_numbers_match_element_by_element() -> None:
    graph = graph_of("y = Mul(x, c)", more="<float[3] c = {1, 2, 3}>")
    assert match(is_op("Mul")(wildcard(), is_constant([1, 2, 3])), root(graph)) is not None
    assert match(is_op("Mul")(wildcard(), is_constant([1, 2])), root(graph)) is None
    assert match(is_op("Mul")(wildcard(), is_constant(where=lambda c: bool(np.all(c > 0)))), root(graph)) is not None


def big(value: object) -> bool:
    raise KeyError("size")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (
            is_op("Mul")(wildcard().where(big), wildcard()),
            "the predicate 'big' of a pattern raised KeyError for 'x': 'size'",
        ),
        (
            is_op("Mul")(wildcard(), is_constant(where=big)),
            "the predicate 'big' of a pattern raised KeyError for constant 'c': 'size'",
        ),
    ],
)
def test_predicates_that_fail_are_named(pattern: Pattern, message: str) -> None:
    with pytest.raises(PatternError) as caught:
        match(pattern, root(graph_of("y = Mul(x, c)", more="<float[3] c = {1, 2, 3}>")))
    assert str(caught.value) == message
    assert isinstance(caught.value.__cause__, KeyError)


def value_of_text(body: str, **more: str) -> ir.Value:
    return root(graph_of(body, **more)).outputs[0]


@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        (DtypeIs(("float32",)), None),
        (DtypeIs(("int8", "float16")), "dtype float32, wanted int8 or float16"),
        (RankIs((1, 2)), None),
        (RankIs((1, 3)), "rank 2, wanted 1 or 3"),
        (Attributes((("axis", -1),)), None),
        (Attributes((("axis", 1),)), None),
        (Attributes((("axis", 1), ("axis", 0))), "attribute axis of Softmax (node 'y') is -1, wanted 0"),
        (Attributes((("axis", callable),)), "attribute axis of Softmax (node 'y') is -1, which the predicate refuses"),
        (Where(lambda value: value.name == "y"), None),
        (Where(lambda value: False, "is wide"), "'y' does not satisfy is wide"),
        (Where(callable), "'y' does not satisfy callable"),
    ],
)
def test_a_demand_that_does_not_hold_says_what_is_there(
    constraint: Attributes | DtypeIs | RankIs | Where, text: str | None
) -> None:
    assert violation(constraint, value_of_text("y = Softmax(x)")) == text


def test_what_is_not_known_is_said_to_be_unknown() -> None:
    bare = ir.Value(name="v")
    assert violation(DtypeIs(("int8",)), bare) == "dtype unknown, wanted int8"
    assert violation(RankIs((1,)), bare) == "rank unknown, wanted 1"
    assert violation(Attributes((("axis", 1),)), bare) == "'v' is not computed by a node, so it has no attribute axis"
    assert violation(Attributes(()), bare) == "'v' is not computed by a node, so it has no attribute "


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (is_constant(), None),
        (is_constant([1.0, 2.0]), None),
        (is_constant([1.0, 2.0 + 1e-7]), None),
        (is_constant([1.0, 2.1]), "constant 'c' is float32[2], wanted [1.0, 2.1]"),
        (is_constant([1.0, 2.0, 3.0]), "constant 'c' is float32[2], wanted [1.0, 2.0, 3.0]"),
        (is_constant(1.0), "constant 'c' is float32[2], wanted 1.0"),
        (is_constant(where=lambda c: c.size == 2), None),
        (is_constant([1.0, 2.0], where=lambda c: False), "constant 'c' (float32[2]) does not satisfy the predicate"),
    ],
)
def test_a_constant_of_other_contents_is_told(pattern: ConstantPattern, text: str | None) -> None:
    constant = root(graph_of("y = Mul(x, c)", inputs="float[2] x", more="<float[2] c = {1, 2}>")).inputs[1]
    assert constant is not None
    assert constant_violation(pattern, constant) == text


def test_one_number_is_told_as_it_is_and_no_number_equals_an_empty_constant() -> None:
    graph = graph_of("a = Mul(x, one)\ny = Concat <axis = 0> (a, none)", inputs="float[2] x")
    one, none = ir.Value(name="one"), ir.Value(name="none")
    for value, contents in ((one, [3.0]), (none, [])):
        value.const_value = ir.tensor(np.array(contents, np.float32), name=value.name)
    assert constant_violation(is_constant(2.0), one) == "constant 'one' is 3.0, wanted 2.0"
    assert constant_violation(is_constant(2.0), none) == "constant 'none' is float32[0], wanted 2.0"
    assert constant_violation(is_constant(), graph.inputs[0]) == "'x' is not known at compile time, wanted a constant"


def test_shapes_are_printed_with_holes() -> None:
    assert shape_text((1, "n", None, ...)) == "[1,n,?,...]"
    assert shape_text(()) == "[]"
    assert shape_text(None) == "of unknown rank"


def test_an_answer_is_made_a_boolean_and_grafts_own_errors_pass() -> None:
    assert answer_of(lambda subject: np.True_, 0, "here") is True
    assert answer_of(lambda subject: [], 0, "here") is False

    def refuse(subject: object) -> bool:
        raise PatternError("as it is")

    with pytest.raises(PatternError) as caught:
        answer_of(refuse, 0, "here")
    assert str(caught.value) == "as it is"
