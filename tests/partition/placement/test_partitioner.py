from __future__ import annotations

import weakref

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from graft.core.collection import collection_paused
from graft.core.graph.view import NodeView
from graft.core.importer.load import load
from graft.core.operators.all import OPERATORS
from graft.core.reject import Reject
from graft.errors import PatternError, PlanError, PluginError, UnsupportedError
from graft.partition.placement.partitioner import partition
from graft.partition.placement.problem import Problem
from graft.partition.policy import Policy
from graft.partition.region import regions
from graft.patterns import Composite, absent, is_constant, is_op, outputs, wildcard
from graft.patterns.match import Match
from tests.partition.graphs import Toy, everything, model_of, region_sets, run_reference, small, toy

ADD_RELU = is_op("Relu")(is_op("Add")(wildcard(), wildcard()))


def sets(*groups: str) -> set[frozenset[str]]:
    return {frozenset(group.split()) for group in groups}


def test_a_foreign_arm_stays_apart() -> None:
    model = small("a = Relu(x)\nb = Exp(a)\ny = Add(a, b)")
    result = partition(model, [toy("npu", "Relu", "Add"), everything()])
    assert region_sets(result.model) == sets("a", "b", "y")


def test_siblings_that_share_an_input_are_merged() -> None:
    model = small("a = Relu(x)\nb = Tanh(x)\nc = Exp(a)\nd = Exp(b)\ny = Sub(c, d)")
    result = partition(model, [toy("npu", "Relu", "Tanh"), everything()])
    assert region_sets(result.model) == sets("a b", "c d y")


def test_a_region_with_several_outputs_lists_them_in_the_models_order() -> None:
    model = small("a = Relu(x)\nb = Tanh(a)\nc = Exp(b)\nd = Sub(a, c)\ny = Mul(d, b)")
    result = partition(model, [toy("npu", "Relu", "Tanh"), everything()])
    first = regions(result.model)[0]
    assert [value.name for value in first.outputs] == ["a", "b"]
    assert first.origin == ("a", "b")


def test_what_gives_a_symbol_its_value_leaves_its_region_where_others_read_extents_of_it() -> None:
    model = load(
        onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 21]>\n'
            "g (int64 n) => (int64[k] y) <int64 zero = {0}, int64 one = {1}>\n"
            "{ r = Range(zero, n, one) c = Concat<axis = 0>(r, r) y = Neg(c) }"
        )
    )
    first, _ = regions(partition(model, [toy("npu", "Neg"), everything()]).model)
    assert [value.name for value in first.outputs] == ["r", "c"]


def test_shared_inputs_and_constants_are_passed_once() -> None:
    model = model_of(
        '<ir_version: 10, opset_import: ["" : 21]>\n'
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Add(x, w) b = Mul(a, w) y = Add(b, x) }"
    )
    region = regions(partition(model, [everything()]).model)[0]
    assert [value.name for value in region.inputs] == ["x"]
    assert list(region.constants) == ["w"]
    assert [node.name for node in region.nodes()] == ["a", "b", "y"]
    assert region.constant("w").tolist() == [1, 2]


def test_the_model_given_is_not_changed() -> None:
    model = small("a = Relu(x)\ny = Exp(a)")
    before = ir.to_onnx_text(model)
    partition(model, [toy("npu", "Relu"), everything()])
    assert ir.to_onnx_text(model) == before


def test_a_composite_becomes_a_function_that_the_region_calls() -> None:
    model = small("a = Add(x, x)\nb = Relu(a)\ny = Relu(b)")
    backend = toy("npu", "Relu", patterns=[Composite("npu.add_relu", ADD_RELU)])
    result = partition(model, [backend, everything()])
    (region,) = regions(result.model)
    call, single = region.nodes()
    found = region.composite(call)
    assert found is not None
    assert found[0] == "npu.add_relu"
    assert found[1].metadata_props["PartitionedFromPattern"] == "Add_Relu"
    assert [node.op_type for node in found[1]] == ["Add", "Relu"]
    assert single.op_type == "Relu"
    assert region.origin == ("a", "b", "y")
    assert result.plan["a"].composite == "npu.add_relu"


