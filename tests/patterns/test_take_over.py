"""One value takes the place of another: its uses, its name, its type."""

from __future__ import annotations

import onnx_ir as ir

from graft.patterns import is_op, outputs, wildcard
from graft.patterns.match import Match
from graft.patterns.rewrite import NewNodes, Rule, rewrite
from tests.patterns.graphs import graph_of


def text(graph: ir.Graph) -> list[str]:
    return [
        f"{', '.join(output.name or '' for output in node.outputs)} = {node.op_type}"
        f"({', '.join('' if value is None else value.name or '' for value in node.inputs)})"
        for node in graph
    ]


def test_a_result_can_wrap_what_it_replaces() -> None:
    graph = graph_of("a = Neg(x)\ny = Abs(a)")
    wrap = Rule("wrap", is_op("Neg"), lambda match, op: op("Relu", match.root.outputs[0]), once=True)
    rewrite(graph, [wrap])
    assert [node.op_type for node in graph] == ["Neg", "Relu", "Abs"]
    assert graph[1].inputs[0] is graph[0].outputs[0]
    assert graph[2].inputs[0] is graph[1].outputs[0]


def test_an_output_of_the_model_that_is_wrapped_keeps_its_name() -> None:
    graph = graph_of("y = Neg(x)", more="<float[1] y_replaced = {1}>")
    rewrite(graph, [Rule("wrap", is_op("Neg"), lambda match, op: op("Relu", match.root.outputs[0]), once=True)])
    assert text(graph) == ["y_replaced_2 = Neg(x)", "y = Relu(y_replaced_2)"]


def test_an_output_of_the_model_that_becomes_an_input_keeps_its_name() -> None:
    graph = graph_of("a = Neg(x)\ny = Neg(a)")
    rewrite(graph, [Rule("neg neg", is_op("Neg")(is_op("Neg")(wildcard().named("x"))), lambda match, op: match["x"])])
    assert text(graph) == ["y = Identity(x)"]
    assert [value.name for value in graph.outputs] == ["y"]


def test_an_identity_that_names_an_output_is_not_removed_for_ever() -> None:
    graph = graph_of("y = Identity(x)")
    done = rewrite(graph, [Rule("identity", is_op("Identity")(wildcard().named("x")), lambda match, op: match["x"])])
    assert text(graph) == ["y = Identity(x)"]
    assert not done


def test_two_outputs_of_the_model_keep_their_names() -> None:
    graph = graph_of("a = Relu(x)\ny = Identity(a)", outputs="float[2,3] a, float[2,3] y")
    rewrite(graph, [Rule("identity", is_op("Identity")(wildcard().named("x")), lambda match, op: match["x"])])
    assert [value.name for value in graph.outputs] == ["a", "y"]


def test_outputs_are_not_joined_around_what_lies_between_them() -> None:
    shared = wildcard().named("x")
    pair = outputs(is_op("Relu")(shared), is_op("Exp")(wildcard().named("z")))
    graph = graph_of("a = Relu(x)\nm = Neg(a)\nb = Exp(m)\ny = Add(b, a)")

    def build(match: Match, op: NewNodes) -> list[ir.Value]:
        return [op("Sum", match["x"], match["z"]), op("Max", match["x"], match["z"])]

    assert not rewrite(graph, [Rule("pair", pair, build)])
    assert [node.op_type for node in graph] == ["Relu", "Neg", "Exp", "Add"]
