from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.operators.table import Cost
from graft.core.reject import Reject
from graft.errors import PlanError
from graft.partition.costs import value_bytes
from graft.partition.estimators import Measured
from graft.partition.partitioner import Partitioned, partition
from graft.partition.placement import handed_over
from graft.partition.plan import Plan
from graft.partition.policy import Policy
from graft.partition.region import Region, regions
from graft.partition.structure import structure
from graft.partition.times import TimesDatabase
from graft.patterns import Composite, is_op, wildcard
from tests.partition.graphs import BINARY, UNARY, Toy, everything, random_models, small, toy

MODEL, MEASURED = Policy(placement="model"), Policy(placement="measured")


@dataclass
class Prices:
    """Prices by backend and operator, or composite; a call and a byte handed over cost one."""

    table: dict[str, float] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def region_seconds(self, region: Region) -> float:
        total = 1.0
        for node in region.nodes():
            found = region.composite(node)
            title = found[0] if found else f"{region.backend}.{node.op_type}"
            total += self.table.get(title, 10.0)
        self.asked.append(region.name)
        return total

    def copy_seconds(self, size: int) -> float:
        return float(size)


def price(result: Partitioned, prices: Prices) -> float:
    moved = sum(prices.copy_seconds(value_bytes(value)) for value in handed_over(result.model))
    return sum(prices.region_seconds(region) for region in regions(result.model)) + moved


def test_a_single_offloaded_operator_is_not_worth_its_copies() -> None:
    model = small("a = Exp(x)\nb = Relu(a)\ny = Tanh(b)")
    backends = [toy("npu", "Relu"), everything()]
    prices = Prices({"npu.Relu": 1.0})
    assert partition(model, backends).plan["b"].backend == "npu"
    plan = partition(model, backends, policy=MODEL, estimator=prices).plan
    assert plan["b"].backend == "rest"
    assert plan["b"].reasons["npu"] == Reject("cost", "another placement is cheaper as a whole")
    assert plan["a"].reasons["npu"] == Reject("no-pattern", "npu has no rule for Exp")


def test_a_composite_that_is_slower_than_its_parts_is_dropped() -> None:
    model = small("a = Add(x, x)\ny = Relu(a)")
    rows = [Composite("npu.add_relu", is_op("Relu")(is_op("Add")(wildcard(), wildcard())))]
    backends = [toy("npu", "Add", "Relu", patterns=rows), everything()]
    prices = Prices({"npu.add_relu": 50.0, "npu.Add": 5.0, "npu.Relu": 5.0})
    plan = partition(model, backends, policy=MODEL, estimator=prices).plan
    assert [(row.backend, row.composite) for row in plan.placements] == [("npu", ""), ("npu", "")]
    assert plan.dropped == (("npu", "npu.add_relu"),)
    again = partition(model, backends, plan=Plan.from_json(plan.to_json())).plan
    assert [(row.backend, row.composite) for row in again.placements] == [("npu", ""), ("npu", "")]
    assert again.to_json() == plan.to_json()


def test_the_larger_composite_first_is_wrong_where_it_takes_a_node_that_another_needs() -> None:
    model = small("a = Relu(x)\nb = Exp(a)\nc = Tanh(b)\ny = Neg(c)")
    rows = [
        Composite("npu.three", is_op("Tanh")(is_op("Exp")(is_op("Relu")(wildcard())))),
        Composite("npu.front", is_op("Exp")(is_op("Relu")(wildcard()))),
        Composite("npu.back", is_op("Neg")(is_op("Tanh")(wildcard()))),
    ]
    backends = [toy("npu", "Neg", patterns=rows), everything()]
    prices = Prices({"npu.three": 30.0, "npu.front": 5.0, "npu.back": 5.0})
    greedy = partition(model, backends)
    better = partition(model, backends, policy=MODEL, estimator=prices)
    assert greedy.plan["b"].composite == "npu.three"
    assert [row.composite for row in better.plan.placements] == ["npu.front", "npu.front", "npu.back", "npu.back"]
    assert price(better, prices) < price(greedy, prices)


PRICES = st.dictionaries(
    st.sampled_from([f"{backend}.{name}" for backend in ("b0", "b1", "rest") for name in (*UNARY, *BINARY)]),
    st.floats(0.5, 200),
)
OPERATORS = st.lists(st.sets(st.sampled_from((*UNARY, *BINARY))), min_size=1, max_size=2)


