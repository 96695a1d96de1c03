"""What every construct of the pattern language matches, and what it does not."""

from __future__ import annotations

import onnx_ir as ir

from graft.core.operators.definition.table import Operator, OperatorTable
from graft.patterns import (
    absent,
    is_composite,
    is_if,
    is_input,
    is_op,
    is_region,
    wildcard,
)
from graft.patterns.matching import match, matches
from tests.patterns.graphs import graph_of, hits, names, root

CHAIN = "a = Relu(x)\ny = Exp(a)"


def test_an_operator_matches_by_any_of_its_names_and_its_domain() -> None:
    assert hits(is_op("Exp"), CHAIN) == ["y"]
    assert hits(is_op("Log", "Exp"), CHAIN) == ["y"]
    assert hits(is_op("Relu"), CHAIN) is None
    assert hits(is_op("Exp", domain="com.acme"), CHAIN) is None
    assert hits(is_op("Glue", domain="com.acme"), "y = com.acme.Glue(x)") == ["y"]
    assert hits(is_op("Exp", domain="ai.onnx"), CHAIN) == ["y"]


def test_arguments_reach_up_the_graph() -> None:
    assert hits(is_op("Exp")(is_op("Relu")(wildcard())), CHAIN) == ["a", "y"]
    assert hits(is_op("Exp")(is_op("Tanh")(wildcard())), CHAIN) is None


def test_arguments_are_exact_a_prefix_or_any() -> None:
    body = "y = Clip(x, low, high)"
    inputs = {"inputs": "float[2,3] x, float low, float high"}
    assert hits(is_op("Clip")(wildcard(), wildcard(), wildcard()), body, **inputs) == ["y"]
    assert hits(is_op("Clip")(wildcard(), wildcard()), body, **inputs) is None
    assert hits(is_op("Clip")(wildcard(), ...), body, **inputs) == ["y"]
    assert hits(is_op("Clip")(...), body, **inputs) == ["y"]
    assert hits(is_op("Clip"), body, **inputs) == ["y"]


def test_an_absent_input_is_told_from_one_that_is_there() -> None:
    inputs = {"inputs": "float[2,3] x, float high"}
    some, full = "y = Clip(x, , high)", "y = Clip(x, high, high)"
    assert hits(is_op("Clip")(wildcard(), absent(), wildcard()), some, **inputs) == ["y"]
    assert hits(is_op("Clip")(wildcard(), absent(), wildcard()), full, **inputs) is None
    assert hits(is_op("Clip")(wildcard(), wildcard(), wildcard()), some, **inputs) is None
    either = is_op("Clip")(wildcard(), wildcard() | absent(), wildcard())
    assert hits(either, some, **inputs) == hits(either, full, **inputs) == ["y"]
    assert hits(is_op("Clip")(wildcard(), absent(), absent()), "y = Clip(x)", **inputs) == ["y"]


def test_inputs_of_the_graph_match_by_name() -> None:
    assert hits(is_op("Relu")(is_input()), "y = Relu(x)") == ["y"]
    assert hits(is_op("Relu")(is_input("x")), "y = Relu(x)") == ["y"]
    assert hits(is_op("Relu")(is_input("z")), "y = Relu(x)") is None
    assert hits(is_op("Exp")(is_input()), CHAIN) is None


def test_a_chosen_output_of_a_node_with_several() -> None:
    body = "a, b = Split <num_outputs = 2> (x)\ny = Sub(b, a)"
    split = is_op("Split")(wildcard())
    shape = {"inputs": "float[4,3] x"}
    assert hits(is_op("Sub")(split[1], split[0]), body, **shape) == ["a", "y"]
    assert hits(is_op("Sub")(split.output(0), split.output(1)), body, **shape) is None
    assert hits(is_op("Sub")(wildcard(), split), body, **shape) == ["a", "y"]
    assert hits(is_op("Sub")(split, wildcard()), body, **shape) is None