def test_a_value_needed_outside_keeps_a_composite_from_forming() -> None:
    model = small("a = Add(x, x)\nb = Relu(a)\ny = Sub(b, a)")
    backend = toy("npu", patterns=[Composite("npu.add_relu", ADD_RELU)])
    plan = partition(model, [backend, everything()]).plan
    assert plan["b"].reasons["npu"] == Reject("fused-use", "'a' inside the match is also used by Sub (node 'y')")


def test_a_check_that_refuses_lets_the_next_row_try_and_keeps_its_reason() -> None:
    model = small("a = Add(x, x)\ny = Relu(a)")
    never = Composite("npu.never", ADD_RELU, check=lambda match: Reject("size", "too small"))
    always = Composite("npu.add", is_op("Add")(wildcard(), wildcard()))
    plan = partition(model, [toy("npu", patterns=[never, always]), everything()]).plan
    assert plan["a"].composite == "npu.add"
    assert plan["y"].reasons["npu"] == Reject("size", "too small")


def test_a_refused_check_makes_the_matcher_try_the_other_order_of_arguments() -> None:
    model = small("a = Exp(x)\nb = Tanh(x)\ny = Add(a, b)")
    pattern = is_op("Add")(wildcard().named("left"), wildcard())

    def wants_b(match: Match) -> Reject | None:
        return None if match["left"].name == "b" else Reject("layout", "left must be b")

    plan = partition(model, [toy("npu", patterns=[Composite("npu.add", pattern, wants_b)]), everything()]).plan
    assert plan["y"].composite == "npu.add"


def test_rows_of_the_table_choose_first_and_longest_matches_by_option() -> None:
    model = small("a = Add(x, x)\ny = Relu(a)")
    rows = [Composite("npu.relu", is_op("Relu")(wildcard())), Composite("npu.add_relu", ADD_RELU)]
    by_table = partition(model, [toy("npu", patterns=rows), everything()]).plan
    by_size = partition(model, [toy("npu", patterns=rows), everything()], policy=Policy(match_order="longest")).plan
    assert (by_table["y"].composite, by_table["a"].composite) == ("npu.relu", "")
    assert (by_size["y"].composite, by_size["a"].composite) == ("npu.add_relu", "npu.add_relu")


def test_a_composite_may_have_several_roots() -> None:
    model = small("a = Exp(x)\nb = Relu(a)\nc = Tanh(a)\nd = Neg(b)\ny = Sub(d, c)")
    shared = is_op("Exp")(wildcard())
    pattern = outputs(is_op("Relu")(shared), is_op("Tanh")(shared))
    result = partition(model, [toy("npu", patterns=[Composite("npu.pair", pattern)]), everything()])
    assert region_sets(result.model) == sets("a b c", "d y")
    values = {"x": np.array([[1, 2, 3], [4, 5, 6]], dtype=np.float32)}
    np.testing.assert_array_equal(run_reference(result.model, values)[0], run_reference(model, values)[0])


def test_a_composite_with_several_roots_never_encloses_a_foreign_node() -> None:
    model = small("a = Relu(x)\nb = Exp(a)\nc = Tanh(b)\ny = Sub(a, c)")
    pattern = outputs(is_op("Tanh")(wildcard()), is_op("Relu")(wildcard()))
    plan = partition(model, [toy("npu", patterns=[Composite("npu.pair", pattern)]), everything()]).plan
    assert plan["c"].reasons["npu"] == Reject("cycle", "a node outside the match lies between its nodes")


def test_an_optional_input_may_be_absent_from_a_composite() -> None:
    conv = is_op("Conv")(wildcard(), wildcard(), (is_constant() | absent()).named("bias"))
    model = model_of(
        '<ir_version: 10, opset_import: ["" : 21]>\n'
        "g (float[1,1,3,3] x, float[1,1,1,1] w) => (float[1,1,3,3] y) { y = Conv(x, w) }"
    )
    seen: list[object] = []

    def check(match: Match) -> bool:
        seen.append(match.get("bias"))
        return True

    plan = partition(model, [toy("npu", patterns=[Composite("npu.conv", conv, check)])]).plan
    assert plan["y"].composite == "npu.conv"
    assert seen == [None]


def test_a_backend_that_is_unavailable_gets_nothing_and_says_why() -> None:
    model = small("y = Relu(x)")
    missing = Toy("npu", frozenset({"Relu"}), missing="the driver is missing; install npu-driver")
    plan = partition(model, [missing, everything()]).plan
    assert plan["y"].backend == "rest"
    assert plan["y"].reasons == {"npu": Reject("unavailable", "the driver is missing; install npu-driver")}


