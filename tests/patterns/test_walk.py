"""The parts of a pattern, and the operators that can be its root."""

from __future__ import annotations

from graft.patterns import dominates, is_composite, is_constant, is_if, is_op, outputs, wildcard
from graft.patterns.language import Pattern
from graft.patterns.walk import family_of, nest_family, parts, root_operators, walk

X, RELU, EXP = wildcard(), is_op("Relu"), is_op("Exp")


def names_of(pattern: Pattern) -> set[str] | None:
    roots = root_operators(pattern)
    return None if roots is None else {name for _, name in roots}


def test_parts_are_in_the_order_in_which_they_are_matched() -> None:
    alias = wildcard()
    assert parts(alias) == ()
    assert parts(alias.redirect_to(RELU)) == (RELU,)
    assert parts(is_op("Add")(RELU, EXP)) == (RELU, EXP)
    assert parts(RELU) == parts(is_constant()) == ()
    assert parts(RELU[0]) == (RELU,)
    assert parts(RELU | EXP) == parts(RELU & EXP) == (RELU, EXP)
    assert parts(~RELU) == parts(RELU.named("r")) == parts(RELU.has_rank(2)) == (RELU,)
    assert parts(RELU.same_shape_as(EXP)) == parts(RELU.has_body("body", EXP)) == (RELU, EXP)
    assert parts(dominates(X, RELU, EXP)) == (EXP, RELU, X)
    assert parts(outputs(RELU, EXP)) == (RELU, EXP)


def test_a_walk_names_every_part_once_outermost_first() -> None:
    shared = is_op("Relu")(X)
    inner = is_op("Exp")(shared)
    whole = is_op("Sub")(inner, shared)
    assert walk(whole) == [whole, inner, shared, X]
    assert walk(X) == [X]


def test_a_walk_ends_in_a_recursive_pattern() -> None:
    alias = wildcard()
    step = is_op("Relu")(alias)
    alias.redirect_to(step | EXP)
    assert set(walk(alias)) == {alias, step, EXP, alias.target}


def test_differences_and_quotients_belong_to_sums_and_products() -> None:
    assert [family_of(is_op(name)(X, X)) for name in ("Add", "Sub", "Mul", "Div", "Max")] == [
        "Add", "Add", "Mul", "Mul", "Max",
    ]  # fmt: skip


def test_only_a_pattern_of_one_operator_with_two_inputs_has_a_family() -> None:
    assert family_of(X) is None
    assert family_of(is_op("Add")) is None
    assert family_of(is_op("Relu")(X)) is None
    assert family_of(is_op("Add")(X, ...)) is None
    assert family_of(is_op("Add")(X, X, ...)) is None
    assert family_of(is_op("Add", "Mul")(X, X)) is None
    assert family_of(is_op("Add", domain="com.acme")(X, X)) is None


def test_a_nest_has_an_operator_of_its_family_as_an_argument() -> None:
    assert nest_family(is_op("Sub")(X, X + X)) == "Add"
    assert nest_family(is_op("Add")(X, X * X)) is None
    assert nest_family(is_op("Relu")(X)) is None


def test_the_roots_of_an_operator_are_its_names_and_of_a_nest_its_family() -> None:
    assert root_operators(is_op("Conv", "Gemm", domain="com.acme")) == {("com.acme", "Conv"), ("com.acme", "Gemm")}
    assert names_of(X + X) == {"Add"}
    assert names_of((X + X) - X) == {"Add", "Sub"}
    assert names_of((X * X) * X) == {"Mul", "Div"}


def test_the_roots_lie_behind_names_demands_bodies_and_outputs() -> None:
    for pattern in (RELU[1], RELU.named("r"), RELU.has_rank(1), RELU.has_body("body", EXP), outputs(RELU, EXP)):
        assert names_of(pattern) == {"Relu"}
    assert names_of(dominates(X, EXP, RELU)) == {"Relu"}
    assert names_of(is_if(X, RELU)) == {"If"}
    assert names_of(wildcard().redirect_to(RELU)) == {"Relu"}


def test_what_may_be_anything_has_no_known_roots() -> None:
    for pattern in (X, is_constant(), ~RELU, RELU | X, is_composite("npu.conv"), X & is_constant()):
        assert root_operators(pattern) is None


def test_alternatives_join_roots_and_both_patterns_share_them() -> None:
    assert names_of(RELU | EXP) == {"Relu", "Exp"}
    assert names_of(is_op("Relu", "Exp") & is_op("Exp", "Tanh")) == {"Exp"}
    assert names_of(RELU & X) == names_of(X & RELU) == {"Relu"}
    assert names_of(RELU & EXP) == set()


def test_a_recursive_pattern_has_the_roots_of_where_it_ends() -> None:
    alias = wildcard()
    alias.redirect_to(alias | RELU)
    assert names_of(alias) == {"Relu"}