def test_one_pattern_object_stands_for_one_node() -> None:
    conv = is_op("Relu")(wildcard())
    diamond = is_op("Exp")(conv) - conv
    assert hits(diamond, "a = Relu(x)\nb = Exp(a)\ny = Sub(b, a)") == ["a", "b", "y"]
    assert hits(diamond, "a = Relu(x)\nc = Relu(x)\nb = Exp(a)\ny = Sub(b, c)") is None
    same = wildcard()
    assert hits(is_op("Mul")(same, same), "y = Mul(x, x)") == ["y"]
    assert hits(is_op("Mul")(same, same), "a = Exp(x)\ny = Mul(x, a)") is None


def test_commutative_operators_match_in_both_orders() -> None:
    pattern = is_op("Add", "Max", "Sub")(is_op("Relu"), wildcard())
    assert hits(pattern, "a = Relu(x)\ny = Add(x, a)") == ["a", "y"]
    assert hits(pattern, "a = Relu(x)\ny = Max(x, a)") == ["a", "y"]
    assert hits(pattern, "a = Relu(x)\ny = Sub(x, a)") is None


def test_commutative_operators_with_more_inputs_match_in_any_order() -> None:
    pattern = is_op("Sum")(is_op("Relu"), is_op("Exp"), wildcard())
    assert hits(pattern, "a = Relu(x)\nb = Exp(x)\ny = Sum(x, b, a)") == ["b", "a", "y"]


def test_which_operators_commute_is_the_tables_word() -> None:
    graph = graph_of("a = Relu(x)\ny = Add(x, a)")
    pattern = is_op("Add")(is_op("Relu"), wildcard())
    table = OperatorTable()
    table.add(Operator("Add"))
    assert match(pattern, root(graph), operators=table) is None


def test_arguments_in_any_order() -> None:
    pattern = is_op("Concat")(is_op("Relu"), is_op("Exp"))
    body = "a = Relu(x)\nb = Exp(x)\ny = Concat <axis = 0> (b, a)"
    assert hits(pattern, body) is None
    assert hits(pattern.in_any_order(), body) == ["b", "a", "y"]


def test_alternatives_are_tried_until_the_whole_fits() -> None:
    inner = wildcard().named("v") | is_op("Relu")(wildcard().named("v"))
    pattern = is_op("Mul")(inner, is_op("Exp")(wildcard().named("v")))
    found = match(pattern, root(graph_of("a = Relu(x)\nb = Exp(x)\ny = Mul(a, b)")))
    assert found is not None
    assert found["v"].name == "x"
    assert names(found) == ["a", "b", "y"]


def test_both_demands_two_patterns_of_one_value() -> None:
    pattern = is_op("Exp")(is_op("Relu") & wildcard().has_rank(2))
    assert hits(pattern, CHAIN) == ["a", "y"]
    assert hits(is_op("Exp")(is_op("Relu") & wildcard().has_rank(3)), CHAIN) is None


def test_not_matches_where_its_pattern_does_not() -> None:
    assert hits(is_op("Exp")(~is_op("Relu")), CHAIN) is None
    assert hits(is_op("Exp")(~is_op("Tanh")), CHAIN) == ["y"]
    assert hits(is_op("Clip")(wildcard(), ~absent(), ...), "y = Clip(x)") is None


def test_optional_prefers_the_longer_form_and_falls_back() -> None:
    pattern = is_op("Sub")(is_op("Relu")(wildcard()).optional(lambda v: is_op("Exp")(v)), wildcard())
    assert hits(pattern, "a = Relu(x)\nb = Exp(a)\ny = Sub(b, x)") == ["a", "b", "y"]
    assert hits(pattern, "a = Relu(x)\ny = Sub(a, x)") == ["a", "y"]
    bare = wildcard().optional(lambda v: is_op("Relu")(v))
    assert hits(is_op("Exp")(bare), CHAIN) == ["a", "y"]