def test_refusals_known_beforehand_move_a_node_to_the_next_backend() -> None:
    model = small("a = Relu(x)\ny = Exp(a)")
    failed = {("a", "npu"): Reject("compile-failed", "no memory")}
    plan = partition(model, [toy("npu", "Relu", "Exp"), everything()], refusals=failed).plan
    assert plan["a"].backend == "rest"
    assert plan["a"].reasons["npu"] == Reject("compile-failed", "no memory")
    assert plan["y"].backend == "npu"


def test_refusals_break_up_composites_too() -> None:
    model = small("a = Add(x, x)\ny = Relu(a)")
    backend = toy("npu", "Relu", patterns=[Composite("npu.add_relu", ADD_RELU)])
    plan = partition(model, [backend, everything()], refusals={("a", "npu"): Reject("compile-failed", "no")}).plan
    assert (plan["a"].backend, plan["y"].backend, plan["y"].composite) == ("rest", "npu", "")


def test_small_regions_go_to_the_next_backend() -> None:
    model = small("a = Relu(x)\nb = Exp(a)\nc = Relu(b)\nd = Tanh(c)\ny = Exp(d)")
    backends = [toy("npu", "Relu", "Tanh"), toy("gpu", "Relu", "Tanh", "Exp"), everything("reference", fallback=True)]
    plan = partition(model, backends, policy=Policy(min_region_ops=2)).plan
    assert plan["a"].reasons["npu"] == Reject("region-too-small", "the region has 1 operator, at least 2 wanted")
    assert [row.backend for row in plan.placements] == ["gpu", "gpu", "npu", "npu", "reference"]
    assert plan["y"].reasons["gpu"].code == "region-too-small"


def test_regions_below_a_bound_of_work_go_to_the_next_backend() -> None:
    model = small("a = MatMul(x, x)\nb = Exp(a)\ny = Add(b, x)", "float[4,4] x", "float[4,4] y")
    plan = partition(
        model, [toy("npu", "MatMul", "Add"), everything("llvm", fallback=True)], policy=Policy(min_region_flops=100)
    ).plan
    assert plan["a"].backend == "npu"
    assert plan["y"].reasons["npu"] == Reject("region-too-small", "the region has 16 FLOPs, at least 100 wanted")


def test_a_later_backends_composite_takes_no_node_that_an_earlier_backend_takes() -> None:
    model = small("z = Mul(x, x)\ny = Relu(z)")
    fused = toy("fused", patterns=[Composite("fused.mul_relu", is_op("Relu")(is_op("Mul")(wildcard(), wildcard())))])
    plan = partition(model, [everything("first"), fused]).plan
    assert [row.backend for row in plan.placements] == ["first", "first"]
    assert all(row.reasons["fused"].code == "lost-to:first" for row in plan.placements)
    assert [row.backend for row in partition(model, [fused, everything("first")]).plan.placements] == ["fused"] * 2


def test_the_largest_regions_are_kept_where_their_number_is_bounded() -> None:
    model = small("a = Relu(x)\nb = Exp(a)\nc = Relu(b)\nd = Tanh(c)\ne = Exp(d)\ny = Relu(e)")
    plan = partition(
        model, [toy("npu", "Relu", "Tanh"), everything("llvm", fallback=True)], policy=Policy(max_regions=1)
    ).plan
    assert [row.backend for row in plan.placements] == ["llvm", "llvm", "npu", "npu", "llvm", "llvm"]
    assert plan["a"].reasons["npu"] == Reject("region-too-small", "1 larger region is enough")


def test_operators_and_nodes_can_be_excluded() -> None:
    model = small("a = Relu(x)\nb = Exp(a)\ny = Tanh(b)")
    backends = [toy("npu", "Relu", "Exp", "Tanh"), toy("gpu", "Relu", "Exp", "Tanh"), everything("llvm", fallback=True)]
    plan = partition(model, backends, policy=Policy(exclude_op=("Exp",), exclude_node=("npu:y",))).plan
    assert [row.backend for row in plan.placements] == ["npu", "llvm", "gpu"]
    assert plan["b"].reasons["npu"] == Reject("user-excluded", "operator 'Exp' is excluded by the user")
    assert plan["y"].reasons["npu"] == Reject("user-excluded", "node 'y' is excluded by the user")


