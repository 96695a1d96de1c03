"""Models written from patterns, and what nearly matches them."""

from __future__ import annotations

import onnx
import pytest

from graft.patterns import is_constant, is_op, wildcard
from graft.patterns.language import Pattern
from graft.testkit.conformance.cases.near_misses import near_misses
from graft.testkit.conformance.cases.synthesis import Unwritable, instances

PRODUCT = is_op("MatMul")(wildcard(), is_constant())


def nodes(pattern: Pattern) -> list[list[str]]:
    return [[node.op_type for node in trial.proto.graph.node] for _, trial in instances(pattern)]


def test_a_pattern_is_written_for_every_shape_that_its_operators_take() -> None:
    assert nodes(is_op("Relu")(PRODUCT)) == [["MatMul", "Relu"]] * 3
    assert nodes(is_op("Relu")(is_op("Conv")(wildcard(), wildcard()))) == [["Conv", "Relu"]] * 2


def test_every_option_of_every_alternative_is_taken_once() -> None:
    found = nodes(is_op("Relu", "Tanh")(PRODUCT | is_op("Add")(PRODUCT, is_constant())))
    assert next(one for one in found if len(one) == 3) == ["MatMul", "Add", "Relu"]
    assert ["MatMul", "Tanh"] in found


def test_a_pattern_that_stands_twice_is_one_value() -> None:
    x = wildcard()
    ((_, trial), *_) = instances(is_op("Mul")(x, is_op("Sigmoid")(x)))
    assert len(trial.feeds) == 1


def test_attributes_are_those_that_are_demanded() -> None:
    ((_, trial), *_) = instances(is_op("LeakyRelu")(PRODUCT).has_attr(alpha=0.5))
    assert onnx.helper.get_node_attr_value(trial.proto.graph.node[1], "alpha") == 0.5


def test_what_the_kit_cannot_write_it_says() -> None:
    with pytest.raises(Unwritable, match=r"'com.acme::Fast' is no operator of ONNX|'Fast' is no operator of ONNX"):
        list(instances(is_op("Fast", domain="com.acme")(wildcard())))


def test_near_misses_leak_feed_swap_and_change() -> None:
    ((_, trial), *_) = instances(is_op("Relu")(PRODUCT))
    names = {name for name, _ in near_misses(trial)}
    assert {"output-v0", "read-v0", "fed-c0", "n1-Abs", "in-float64", "symbolic"} <= names
    for name, miss in near_misses(trial):
        if name != "symbolic":
            onnx.checker.check_model(miss.proto)
