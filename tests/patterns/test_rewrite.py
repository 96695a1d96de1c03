from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graft.errors import PatternError
from graft.patterns import is_constant, is_op, outputs, repeat, wildcard
from graft.patterns.match import Match
from graft.patterns.rewrite import Build, NewNodes, Rule, rewrite
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
        return list(op.several("Split", 2, op("Concat", match["x"], match["x"], axis=0), num_outputs=2))

    rewrite(graph, [Rule("pair", pair, build)])
    assert [node.op_type for node in graph] == ["Concat", "Split", "Add"]


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


def test_rules_take_the_longest_form_of_what_repeats() -> None:
    graph = graph_of("a = Relu(x)\nb = Relu(a)\nc = Relu(b)\ny = Exp(c)")
    chain = repeat(lambda inner: is_op("Relu")(inner), wildcard().named("x"), least=1)
    done = rewrite(graph, [Rule("one relu", chain, lambda match, op: op("Abs", match.all("x")[-1]))])
    assert text(graph)[-1] == "y = Exp(val_0)"
    assert [node.op_type for node in graph] == ["Abs", "Exp"]
    assert done.applied["one relu"] == 1


def test_rules_reach_into_bodies() -> None:
    graph = graph_of(
        """y = If(c) <
          then_branch = t () => (float[2,3] a) { n = Neg(x) a = Neg(n) },
          else_branch = e () => (float[2,3] b) { b = Abs(x) }
        >""",
        inputs="float[2,3] x, bool c",
    )
    rule = Rule("neg neg", is_op("Neg")(is_op("Neg")(wildcard().named("x"))), lambda match, op: match["x"])
    assert rewrite(graph, [rule]).applied["neg neg"] == 1
    body = graph[0].attributes["then_branch"].as_graph()
    assert text(body) == ["a = Identity(x)"]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda match, op: op("Cast", match["x"], to=11),
            "rule 'bad' at Relu (node 'y'): it replaces 'y', float32[2,3], by float64[2,3]; "
            "build a value of the same type and shape, or return None for this match",
        ),
        (
            lambda match, op: op("Transpose", match["x"]),
            "rule 'bad' at Relu (node 'y'): it replaces 'y', float32[2,3], by float32[3,2]; "
            "build a value of the same type and shape, or return None for this match",
        ),
        (
            lambda match, op: op("Reul", match["x"]),
            "rule 'bad' at Relu (node 'y'): ONNX has no operator 'Reul'; did you mean 'Relu'?",
        ),
    ],
)
def test_a_rule_that_builds_something_else_is_an_error(build: Build, message: str) -> None:
    with pytest.raises(PatternError) as caught:
        rewrite(graph_of("y = Relu(x)"), [Rule("bad", is_op("Relu")(wildcard().named("x")), build)])
    assert str(caught.value) == message


def test_a_rule_applied_once_does_not_match_what_it_made() -> None:
    x = wildcard().named("x")
    pair = outputs(is_op("Relu")(x), is_op("Relu")(x))

    def build(match: Match, op: NewNodes) -> list[ir.Value]:
        made = op("Relu", match["x"])
        return [made, op("Identity", made)]

    graph = graph_of("a = Relu(x)\nb = Relu(x)\nc = Relu(x)\nd = Add(a, b)\ny = Add(d, c)")
    done = rewrite(graph, [Rule("pair", pair, build, once=True)])
    assert done.applied == {"pair": 1}
    assert [node.op_type for node in graph] == ["Relu", "Relu", "Identity", "Add", "Add"]
