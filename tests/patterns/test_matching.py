"""What every construct of the pattern language matches, and what it does not."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from graft.core.graph.view import ValueView
from graft.core.operators.definition.table import Operator, OperatorTable
from graft.errors import PatternError
from graft.patterns import (
    absent,
    is_composite,
    is_constant,
    is_if,
    is_input,
    is_op,
    is_region,
    wildcard,
)
from graft.patterns.backtracking import StepLimitError
from graft.patterns.matching import extract, match, matches
from graft.runtime.extents import Symbol
from tests.patterns.graphs import graph_of, hits, names, root

ROWS = {"inputs": "float[seq,8] x", "outputs": "float[seq,8] y"}
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


def test_constants_match_by_value_and_by_predicate() -> None:
    body, more = "y = Mul(x, two)", {"more": "<float[1] two = {2}>"}
    assert hits(is_op("Mul")(wildcard(), is_constant()), body, **more) == ["y"]
    assert hits(is_op("Mul")(wildcard(), is_constant(2.0)), body, **more) == ["y"]
    assert hits(is_op("Mul")(wildcard(), is_constant(3.0)), body, **more) is None
    assert hits(is_op("Mul")(wildcard(), is_constant(where=lambda array: array.size == 1)), body, **more) == ["y"]
    assert hits(is_op("Mul")(wildcard(), is_constant(where=lambda array: array.size > 1)), body, **more) is None
    assert hits(is_op("Mul")(is_constant(), is_constant()), body, **more) is None
    assert hits(wildcard() * 2.0, "t = Constant <value = float {2.0}> ()\ny = Mul(x, t)") == ["y"]


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


def test_attributes_match_by_value_default_and_predicate() -> None:
    body = "y = Softmax <axis = 1> (x)"
    assert hits(is_op("Softmax").has_attr(axis=1), body) == ["y"]
    assert hits(is_op("Softmax").has_attr({"axis": 0}), body) is None
    assert hits(is_op("Softmax").has_attr(axis=-1), "y = Softmax(x)") == ["y"]
    assert hits(is_op("Softmax").has_attr(axis=lambda axis: axis > 0), body) == ["y"]
    assert hits(is_op("Elu").has_attr(alpha=1.0), "y = Elu(x)") == ["y"]
    assert hits(is_op("Transpose").has_attr(perm=[0, 1]), "y = Transpose <perm = [0, 1]> (x)") == ["y"]
    assert hits(is_op("Gelu").has_attr(approximate="none"), "y = Gelu(x)") == ["y"]


def test_dtype_rank_and_shape_are_demands_on_the_value() -> None:
    shape = {"inputs": "float[n,3,4] x", "outputs": "float[n,3,4] y"}
    body = "y = Relu(x)"
    assert hits(is_op("Relu")(wildcard().has_dtype("float32", "float16")), body, **shape) == ["y"]
    assert hits(is_op("Relu")(wildcard().has_dtype("int8")), body, **shape) is None
    assert hits(is_op("Relu").has_rank(3), body, **shape) == ["y"]
    assert hits(is_op("Relu").has_rank(1, 2), body, **shape) is None
    for wanted, fits in (
        (("n", 3, 4), True), ((None, 3, 4), True), ((..., 4), True), (("n", ...), True), ((...,), True),
        (("n", ..., 4), True), (("m", 3, 4), True),
        ((2, 3, 4), False), (("n", 3), False), ((..., 3), False), ((..., 1, "n", 3, 4), False),
    ):  # fmt: skip
        assert (hits(is_op("Relu")(wildcard().has_shape(*wanted)), body, **shape) is not None) == fits


def test_same_shape_compares_two_values_of_a_match() -> None:
    left = wildcard()
    pattern = is_op("Add")(left, wildcard().same_shape_as(left))
    assert hits(pattern, "y = Add(x, b)", inputs="float[2,3] x, float[2,3] b") == ["y"]
    assert hits(pattern, "y = Add(x, b)", inputs="float[2,3] x, float[3] b") is None
    first = wildcard().same_shape_as(left)
    assert hits(is_op("Sub")(first, left), "y = Sub(x, b)", inputs="float[2,3] x, float[2,3] b") == ["y"]
    assert hits(is_op("Sub")(first, left), "y = Sub(x, b)", inputs="float[2,3] x, float[1,3] b") is None


def test_a_name_in_shapes_stands_for_one_extent_of_a_match() -> None:
    square = is_op("Relu")(wildcard().has_shape("n", "n"))
    for inputs, fits in (
        ("float[4,4] x", True), ("float[4,5] x", False), ("float[seq,seq] x", True), ("float[seq,4] x", False),
        ("float[seq,past] x", False), ("float[seq,?] x", False),
    ):  # fmt: skip
        assert (hits(square, "y = Relu(x)", inputs=inputs, outputs=inputs.replace("x", "y")) is not None) == fits


def test_a_name_in_two_shapes_is_the_same_provably_equal_extent() -> None:
    product = is_op("MatMul")(wildcard().has_shape("rows", "inner"), wildcard().has_shape("inner", None))
    assert hits(product, "y = MatMul(x, w)", inputs="float[n,k] x, float[k,8] w", outputs="float[n,8] y") == ["y"]
    assert hits(product, "y = MatMul(x, w)", inputs="float[n,k] x, float[j,8] w", outputs="float[n,8] y") is None
    graph = graph_of("y = MatMul(x, w)", inputs="float[n,k] x, float[j,8] w", outputs="float[n,8] y")
    for value, shape in zip(graph.inputs, (["n", "past + n"], ["n + past", 8]), strict=True):
        value.shape = ir.Shape(shape)
    assert match(product, root(graph)) is not None


def test_an_expression_of_names_is_judged_when_the_names_are_known() -> None:
    pattern = is_op("MatMul")(wildcard().has_shape("2*n"), wildcard().has_shape("n"))
    for left, right, fits in ((8, 4, True), (8, 5, False), ("2*s", "s", True), ("t", "s", False)):
        graph = graph_of("y = MatMul(x, w)", inputs="float[a] x, float[b] w", outputs="float y")
        graph.inputs[0].shape, graph.inputs[1].shape = ir.Shape([left]), ir.Shape([right])
        assert (match(pattern, root(graph)) is not None) == fits


def test_a_match_tells_what_the_names_in_shapes_stand_for() -> None:
    found = match(is_op("Relu")(wildcard().has_shape("rows", "columns")), root(graph_of("y = Relu(x)", **ROWS)))
    assert found is not None
    assert found.dimensions == {"rows": Symbol("seq"), "columns": 8}


def test_another_order_of_arguments_gives_names_other_extents() -> None:
    pattern = is_op("Add")(wildcard().has_shape("n", 1), wildcard().has_shape(1, "n"))
    shapes = {"inputs": "float[1,seq] x, float[seq,1] b", "outputs": "float[seq,seq] y"}
    assert hits(pattern, "y = Add(x, b)", **shapes) == ["y"]


def test_predicates_see_the_value() -> None:
    def is_wide(value: ValueView) -> bool:
        shape = value.static_shape
        return shape is not None and shape[-1] > 2

    assert hits(is_op("Relu").where(is_wide), "y = Relu(x)") == ["y"]
    assert hits(is_op("Relu").where(is_wide), "y = Relu(x)", inputs="float[3,2] x", outputs="float[3,2] y") is None


def test_arithmetic_builds_operators() -> None:
    x = wildcard()
    body = "a = Add(x, x)\nb = Pow(a, x)\nc = Neg(b)\nd = MatMul(c, x)\ny = Div(d, x)"
    square = {"inputs": "float[3,3] x", "outputs": "float[3,3] y"}
    assert hits((-((x + x) ** x) @ x) / x, body, **square) == ["a", "b", "c", "d", "y"]
    numbers = {"more": "<float one = {1}, float two = {2}>"}
    assert hits(1.0 - 2.0 * wildcard(), "a = Mul(two, x)\ny = Sub(one, a)", **numbers) == ["a", "y"]
    assert hits(2.0 / (1.0 + wildcard()), "a = Add(one, x)\ny = Div(two, a)", **numbers) == ["a", "y"]
    assert hits(wildcard() - 1.0, "y = Sub(x, one)", **numbers) == ["y"]


def test_captures_have_names() -> None:
    pattern = is_op("Add")(wildcard().named("a"), is_op("Relu").named("b"))
    found = match(pattern, root(graph_of("r = Relu(x)\ny = Add(x, r)")))
    assert found is not None
    assert (found["a"].name, found["b"].name, found.root.name) == ("x", "r", "y")
    assert found.node("b").op_type == "Relu"
    assert "a" in found
    with pytest.raises(PatternError) as caught:
        found["c"]
    assert str(caught.value) == "the pattern captures no 'c'; it captures a, b"
    with pytest.raises(PatternError) as caught:
        found.node("a")
    assert str(caught.value) == "'a' is an input or a constant here: no node produces it"


def test_a_capture_of_a_part_that_is_not_there_is_none() -> None:
    pattern = is_op("Exp")(wildcard() | is_op("Relu")(wildcard().named("inner")))
    found = match(pattern, root(graph_of("y = Exp(x)")))
    assert found is not None
    assert found.get("inner") is None
    assert "inner" not in found
    with pytest.raises(PatternError) as caught:
        found["inner"]
    assert str(caught.value) == (
        "'inner' is not bound in this match of Exp (node 'y'); ask match.get('inner') for optional parts"
    )
    with pytest.raises(PatternError) as caught:
        found.get("iner")
    assert str(caught.value) == "the pattern captures no 'iner'; did you mean 'inner'?"


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


def test_extract_returns_matches_that_share_no_node() -> None:
    graph = graph_of("a = Relu(x)\nb = Relu(a)\nc = Relu(b)\ny = Exp(c)")
    found = extract(is_op("Relu")(is_op("Relu")(wildcard())), graph)
    assert [names(each) for each in found] == [["b", "c"]]
    assert [names(each) for each in extract(is_op("Relu"), graph)] == [["a"], ["b"], ["c"]]


def test_a_check_can_ask_for_another_way_to_match() -> None:
    graph = graph_of("a = Exp(x)\ny = Add(x, a)")
    pattern = is_op("Add")(wildcard().named("left"), wildcard())
    ways = [found["left"].name for found in matches(pattern, root(graph))]
    assert ways == ["x", "a"]
    found = match(pattern, root(graph), check=lambda found: found["left"].name == "a")
    assert found is not None
    assert found["left"].name == "a"


def test_a_pattern_without_end_is_stopped() -> None:
    deep = wildcard()
    for _ in range(17):
        deep = deep + wildcard()
    body = "v0 = Identity(x)\nu0 = Relu(x)\n"
    body += "".join(f"v{i + 1} = Add(v{i}, u{i})\nu{i + 1} = Add(u{i}, v{i})\n" for i in range(17)) + "y = Sub(v17, x)"
    with pytest.raises(StepLimitError) as caught:
        match(is_op("Sub")(deep, is_op("Relu")), root(graph_of(body)))
    assert str(caught.value) == (
        "a pattern took more than 200000 steps at one node; give its alternatives different operators"
    )


def test_constants_of_several_numbers_match_element_by_element() -> None:
    graph = graph_of("y = Mul(x, c)", more="<float[3] c = {1, 2, 3}>")
    assert match(is_op("Mul")(wildcard(), is_constant([1, 2, 3])), root(graph)) is not None
    assert match(is_op("Mul")(wildcard(), is_constant([1, 2])), root(graph)) is None
    assert match(is_op("Mul")(wildcard(), is_constant(where=lambda c: bool(np.all(c > 0)))), root(graph)) is not None


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


def test_attributes_left_out_have_the_defaults_that_onnx_states_in_words() -> None:
    conv = {"inputs": "float[1,1,4,4] x, float[1,1,3,3] w", "outputs": "float[1,1,2,2] y"}
    plain, padded = "y = Conv(x, w)", 'y = Conv <auto_pad = "SAME_UPPER"> (x, w)'
    defaults = {
        "strides": [1, 1], "dilations": [1, 1], "pads": [0, 0, 0, 0], "kernel_shape": [3, 3], "group": 1,
    }  # fmt: skip
    for name, value in defaults.items():
        assert hits(is_op("Conv").has_attr({name: value}), plain, **conv) == ["y"]
    assert hits(is_op("Conv").has_attr(strides=[2, 2]), plain, **conv) is None
    assert hits(is_op("Conv").has_attr(pads=[0, 0, 0, 0]), padded, **conv) is None
    assert hits(is_op("MaxPool").has_attr(strides=[1, 1]), "y = MaxPool <kernel_shape = [2, 2]> (x)", **conv) == ["y"]
    assert hits(is_op("Transpose").has_attr(perm=[1, 0]), "y = Transpose(x)", outputs="float[3,2] y") == ["y"]


def test_predicates_may_answer_with_numpy_booleans() -> None:
    graph = graph_of("y = Mul(x, c)", more="<float[3] c = {1, 2, 3}>")
    pattern = is_op("Mul")(wildcard().where(lambda x: np.bool_(True)), is_constant(where=lambda c: (c > 0).all()))
    assert match(pattern, root(graph), check=lambda found: np.True_) is not None
    assert match(pattern, root(graph), check=lambda found: np.False_) is None


def test_wildcards_of_a_sum_take_equal_inputs_and_what_lies_before_an_operator() -> None:
    given = {"inputs": "float[2,3] x, float[2,3] q"}
    pattern = is_op("Sum")(is_op("Relu"), wildcard(), wildcard())
    for order in ("q, q, r", "q, r, q", "r, q, q", "r, r, q", "q, x, r"):
        assert hits(pattern, f"r = Relu(x)\ny = Sum({order})", **given) == ["r", "y"], order
    assert hits(is_op("Sum")(is_op("Relu"), ...), "r = Relu(x)\ny = Sum(q, r)", **given) == ["r", "y"]


@pytest.mark.parametrize("axis", [3, -1])
def test_an_axis_is_the_same_counted_from_either_end(axis: int) -> None:
    given = {"inputs": "float[1,2,3,4] x", "outputs": "float[1,2,3,4] y"}
    body = f"y = Softmax <axis = {axis}> (x)"
    for wanted in (3, -1):
        assert hits(is_op("Softmax").has_attr(axis=wanted), body, **given) == ["y"]
    assert hits(is_op("Softmax").has_attr(axis=-2), body, **given) is None
    assert hits(is_op("Softmax").has_attr(axis=lambda given: given == axis), body, **given) == ["y"]


def test_lists_of_axes_and_axes_of_a_larger_result_are_counted_from_either_end() -> None:
    given = {"inputs": "float[1,2,3,4] x", "outputs": "float[1,2,3,4] y"}
    norm = is_op("MeanVarianceNormalization")
    assert hits(norm.has_attr(axes=[0, -2, -1]), "y = MeanVarianceNormalization <axes = [0, 2, 3]> (x)", **given) == [
        "y"
    ]
    assert hits(norm.has_attr(axes=[0, 1]), "y = MeanVarianceNormalization <axes = [0, -2]> (x)", **given) is None
    one_hot = {"inputs": "int64[2,3] x, int64 d, float[2] v", "outputs": "float[2,3,5] y"}
    assert hits(is_op("OneHot").has_attr(axis=2), "y = OneHot(x, d, v)", **one_hot) == ["y"]


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
