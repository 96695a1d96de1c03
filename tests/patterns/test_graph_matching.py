"""Patterns of several roots, users, dominators, repeats: what they match in larger graphs."""

from __future__ import annotations

from graft.patterns import (
    dominates,
    is_constant,
    is_input,
    is_op,
    outputs,
    repeat,
    wildcard,
)
from graft.patterns.matching import match
from tests.patterns.graphs import graph_of, hits, names, root

ROWS = {"inputs": "float[seq,8] x", "outputs": "float[seq,8] y"}
CHAIN = "a = Relu(x)\ny = Exp(a)"


def test_several_roots_share_their_inputs() -> None:
    shared = is_op("Relu")(wildcard())
    pair = outputs(is_op("Exp")(shared), is_op("Tanh")(shared))
    graph = graph_of("a = Relu(x)\nt = Tanh(a)\ny = Exp(a)", outputs="float[2,3] y, float[2,3] t")
    assert names(match(pair, root(graph))) == ["a", "t", "y"]
    other = graph_of("a = Relu(x)\nb = Relu(x)\nt = Tanh(b)\ny = Exp(a)", outputs="float[2,3] y, float[2,3] t")
    assert match(pair, root(other)) is None


def test_roots_without_anything_in_common_are_searched_in_the_graph() -> None:
    pair = outputs(is_op("Exp")(wildcard()), is_op("Tanh")(wildcard()))
    graph = graph_of("t = Tanh(x)\na = Relu(x)\ny = Exp(a)", outputs="float[2,3] y, float[2,3] t")
    found = match(pair, root(graph))
    assert found is not None
    assert {node.name for node in found.nodes} == {"t", "y"}


def test_used_by_and_only_used_by_look_at_users() -> None:
    relu, exp, sub = is_op("Relu"), is_op("Exp"), is_op("Sub")
    body = "a = Relu(x)\nb = Exp(a)\ny = Sub(b, a)"
    assert hits(relu ^ sub, body) == ["a", "y"]
    assert hits(relu >> sub, body) is None
    assert hits(exp >> sub, body) == ["b", "y"]
    assert hits(relu.used_by(sub, 1), body) == ["a", "y"]
    assert hits(relu.used_by(sub, 0), body) is None
    assert hits(is_op("Relu") ^ is_op("Exp") >> is_op("Sub"), body) == ["a", "b", "y"]
    assert hits(is_op("Relu") >> is_op("Exp") >> is_op("Sub"), body) is None
    assert hits((relu ^ sub) & (relu ^ exp), body) == ["a", "b", "y"]


def test_a_value_that_forks_to_several_consumers() -> None:
    pattern = is_op("Relu").fork_to(is_op("Exp"), is_op("Tanh"))
    graph = graph_of("a = Relu(x)\nt = Tanh(a)\ny = Exp(a)", outputs="float[2,3] y, float[2,3] t")
    found = match(pattern, root(graph))
    assert found is not None
    assert {node.name for node in found.nodes} == {"a", "t", "y"}
    apart = graph_of("a = Relu(x)\nt = Tanh(x)\ny = Exp(a)", outputs="float[2,3] y, float[2,3] t")
    assert match(pattern, root(apart)) is None


def test_recursive_patterns_match_chains_of_any_length() -> None:
    chain = repeat(lambda inner: is_op("Relu")(inner), is_input().named("start"))
    for length in range(4):
        body = "".join(f"v{i + 1} = Relu(v{i})\n" for i in range(length)) + f"y = Exp(v{length})"
        found = match(is_op("Exp")(chain), root(graph_of(body, inputs="float[2,3] v0")))
        assert found is not None
        assert len(found.nodes) == length + 1
        assert found["start"].name == "v0"
    assert hits(is_op("Exp")(chain), "a = Tanh(x)\ny = Exp(a)") is None


def test_repeats_have_a_least_number_and_capture_every_round() -> None:
    step_twice = repeat(lambda inner: inner + is_constant().named("bias"), is_input(), least=1)
    graph = graph_of("a = Add(x, b1)\ny = Add(a, b2)", more="<float b1 = {1}, float b2 = {2}>")
    found = match(step_twice, root(graph))
    assert found is not None
    assert [value.name for value in found.all("bias")] == ["b2", "b1"]
    assert match(repeat(lambda inner: is_op("Relu")(inner), wildcard(), least=3), root(graph_of(CHAIN))) is None


def test_patterns_of_one_match_that_are_outputs_are_several_values() -> None:
    x = wildcard()
    products = outputs(*(is_op("MatMul")(x, is_constant()) for _ in range(3)))
    weights = {
        "inputs": "float[3,3] x",
        "more": "<float[3,3] w, float[3,3] v, float[3,3] u>",
        "outputs": "float[3,3] y",
    }
    weights["more"] = "<" + ", ".join(f"float[1,1] {name} = {{1}}" for name in "wvu") + ">"
    assert hits(products, "y = MatMul(x, w)", **weights) is None
    three = "a = MatMul(x, w)\nb = MatMul(x, v)\ny = MatMul(x, u)"
    assert sorted(hits(products, three, **weights) or []) == ["a", "b", "y"]


def test_long_chains_repeat_without_recursion() -> None:
    body = "".join(f"v{i + 1} = Relu(v{i})\n" for i in range(3000)) + "y = Exp(v3000)"
    chain = repeat(lambda inner: is_op("Relu")(inner), is_input().named("start"))
    node = root(graph_of(body, inputs="float[2,3] v0"))
    found = match(is_op("Exp")(chain), node)
    assert found is not None
    assert len(found.members) == 3001
    assert dominates(is_op("Relu"), wildcard(), is_op("Exp")) is not None
    long = match(dominates(is_input(), is_op("Relu"), is_op("Exp")), node)
    assert long is not None
    assert len(long.members) == 3001
