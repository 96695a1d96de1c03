"""What a backend takes only in passing, and who gets it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.graph.view import NodeView
from graft.core.reject import Reject, Yield
from graft.errors import PluginError
from graft.partition.placement.partitioner import partition
from graft.partition.policy import Policy
from graft.partition.region import regions
from graft.patterns import Composite, is_op, wildcard
from tests.partition.graphs import (
    BINARY,
    UNARY,
    Toy,
    everything,
    inputs_for,
    random_models,
    region_sets,
    run_reference,
    small,
)

AT_BOUNDARY = Reject("cost", "at the boundary of its region: Relu is a pass")


@dataclass(frozen=True)
class Modest(Toy):
    """A backend that takes some operators only between others, and some unwillingly."""

    passing: frozenset[str] = frozenset()
    slow: frozenset[str] = frozenset()

    def yields(self, node: NodeView) -> Yield | None:
        if node.op_type in self.slow:
            return Yield(f"{node.op_type} is slow", everywhere=True)
        return Yield(f"{node.op_type} is a pass") if node.op_type in self.passing else None


@dataclass(frozen=True)
class Fusing(Toy):
    fuses: bool = True


def npu(*operators: str, passing: str = "Relu", slow: str = "", patterns: tuple[Composite, ...] = ()) -> Modest:
    return Modest(
        "npu", frozenset(operators), patterns, passing=frozenset(passing.split()), slow=frozenset(slow.split())
    )


REST = Fusing("rest", answer=lambda node: True, fallback=True)
CHAIN = small("a = Relu(x)\nb = Relu(a)\nc = MatMul(b, b)\nd = Relu(c)\ne = MatMul(d, d)\ny = Relu(e)",
              "float[3,3] x", "float[3,3] y")  # fmt: skip


def test_the_boundary_units_of_a_region_go_to_the_next_backend_and_its_midst_stays() -> None:
    result = partition(CHAIN, [npu("Relu", "MatMul"), REST])
    assert region_sets(result.model) == {frozenset("ab"), frozenset("cde"), frozenset("y")}
    assert result.plan["a"].reasons["npu"] == AT_BOUNDARY
    assert result.plan["y"].reasons["npu"] == AT_BOUNDARY
    assert result.plan["d"].backend == "npu"


def test_a_region_of_nothing_else_goes_whole() -> None:
    plan = partition(small("a = Relu(x)\nb = Exp(a)\ny = Relu(b)"), [npu("Relu"), REST]).plan
    assert [row.backend for row in plan.placements] == ["rest"] * 3


def test_what_is_slow_leaves_the_midst_of_a_region_too() -> None:
    result = partition(CHAIN, [npu("Relu", "MatMul", passing="", slow="Relu"), REST])
    assert result.plan["d"].reasons["npu"] == Reject("cost", "Relu is slow")
    assert [result.plan[name].backend for name in "abcdey"] == ["rest", "rest", "npu", "rest", "npu", "rest"]


@pytest.mark.parametrize("others", [[], [everything("plain", fallback=True)], [everything("plain"), REST]], ids=len)
def test_nodes_stay_where_the_next_taker_does_not_fuse(others: list[Toy]) -> None:
    plan = partition(CHAIN, [npu("Relu", "MatMul"), *others]).plan
    assert {row.backend for row in plan.placements} == {"npu"}


def test_nodes_stay_where_the_user_pins_them_or_keeps_them_from_the_taker() -> None:
    backends = [npu("Relu", "MatMul"), REST]
    assert partition(CHAIN, backends, policy=Policy(pin={"y": "npu"})).plan["y"].backend == "npu"
    assert partition(CHAIN, backends, policy=Policy(exclude_node=("rest:y",))).plan["y"].backend == "npu"


def test_a_plan_that_gives_the_boundary_to_the_backend_is_followed() -> None:
    backends = [npu("Relu", "MatMul"), REST]
    pinned = partition(CHAIN, backends, policy=Policy(pin={"y": "npu"})).plan
    assert partition(CHAIN, backends, plan=replace(pinned)).plan["y"].backend == "npu"


def test_a_composite_is_given_up_only_if_all_of_it_is() -> None:
    pattern = is_op("Relu")(is_op("MatMul")(wildcard(), wildcard()))
    backends = [npu("Exp", patterns=(Composite("npu.matmul_relu", pattern),)), REST]
    plan = partition(CHAIN, backends).plan
    assert [plan[name].composite for name in "cdey"] == ["npu.matmul_relu"] * 4
    pair = Composite("npu.two", is_op("Relu")(is_op("Relu")(wildcard())))
    plan = partition(CHAIN, [npu("MatMul", patterns=(pair,)), REST]).plan
    assert [(plan[name].backend, plan[name].composite) for name in "ab"] == [("rest", "")] * 2


def test_bodies_of_control_flow_are_looked_at_too() -> None:
    model = small(
        "c = Constant<value = bool {1}>()\n"
        "y = If(c) <then_branch = t () => (float[3,3] p) { m = MatMul(x, x)\np = Relu(m) }, "
        "else_branch = e () => (float[3,3] q) { q = MatMul(x, x) }>",
        "float[3,3] x",
        "float[3,3] y",
    )
    plan = partition(model, [npu("Relu", "MatMul"), REST]).plan
    assert plan["p"].backend == "rest"


def test_another_answer_than_a_yield_names_the_backend() -> None:
    @dataclass(frozen=True)
    class Wrong(Toy):
        def yields(self, node: NodeView) -> str:
            return "boundary"

    with pytest.raises(PluginError) as caught:
        partition(CHAIN, [Wrong("npu", frozenset({"MatMul"})), REST])
    assert caught.value.message == (
        "backend 'npu' answered 'boundary' for MatMul (node 'c'); yields(node) returns a Yield or None"
    )


OPERATORS = st.sets(st.sampled_from((*UNARY, *BINARY)))


@settings(max_examples=60, deadline=None)
@given(random_models(), OPERATORS, OPERATORS, OPERATORS)
def test_giving_up_keeps_the_meaning_and_leaves_nothing_at_the_boundary(
    model: ir.Model, taken: set[str], passing: set[str], slow: set[str]
) -> None:
    backend = npu(*taken, passing=" ".join(passing), slow=" ".join(slow & taken))
    result = partition(model, [backend, REST])
    before = run_reference(model, inputs_for(model))
    for left, right in zip(before, run_reference(result.model, inputs_for(model)), strict=True):
        np.testing.assert_array_equal(left, right)
    for region in regions(result.model):
        if region.backend == "npu":
            nodes = region.nodes()
            made = {value.name for node in nodes for value in node.outputs}
            read = {value.name for node in nodes for value in node.inputs if value is not None}
            for node in nodes:
                inputs = {value.name for value in node.inputs if value is not None}
                outputs = {value.name for value in node.outputs}
                assert node.op_type not in slow
                assert node.op_type not in passing or (inputs & made and outputs & read)
    assert partition(model, [backend, REST]).plan == result.plan


@settings(max_examples=60, deadline=None)
@given(random_models(), OPERATORS, OPERATORS)
def test_giving_up_at_the_boundary_makes_no_more_regions(model: ir.Model, taken: set[str], passing: set[str]) -> None:
    without = partition(model, [npu(*taken, passing=""), REST])
    without_boundaries = partition(model, [npu(*taken, passing=" ".join(passing)), REST])
    count = [sum(one.backend == "npu" for one in regions(result.model)) for result in (without, without_boundaries)]
    assert count[1] <= count[0]