def test_one_name_stands_for_one_value() -> None:
    pattern = is_op("Mul")(wildcard().named("v"), wildcard().named("v"))
    assert hits(pattern, "y = Mul(x, x)") == ["y"]
    assert hits(pattern, "a = Exp(x)\ny = Mul(x, a)") is None


def test_branches_of_control_flow_have_patterns() -> None:
    body = """y = If(c) <
      then_branch = then_graph () => (float[2,3] t) { t = Relu(x) },
      else_branch = else_graph () => (float[2,3] e) { e = Exp(x) }
    >"""
    inputs = {"inputs": "float[2,3] x, bool c"}
    assert hits(is_if(wildcard(), is_op("Relu"), is_op("Exp")), body, **inputs) == ["y"]
    assert hits(is_if(wildcard(), is_op("Exp")), body, **inputs) is None
    assert hits(is_if(is_op("Not"), is_op("Relu")), body, **inputs) is None
    same = wildcard()
    assert hits(is_if(wildcard(), is_op("Relu")(same), is_op("Exp")(same)), body, **inputs) == ["y"]
    assert hits(is_op("Relu").has_body("body", wildcard()), "y = Relu(x)") is None


def test_calls_of_composites_and_regions_match_by_name() -> None:
    x = ir.Value(name="x")
    call = ir.Node("graft.composite", "npu_conv_0", [x], name="c", metadata_props={"Composite": "npu.conv"})
    region = ir.Node("graft.region", "npu_0", call.outputs, name="r", metadata_props={"Compiler": "npu"})
    ir.Graph([x], region.outputs, nodes=[call, region])
    assert names(match(is_region("npu")(is_composite("npu.conv")(wildcard())), region)) == ["c", "r"]
    assert match(is_region("gpu"), region) is None
    assert names(match(is_region(), region)) == ["r"]


def test_a_sum_of_many_finds_its_terms_without_trying_all_orders() -> None:
    names = [f"x{i}" for i in range(9)]
    body = "r = Relu(x0)\ny = Sum(" + ", ".join([*names[1:], "r"]) + ")"
    given = {"inputs": ", ".join(f"float[2,3] {name}" for name in names)}
    assert hits(is_op("Sum")(is_op("Relu"), *(wildcard() for _ in range(8))), body, **given) == ["r", "y"]
    assert hits(is_op("Sum")(*(wildcard() for _ in range(8)), is_op("Exp")), body, **given) is None
    plain = body.replace("Relu", "Exp")
    wanted = is_op("Sum")(*(wildcard() for _ in range(8)), is_op("Exp")(wildcard()).has_dtype("float64"))
    assert hits(wanted, plain, **given) is None
    ways = matches(is_op("Sum")(*(wildcard() for _ in range(9))), root(graph_of(plain, **given)))
    assert len(list(ways)) == 1


def test_arguments_of_a_sum_still_find_every_order_that_differs() -> None:
    graph = graph_of("r = Relu(x)\ne = Relu(z)\ny = Sum(x, r, e)", inputs="float[2,3] x, float[2,3] z")
    pattern = is_op("Sum")(is_op("Relu").named("a"), is_op("Relu").named("b"), wildcard())
    found = [(one["a"].name, one["b"].name) for one in matches(pattern, root(graph))]
    assert sorted(found) == [("e", "r"), ("r", "e")]
    some = is_op("Sum")(wildcard(), is_op("Relu")(wildcard()), ...)
    assert len(list(matches(some, root(graph)))) == 4


def test_wildcards_of_a_sum_take_equal_inputs_and_what_lies_before_an_operator() -> None:
    given = {"inputs": "float[2,3] x, float[2,3] q"}
    pattern = is_op("Sum")(is_op("Relu"), wildcard(), wildcard())
    for order in ("q, q, r", "q, r, q", "r, q, q", "r, r, q", "q, x, r"):
        assert hits(pattern, f"r = Relu(x)\ny = Sum({order})", **given) == ["r", "y"], order
    assert hits(is_op("Sum")(is_op("Relu"), ...), "r = Relu(x)\ny = Sum(q, r)", **given) == ["r", "y"]
