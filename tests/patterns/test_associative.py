"""Nests of an associative operator in other groupings."""

from __future__ import annotations

from graft.patterns import (
    is_op,
    wildcard,
)
from tests.patterns.graphs import hits


def test_nests_of_an_associative_operator_match_in_any_grouping() -> None:
    pattern = (is_op("Relu")(wildcard()) + is_op("Exp")(wildcard())) + is_op("Tanh")(wildcard())
    start = "r = Relu(x)\ne = Exp(x)\nt = Tanh(x)\n"
    for body in ("s = Add(e, t)\ny = Add(r, s)", "s = Add(r, t)\ny = Add(s, e)", "s = Add(t, e)\ny = Add(s, r)"):
        found = hits(pattern, start + body)
        assert found is not None
        assert sorted(found) == ["e", "r", "s", "t", "y"]
    assert hits(pattern, start + "s = Sub(r, e)\ny = Add(s, t)") is None


def test_products_and_quotients_of_floats_regroup() -> None:
    a, b, c = is_op("Relu")(wildcard()), is_op("Exp")(wildcard()), is_op("Tanh")(wildcard())
    start = "a = Relu(x)\nb = Exp(x)\nc = Tanh(x)\n"
    for body in ("q = Div(b, c)\ny = Mul(a, q)", "q = Div(a, c)\ny = Mul(b, q)", "q = Mul(a, b)\ny = Div(q, c)"):
        assert hits(a * b / c, start + body) is not None
    assert hits(a * b / c, start + "q = Div(c, b)\ny = Mul(a, q)") is None
    integers = {"inputs": "int64[2] x", "outputs": "int64[2] y"}
    whole = is_op("Abs")(wildcard()) * is_op("Neg")(wildcard()) / is_op("Sign")(wildcard())
    start = "a = Abs(x)\nb = Neg(x)\nc = Sign(x)\n"
    assert hits(whole, start + "q = Mul(a, b)\ny = Div(q, c)", **integers) is not None
    assert hits(whole, start + "q = Div(b, c)\ny = Mul(a, q)", **integers) is None


def test_sums_of_any_number_of_terms_regroup() -> None:
    given = {"inputs": "float[2,3] x, float[2,3] q"}
    terms = [wildcard().named(name) for name in "abcde"]
    pattern = is_op("Relu").named("r")
    for term in terms:
        pattern = pattern + term  # type: ignore[assignment]
    body = "r = Relu(x)\na = Add(x, q)\nb = Add(q, r)\nc = Add(a, b)\nd = Add(q, x)\ny = Add(d, c)"
    assert sorted(hits(pattern, body, **given) or []) == ["a", "b", "c", "d", "r", "y"]
    assert hits(pattern, body.replace("Relu", "Exp"), **given) is None
    assert hits(pattern, body.replace("a = Add(x, q)", "a = Mul(x, q)"), **given) is None
