"""One value takes the place of another: its uses, its name, its type."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from graft.errors import PatternError
from graft.patterns import is_op, outputs, wildcard
from graft.patterns.match import Match
from graft.patterns.rewrite import NewNodes, Rule, rewrite
from graft.patterns.take_over import agree, is_safe, take_over
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


def test_new_values_take_the_type_and_shape_that_they_lack() -> None:
    graph = graph_of("y = Relu(x)")
    before, after = graph.outputs[0], ir.Value(name="v")
    agree(before, after)
    assert (after.type, str(after.shape)) == (before.type, "[2,3]")
    assert after.shape is not before.shape
    after.shape = ir.Shape(["n", 3])
    agree(before, after)
    assert str(after.shape) == "[2,3]"
    symbolic = ir.Value(name="w", type=before.type, shape=ir.Shape(["m", 3]))
    agree(symbolic, before)
    assert str(before.shape) == "[2,3]"


@pytest.mark.parametrize("shape", [[2, 3, 1], [2], [2, 4], ["n", 4]])
def test_a_value_of_another_shape_is_refused(shape: list[int | str]) -> None:
    before = graph_of("y = Relu(x)").outputs[0]
    with pytest.raises(PatternError) as caught:
        agree(before, ir.Value(name="v", type=before.type, shape=ir.Shape(shape)))
    assert str(caught.value) == (
        f"it replaces 'y', float32[2,3], by float32[{','.join(map(str, shape))}]; "
        "build a value of the same type and shape, or return None for this match"
    )


def test_a_replacement_that_reads_what_reads_the_old_value_would_make_a_cycle() -> None:
    graph = graph_of("a = Relu(x)\nb = Exp(a)\nc = Tanh(b)\ny = Neg(x)")
    a, b, c, y = graph
    above, below = ir.Node("", "Abs", [graph.inputs[0]]), ir.Node("", "Abs", [c.outputs[0]])
    assert is_safe(a.outputs, [above])
    assert not is_safe(a.outputs, [below])
    assert not is_safe([y.outputs[0], a.outputs[0]], [above, below])
    assert is_safe(a.outputs, [])
    assert is_safe(c.outputs, [ir.Node("", "Abs", [b.outputs[0]])])


def test_uses_in_what_was_just_made_and_in_its_bodies_stay() -> None:
    graph = graph_of(
        """a = Relu(x)
        m = If(c) <
          then_branch = t () => (float[2,3] p) { p = Neg(a) },
          else_branch = e () => (float[2,3] q) { q = Abs(a) }
        >
        y = Exp(a)""",
        inputs="float[2,3] x, bool c",
    )
    old, made, last = graph
    assert take_over(graph, old.outputs[0], made.outputs[0], [made])
    assert last.inputs[0] is made.outputs[0]
    assert {use.node.op_type for use in old.outputs[0].uses()} == {"Neg", "Abs"}
