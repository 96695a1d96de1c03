from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graft.errors import PatternError
from graft.patterns import is_constant, is_op, outputs, wildcard
from graft.patterns.match import Match
from graft.patterns.rewrite import NewNodes, Rule, rewrite
from tests.patterns.graphs import graph_of


def text(graph: ir.Graph) -> list[str]:
    return [
        f"{', '.join(output.name or '' for output in node.outputs)} = {node.op_type}"
        f"({', '.join('' if value is None else value.name or '' for value in node.inputs)})"
        for node in graph
    ]


def test_a_match_is_replaced_and_its_unused_nodes_are_removed() -> None:
    graph = graph_of("a = MatMul(x, w)\ny = Add(a, b)", inputs="float[2,3] x, float[3,3] w, float[3] b")
    pattern = is_op("Add")(is_op("MatMul")(wildcard().named("x"), wildcard().named("w")), wildcard().named("b"))
    rule = Rule("gemm", pattern, lambda match, op: op("Gemm", match["x"], match["w"], match["b"], alpha=1.0))
    done = rewrite(graph, [rule])
    assert text(graph) == ["y = Gemm(x, w, b)"]
    assert (dict(done.applied), done.passes) == ({"gemm": 1}, 2)
    assert graph.outputs[0].name == "y"
    assert graph.outputs[0].shape == ir.Shape([2, 3])


def test_rules_are_applied_until_none_applies() -> None:
    graph = graph_of("a = Neg(x)\nb = Neg(a)\nc = Neg(b)\nd = Neg(c)\ny = Relu(d)")
    pattern = is_op("Neg")(is_op("Neg")(wildcard().named("x")))
    done = rewrite(graph, [Rule("neg neg", pattern, lambda match, op: match["x"])])
    assert text(graph) == ["y = Relu(x)"]
    assert done.applied["neg neg"] == 2


def test_a_rule_can_leave_a_match_alone() -> None:
    graph = graph_of("y = Relu(x)")
    assert not rewrite(graph, [Rule("never", is_op("Relu"), lambda match, op: None)])
    refused = Rule(
        "refused", is_op("Relu"), lambda match, op: op("Abs", match.root.input(0)), check=lambda match: False
    )
    assert not rewrite(graph, [refused])
    assert text(graph) == ["y = Relu(x)"]


def test_a_value_used_elsewhere_keeps_its_node() -> None:
    graph = graph_of("a = Neg(x)\nb = Neg(a)\ny = Add(a, b)")
    pattern = is_op("Neg")(is_op("Neg")(wildcard().named("x")))
    rewrite(graph, [Rule("neg neg", pattern, lambda match, op: match["x"])])
    assert text(graph) == ["a = Neg(x)", "y = Add(a, x)"]


def test_constants_are_made_in_the_graph() -> None:
    graph = graph_of("y = Mul(x, two)", more="<float two = {2}>")
    double = wildcard().named("x") * is_constant(2.0)
    rule = Rule("double", double, lambda match, op: op("Pow", match["x"], op.constant(np.array(1, np.float32))))
    rewrite(graph, [rule])
    assert [node.op_type for node in graph] == ["Constant", "Pow"]


def test_patterns_with_several_roots_are_replaced_at_once() -> None:
    shared = wildcard().named("x")
    pair = outputs(is_op("Relu")(shared), is_op("Exp")(shared))
    graph = graph_of("a = Relu(x)\nb = Exp(x)\ny = Add(a, b)")

    def build(match: Match, op: NewNodes) -> list[ir.Value]:
        return list(op.several("Split", 2, match["x"], num_outputs=2))

    rewrite(graph, [Rule("pair", pair, build)])
    assert [node.op_type for node in graph] == ["Split", "Add"]


def test_rules_that_undo_each_other_are_named() -> None:
    rules = [
        Rule("there", is_op("Relu")(wildcard().named("x")), lambda match, op: op("Abs", match["x"])),
        Rule("back", is_op("Abs")(wildcard().named("x")), lambda match, op: op("Relu", match["x"])),
    ]
    with pytest.raises(PatternError) as caught:
        rewrite(graph_of("y = Relu(x)"), rules, limit=5)
    assert str(caught.value) == (
        "after 5 passes the rules 'there', 'back' still apply; they undo each other, or make what they match"
    )


def test_a_rule_can_be_applied_once() -> None:
    graph = graph_of("a = Relu(x)\ny = Relu(a)")
    rule = Rule(
        "grow", is_op("Relu")(wildcard().named("x")), lambda match, op: op("Relu", op("Exp", match["x"])), once=True
    )
    done = rewrite(graph, [rule])
    assert [node.op_type for node in graph] == ["Exp", "Relu", "Exp", "Relu"]
    assert (done.applied["grow"], done.passes) == (2, 1)


def test_a_rule_that_builds_too_few_values_is_an_error() -> None:
    shared = wildcard().named("x")
    pair = outputs(is_op("Relu")(shared), is_op("Exp")(shared))
    graph = graph_of("a = Relu(x)\nb = Exp(x)\ny = Add(a, b)")
    with pytest.raises(PatternError) as caught:
        rewrite(graph, [Rule("pair", pair, lambda match, op: op("Abs", match["x"]))])
    assert str(caught.value) == "rule 'pair' built 1 values at Relu (node 'a'), its pattern has 2 outputs"
