"""Groups of nodes that the pattern tables want computed as one."""

from __future__ import annotations

import numpy as np
import pytest

from graft.core.reject import Reject
from graft.errors import PatternError
from graft.partition.placement.partitioner import partition
from graft.partition.policy import Policy
from graft.partition.region import regions
from graft.patterns import Composite, is_op, outputs, wildcard
from graft.patterns.match import Match
from tests.partition.graphs import everything, region_sets, run_reference, small, toy

ADD_RELU = is_op("Relu")(is_op("Add")(wildcard(), wildcard()))


def sets(*groups: str) -> set[frozenset[str]]:
    return {frozenset(group.split()) for group in groups}


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