def test_a_node_can_be_pinned_to_a_backend() -> None:
    model = small("a = Relu(x)\ny = Exp(a)")
    plan = partition(model, [toy("npu", "Relu", "Exp"), everything()], policy=Policy(pin={"a": "rest"})).plan
    assert plan["a"].backend == "rest"
    assert plan["a"].reasons["npu"] == Reject("user-excluded", "the user pinned the node to rest")


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            Policy(pin={"y": "npu"}),
            "Exp (node 'y') is pinned to 'npu', which refuses it: no-pattern: npu has no rule for Exp",
        ),
        (Policy(pin={"y": "gpu"}), "node 'y' is pinned to backend 'gpu', which is not among npu, rest"),
        (Policy(pin={"yy": "npu"}), "the model has no node 'yy'; did you mean 'y'?"),
        (
            Policy(pin={"a": "npu"}, exclude_op=("Relu",)),
            "node 'a' is pinned to 'npu' and excluded from it; drop one of the two",
        ),
        (Policy(exclude_op=("Rellu",)), "the model has no operator 'Rellu'; did you mean 'Relu'?"),
        (Policy(exclude_node=("nowhere",)), "the model has no node 'nowhere'"),
    ],
)
def test_constraints_that_cannot_be_met_are_errors(policy: Policy, message: str) -> None:
    model = small("a = Relu(x)\ny = Exp(a)")
    with pytest.raises(PlanError) as caught:
        partition(model, [toy("npu", "Relu"), everything()], policy=policy)
    assert str(caught.value) == message


def test_a_backend_listed_twice_is_an_error() -> None:
    with pytest.raises(PlanError) as caught:
        partition(small("y = Relu(x)"), [toy("npu"), toy("npu")])
    assert str(caught.value) == "backend 'npu' is listed twice; list each backend once"


def test_a_predicate_that_raises_or_answers_nonsense_names_its_backend() -> None:
    def raises(node: NodeView) -> bool:
        raise ValueError("oops")

    with pytest.raises(PluginError) as caught:
        partition(small("y = Relu(x)"), [Toy("npu", answer=raises)])
    assert str(caught.value) == "backend 'npu' raised ValueError when asked for Relu (node 'y'): oops"
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(PluginError) as caught:
        partition(small("y = Relu(x)"), [Toy("npu", answer=lambda node: "yes")])  # type: ignore[arg-type, return-value]
    assert str(caught.value) == (
        "backend 'npu' answered 'yes' for Relu (node 'y'); supports(node) returns True or a Reject"
    )


def test_a_bare_false_is_a_refusal_without_reason() -> None:
    plan = partition(small("y = Relu(x)"), [Toy("npu", answer=lambda node: False), everything()]).plan
    assert plan["y"].reasons["npu"] == Reject("no-pattern", "npu gave no reason")


def test_a_check_that_raises_or_answers_nonsense_names_its_composite() -> None:
    def raises(match: Match) -> bool:
        raise KeyError("w")

    relu = is_op("Relu")(wildcard())
    with pytest.raises(PatternError) as caught:
        partition(small("y = Relu(x)"), [toy("npu", patterns=[Composite("npu.relu", relu, raises)])])
    assert str(caught.value) == (
        "the check of composite 'npu.relu' (backend 'npu') raised KeyError at Relu (node 'y'): 'w'"
    )
    broken = Composite("npu.relu", relu, lambda match: 3)  # type: ignore[arg-type, return-value]
    with pytest.raises(PatternError) as caught:
        partition(small("y = Relu(x)"), [toy("npu", patterns=[broken])])
    assert str(caught.value) == (
        "the check of composite 'npu.relu' (backend 'npu') answered 3 at Relu (node 'y'); "
        "a check returns None or True to accept, or a Reject"
    )


def test_an_operator_that_nobody_takes_is_named_with_all_reasons() -> None:
    plan = partition(small("a = Relu(x)\ny = Exp(a)"), [toy("npu", "Relu"), toy("gpu")]).plan
    assert [row.node for row in plan.unplaced] == ["y"]
    said = (
        "no backend takes Exp (node 'y'): npu: no-pattern: npu has no rule for Exp; "
        "gpu: no-pattern: gpu has no rule for Exp"
    )
    for resort, hint in (("", ""), ("gpu", ""), ("rest", "; add 'rest' to the backends")):
        with pytest.raises(UnsupportedError) as caught:
            plan.require_complete(resort)
        assert str(caught.value) == said + hint


