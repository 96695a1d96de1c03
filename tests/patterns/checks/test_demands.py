"""Demands on one value that contradict each other."""

from __future__ import annotations

import pytest

from graft.errors import PatternError
from graft.patterns import Pattern, dominates, is_op, outputs, wildcard
from graft.patterns.checks.demands import demands, innermost, require_agreement
from graft.patterns.language import Together
from graft.patterns.value_constraints import Attributes, DtypeIs, RankIs

RELU, EXP = is_op("Relu"), is_op("Exp")


def test_the_innermost_pattern_stands_behind_names_demands_and_aliases() -> None:
    wrapped = RELU.named("r").has_rank(2).has_body("body", EXP)
    assert innermost(wrapped) is RELU
    assert innermost(wildcard().redirect_to(wrapped)) is RELU
    assert innermost(dominates(EXP, EXP, wrapped)) is RELU
    assert innermost(outputs(RELU.named("r"), EXP)) is RELU


def test_what_stands_for_itself_is_innermost() -> None:
    free, either = wildcard(), RELU | EXP
    assert innermost(free) is free
    assert innermost(either) is either
    empty = Together(())
    assert innermost(empty) is empty


def test_an_alias_of_itself_has_an_end() -> None:
    alias = wildcard()
    assert innermost(alias.redirect_to(alias)) is alias


def test_demands_are_told_outermost_first_and_alternatives_left_aside() -> None:
    pattern = (RELU.has_rank(2).named("r") & EXP.has_dtype("int8")).has_attr(axis=1)
    assert list(demands(pattern)) == [Attributes((("axis", 1),)), RankIs((2,)), DtypeIs(("int8",))]
    assert list(demands(RELU.has_rank(1) | EXP.has_rank(2))) == []


@pytest.mark.parametrize(
    "pattern",
    [
        wildcard().has_dtype("int8", "uint8").has_dtype("uint8", "int32"),
        wildcard().has_rank(2, 3).has_rank(3, 4),
        wildcard().has_shape("n", 4).has_rank(2),
        wildcard().has_shape("n", 4, ...).has_rank(3),
        RELU.has_attr(axis=1).has_attr(axis=1, group=2),
        RELU.has_attr(axis=lambda axis: axis > 1).has_attr(axis=0),
        RELU.has_attr(axis=0).has_attr(axis=lambda axis: axis > 1),
    ],
)
def test_demands_that_agree_are_taken(pattern: Pattern) -> None:
    require_agreement(pattern)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (
            wildcard().has_dtype("int8") & wildcard().has_dtype("float32", "float16"),
            "the pattern demands of one value the element types float16 or float32 and int8; it has one",
        ),
        (
            wildcard().has_rank(3).has_rank(2, 3).has_rank(2),
            "the pattern demands of one value the ranks 3 and 2; it has one",
        ),
        (
            wildcard().has_shape("n", None).has_shape("n"),
            "the pattern demands of one value the ranks 2 and 1; it has one",
        ),
        (
            RELU.has_attr(axis=1).has_attr(axis=2),
            "the pattern demands attribute axis of one node to be 1 and 2",
        ),
    ],
)
def test_demands_that_contradict_each_other_are_refused(pattern: Pattern, message: str) -> None:
    with pytest.raises(PatternError) as caught:
        require_agreement(pattern)
    assert str(caught.value) == message