@settings(max_examples=25, deadline=None)
@given(random_models(8), OPERATORS, PRICES)
def test_it_is_never_dearer_than_greed_or_the_best_single_backend(
    model: ir.Model, operators: list[set[str]], table: dict[str, float]
) -> None:
    vendors = [toy(f"b{number}", *names) for number, names in enumerate(operators)]
    prices = Prices(table)
    found = price(partition(model, [*vendors, everything()], policy=MODEL, estimator=prices), prices)
    for backends in ([*vendors, everything()], *([vendor, everything()] for vendor in vendors), [everything()]):
        if len(vendors) > 1 or backends != [everything()]:
            assert found <= price(partition(model, backends), prices) + 1e-9


def test_without_an_estimator_the_backends_cost_or_a_roofline_decides() -> None:
    class Slow(Toy):
        def cost(self, region: Region) -> Cost | None:
            return Cost(10**12, 0)

    model = small("a = Relu(x)\ny = Exp(a)")
    slow = Slow("npu", frozenset({"Relu", "Exp"}))
    assert partition(model, [slow, everything()], policy=MODEL).plan["a"].backend == "rest"
    fast = toy("npu", "Relu", "Exp")
    assert partition(model, [fast, everything()], policy=MODEL).plan["a"].backend == "npu"


def test_the_search_looks_at_no_more_plans_than_allowed() -> None:
    model = small("\n".join(f"v{i + 1} = {'Relu' if i % 2 else 'Exp'}(v{i})" for i in range(12)) + "\ny = Neg(v12)",
                  "float[2,3] v0")  # fmt: skip
    counted = 0

    class Counting(Prices):
        def copy_seconds(self, size: int) -> float:
            nonlocal counted
            counted += 1
            return 0.0

    policy = Policy(placement="model", search_budget=3)
    partition(model, [toy("npu", "Relu"), everything()], policy=policy, estimator=Counting())
    one = len(list(handed_over(partition(model, [toy("npu", "Relu"), everything()]).model)))
    assert 0 < counted <= 3 * one


def measure_by_size(calls: list[str]) -> Callable[[Region], float]:
    def measure(region: Region) -> float:
        calls.append(region.name)
        return 1e-6 * len(region.nodes())

    return measure


def test_regions_of_one_structure_are_measured_once_and_remembered(tmp_path: Path) -> None:
    model = small("a = Relu(x)\nb = Exp(a)\nc = Relu(b)\ny = Exp(c)")
    backends = [toy("npu", "Relu"), everything()]
    calls: list[str] = []
    times = TimesDatabase(tmp_path / "cache" / "times.sqlite3")
    first = partition(model, backends, policy=MEASURED, estimator=Measured(measure_by_size(calls), times))
    assert len(calls) == len(times)
    assert sum(call.startswith("npu") for call in calls) == 1
    again: list[str] = []
    known = TimesDatabase(times.path)
    second = partition(model, backends, policy=MEASURED, estimator=Measured(measure_by_size(again), known))
    assert again == []
    assert second.plan == first.plan
    other: list[str] = []
    newer = Measured(measure_by_size(other), known, {"npu": "2.0", "rest": "2.0"})
    partition(model, backends, policy=MEASURED, estimator=newer)
    assert len(other) == len(calls)


def test_a_region_that_cannot_be_measured_is_not_chosen_and_asked_for_again() -> None:
    model = small("a = Relu(x)\ny = Exp(a)")
    asked: list[str] = []

    def measure(region: Region) -> float:
        asked.append(region.backend)
        return math.inf if region.backend == "npu" else 1e-6

    times: dict[str, float] = {}
    for _ in range(2):
        backends = [toy("npu", "Relu"), everything()]
        plan = partition(model, backends, policy=MEASURED, estimator=Measured(measure, times)).plan
        assert plan["a"].backend == "rest"
    assert asked.count("npu") == 2
    assert all(key.startswith("rest") for key in times)


def test_measuring_without_a_measure_is_an_error() -> None:
    with pytest.raises(PlanError) as caught:
        partition(small("y = Relu(x)"), [everything()], policy=MEASURED)
    assert str(caught.value) == (
        "placement 'measured' needs an estimator that measures regions; pass estimator=Measured(...)"
    )


def test_the_structure_of_a_region_does_not_depend_on_names() -> None:
    left = regions(partition(small("a = Relu(x)\ny = Add(a, x)"), [everything()]).model)[0]
    right = regions(partition(small("q = Relu(r)\ny = Add(q, r)", "float[2,3] r"), [everything()]).model)[0]
    for other in ("a = Relu(x)\ny = Add(a, a)", "a = Relu(x)\ny = Mul(a, x)", "y = Relu(x)"):
        assert structure(regions(partition(small(other), [everything()]).model)[0]) != structure(left)
    wider = small("a = Relu(x)\ny = Add(a, x)", "float[2,4] x", "float[2,4] y")
    assert structure(right) == structure(left)
    assert structure(regions(partition(wider, [everything()]).model)[0]) != structure(left)