def test_nodes_of_one_name_are_told_apart() -> None:
    model = small("a = Relu(x)\ny = Exp(a)")
    for node in model.graph:
        node.name = "same"
    result = partition(model, [everything()])
    assert [row.node for row in result.plan.placements] == ["same", "same_2"]
    assert regions(result.model)[0].origin == ("same", "same_2")


def test_region_names_are_identifiers_and_keep_the_backends_name_in_metadata() -> None:
    result = partition(small("y = Relu(x)"), [everything("my-npu.v2")])
    (region,) = regions(result.model)
    assert (region.name, region.backend) == ("my_npu_v2_0", "my-npu.v2")


def test_a_wrong_row_of_a_table_names_backend_and_composite() -> None:
    with pytest.raises(PatternError) as caught:
        partition(small("y = Relu(x)"), [toy("npu", patterns=[Composite("npu.relu", is_op("Rellu"))])])
    assert str(caught.value) == (
        "composite 'npu.relu' of backend 'npu': the pattern names an unknown operator 'Rellu'; did you mean 'Relu'?"
    )
    relu = Composite("npu.relu", is_op("Relu"))
    with pytest.raises(PatternError) as caught:
        partition(small("y = Relu(x)"), [toy("npu", patterns=[relu, relu])])
    assert str(caught.value) == "backend 'npu' has two composites named 'npu.relu'; give each row its own name"


DOMINATED = "a = Exp(x)\nb = Tanh(a)\ny = Add(a, b)"
EXP_ADD = is_op("Add")(is_op("Exp")(wildcard()), wildcard())


def test_a_value_that_leads_back_into_the_composite_is_computed_again_by_option() -> None:
    model = small(DOMINATED)
    backends = [toy("npu", patterns=[Composite("npu.exp_add", EXP_ADD)]), everything()]
    plan = partition(model, backends).plan
    assert plan["y"].reasons["npu"].code == "fused-use"
    result = partition(model, backends, policy=Policy(duplicate_dominated=True))
    assert [row.backend for row in result.plan.placements] == ["rest", "rest", "npu"]
    (region,) = [region for region in regions(result.model) if region.backend == "npu"]
    assert region.origin == ("a", "y")
    assert [value.name for value in region.inputs] == ["x", "b"]
    values = {"x": np.array([[1, 2, 3], [4, 5, 6]], dtype=np.float32)}
    np.testing.assert_array_equal(run_reference(result.model, values)[0], run_reference(model, values)[0])


@pytest.mark.parametrize("leak", ["z = Neg(b)", "z = Neg(a)"])
def test_a_value_that_also_leads_elsewhere_is_never_computed_again(leak: str) -> None:
    model = small(f"{DOMINATED}\n{leak}", outputs="float[2,3] y, float[2,3] z")
    backends = [toy("npu", patterns=[Composite("npu.exp_add", EXP_ADD)]), everything()]
    plan = partition(model, backends, policy=Policy(duplicate_dominated=True)).plan
    assert plan["y"].reasons["npu"].code == "fused-use"


def test_a_search_that_is_given_up_is_a_reason_and_no_error() -> None:
    deep = wildcard()
    for _ in range(17):
        deep = deep + wildcard()
    body = "v0 = Identity(x)\nu0 = Relu(x)\n"
    body += "".join(f"v{i + 1} = Add(v{i}, u{i})\nu{i + 1} = Add(u{i}, v{i})\n" for i in range(17)) + "y = Sub(v17, x)"
    npu = toy("npu", patterns=[Composite("npu.deep", is_op("Sub")(deep, is_op("Relu")))])
    plan = partition(small(body), [npu, everything()]).plan
    assert plan["y"].reasons["npu"] == Reject(
        "size",
        "the search for npu.deep at Sub (node 'y') was given up: a pattern took more than 200000 steps at one node; "
        "give its alternatives different operators",
    )


def test_plans_that_a_search_drops_are_freed() -> None:
    model = small("a = Relu(x)\ny = Exp(a)")
    problem = Problem(model, (toy("npu", "Relu"), everything()), Policy(), {}, OPERATORS)
    with collection_paused():
        kept = [weakref.ref(problem.solve().model.graph) for _ in range(4)]
        problem.solve()
        assert [reference() for reference in kept] == [None] * 4
