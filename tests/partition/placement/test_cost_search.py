from __future__ import annotations

import math
from dataclasses import dataclass, field

import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.graph.view import NodeView
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Cost
from graft.core.reject import Reject
from graft.errors import PlanError
from graft.partition.costs import value_bytes
from graft.partition.placement import cost_search
from graft.partition.placement.cost_search import handed_over, transferred
from graft.partition.placement.estimators import Roofline
from graft.partition.placement.partitioner import Partitioned, partition
from graft.partition.placement.problem import Problem
from graft.partition.placement.region_structure import structure
from graft.partition.plan import Plan
from graft.partition.policy import PlacementMode, Policy
from graft.partition.region import Region, regions
from graft.patterns import Composite, is_op, wildcard
from tests.partition.costly import RIVALS, Clock, Costly, plan_by
from tests.partition.graphs import BINARY, UNARY, Toy, everything, random_models, small, toy

MODEL = Policy(placement="model")


@dataclass
class Prices:
    """Prices by backend and operator, or composite; a call and a byte handed over cost one."""

    table: dict[str, float] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    margin: float = 0.0

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

    def transfer_seconds(self, size: int) -> float:
        return 100.0 + size


def price(result: Partitioned, prices: Prices) -> float:
    moved = sum(prices.copy_seconds(value_bytes(value, {})) for value in handed_over(result.model))
    return sum(prices.region_seconds(region) for region in regions(result.model)) + moved


def test_a_single_offloaded_operator_is_not_worth_its_copies() -> None:
    model = small("a = Exp(x)\nb = Relu(a)\ny = Tanh(b)")
    backends = [toy("npu", "Relu"), everything()]
    prices = Prices({"npu.Relu": 1.0})
    assert partition(model, backends).plan["b"].backend == "npu"
    plan = partition(model, backends, policy=MODEL, estimator=prices).plan
    assert plan["b"].backend == "rest"
    text = "another placement is cheaper as a whole: 31000 ms against 72000 ms with npu here, by the model"
    assert plan["b"].reasons["npu"] == Reject("cost", text)
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
TAKEN = st.lists(st.sets(st.sampled_from((*UNARY, *BINARY))), min_size=1, max_size=2)


@settings(max_examples=25, deadline=None)
@given(random_models(8), TAKEN, PRICES)
def test_it_is_never_dearer_than_greed_or_the_best_single_backend(
    model: ir.Model, operators: list[set[str]], table: dict[str, float]
) -> None:
    vendors = [toy(f"b{number}", *names) for number, names in enumerate(operators)]
    prices = Prices(table)
    found = price(partition(model, [*vendors, everything()], policy=MODEL, estimator=prices), prices)
    for backends in ([*vendors, everything()], *([vendor, everything()] for vendor in vendors), [everything()]):
        if len(vendors) > 1 or backends != [everything()]:
            assert found <= price(partition(model, backends), prices) + 1e-9


def test_a_backend_that_does_not_say_what_it_costs_is_no_match_for_a_fallback_that_does() -> None:
    model = small("a = Relu(x)\ny = Exp(a)", "float[512,512] x", "float[512,512] y")
    rest = Costly("rest", Cost(2 * 512 * 512, 2 * 4 * 512 * 512), fallback=True)
    assert partition(model, [toy("npu", "Relu", "Exp"), rest], policy=MODEL).plan.coverage("npu") == 0


@pytest.mark.parametrize(("gain", "chosen"), [(0.9, "rest"), (0.8, "npu")])
def test_another_backend_than_the_fallback_must_be_cheaper_by_more_than_the_margin(gain: float, chosen: str) -> None:
    model = small("y = Relu(x)")
    npu, rest = Costly("npu", Cost(int(gain * 10**10), 0)), Costly("rest", Cost(10**10, 0), fallback=True)
    assert partition(model, [npu, rest], policy=MODEL).plan["y"].backend == chosen


def test_what_the_first_fallback_cannot_do_goes_to_the_backend_that_is_cheaper_at_it() -> None:
    model = small("a = Relu(x)\ny = Exp(a)")
    first = Toy("first", frozenset({"Relu"}), fallback=True)
    backends = [toy("npu", "Relu", "Exp"), first, everything("last", fallback=True)]
    prices = Prices({"first.Relu": 1.0, "npu.Relu": 100.0, "npu.Exp": 1.0, "last.Relu": 100.0, "last.Exp": 100.0})
    plan = partition(model, backends, policy=Policy(placement="auto", search_budget=4), estimator=prices).plan
    assert [row.backend for row in plan.placements] == ["first", "npu"]


def test_with_fallbacks_alone_nothing_is_priced() -> None:
    prices = Prices()
    partition(small("y = Relu(x)"), [everything(fallback=True)], policy=MODEL, estimator=prices)
    assert prices.asked == []


def test_the_order_of_backends_that_was_not_asked_for_says_what_the_fallback_alone_would_gain() -> None:
    model = small("y = Relu(x)")
    backends = [Costly("npu", Cost(10**10, 0)), Costly("rest", Cost(10**10 // 2, 0), fallback=True)]
    estimator = Roofline(backends, OPERATORS)
    plan = partition(model, backends, estimator=estimator).plan
    assert plan["y"].backend == "npu"
    assert plan.faster == "rest alone: about 2.0x faster by the model (--place auto)"
    assert plan.summary() == f"npu 1/1 ops (100.0 %, 1 region, 100 % of FLOPs) · {plan.faster}"
    assert Plan.from_json(plan.to_json()) == plan
    assert partition(model, backends, plan=plan).plan == plan
    assert partition(model, backends[::-1], estimator=estimator).plan.faster == ""
    asked_for = Policy(placement="greedy")
    assert partition(model, backends, policy=asked_for, estimator=estimator).plan.faster == ""


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


def placed(mode: PlacementMode, clock: Clock) -> str:
    return plan_by(mode, clock)["y"].backend


@pytest.mark.parametrize(
    ("npu", "rest", "chosen"),
    [(1.0, 2.0, "npu"), (0.98, 1.0, "rest"), (None, 1.0, "rest"), (1.0, None, "rest"), (math.inf, 1.0, "rest")],
)
def test_recorded_times_decide_where_both_plans_have_one(npu: float | None, rest: float | None, chosen: str) -> None:
    known = {(name,): seconds for name, seconds in (("npu", npu), ("rest", rest)) if seconds is not None}
    clock = Clock(known)
    assert placed("auto", clock) == chosen
    assert clock.measured == []
    assert placed("model", clock) == "rest"


def test_measuring_begins_with_the_fallback_alone_and_believes_what_it_finds() -> None:
    clock = Clock({}, {("npu",): 1.0, ("rest",): 2.0})
    assert placed("measured", clock) == "npu"
    assert clock.measured[0] == ("rest",)


def test_a_single_backend_is_measured_before_its_variants_though_the_model_thinks_little_of_it() -> None:
    class Slow(Costly):
        def cost(self, region: Region) -> Cost:
            return Cost(10**12 * len(list(region.nodes())), 0)

    clock, rest = Clock({}), Costly("rest", Cost(10**9, 0), fallback=True)
    model = small("a = Relu(x) b = Exp(a) y = Tanh(b)")
    partition(model, (Slow("npu", []), rest), policy=Policy(placement="measured"), times=clock)
    assert clock.measured[:2] == [("rest",), ("npu",)]
    assert len(clock.measured) > 2


def test_greedy_placement_says_what_was_measured_where_it_was() -> None:
    estimator = Roofline(RIVALS, OPERATORS)
    clock = Clock({("npu",): 3.0, ("rest",): 2.0})
    plan = partition(small("y = Relu(x)"), RIVALS, estimator=estimator, times=clock).plan
    assert plan.faster == "rest alone: about 1.5x faster as measured here (--place auto)"


def test_measuring_without_times_is_an_error() -> None:
    with pytest.raises(PlanError) as caught:
        partition(small("y = Relu(x)"), [everything()], policy=Policy(placement="measured"))
    assert str(caught.value) == (
        "placement 'measured' needs times of plans; pass times=graft.compiler.plan_times.times_here(...)"
    )


def test_the_structure_of_a_region_does_not_depend_on_names() -> None:
    left = regions(partition(small("a = Relu(x)\ny = Add(a, x)"), [everything()]).model)[0]
    right = regions(partition(small("q = Relu(r)\ny = Add(q, r)", "float[2,3] r"), [everything()]).model)[0]
    for other in ("a = Relu(x)\ny = Add(a, a)", "a = Relu(x)\ny = Mul(a, x)", "y = Relu(x)"):
        assert structure(regions(partition(small(other), [everything()]).model)[0]) != structure(left)
    wider = small("a = Relu(x)\ny = Add(a, x)", "float[2,4] x", "float[2,4] y")
    assert structure(right) == structure(left)
    assert structure(regions(partition(wider, [everything()]).model)[0]) != structure(left)


def test_where_only_fallbacks_take_anything_one_plan_is_made_and_each_backend_asked_once_for_a_node() -> None:
    asked: list[str] = []

    def answer(node: NodeView) -> Reject:
        asked.append(node.op_type)
        return Reject("dtype", "not this one")

    backends = (Toy("npu", answer=answer), everything(fallback=True))
    problem = Problem(small("a = Relu(x)\ny = Exp(a)"), backends, Policy(placement="auto"), {}, OPERATORS)
    search = cost_search._Search(problem, Roofline(problem.backends, problem.operators))
    (only,) = search.run()
    assert (search.looked_at, asked) == (1, ["Relu", "Exp"])
    assert only.trusted
    assert only.result.plan["y"].reasons["npu"] == Reject("dtype", "not this one")


def test_a_search_keeps_few_plans_of_a_large_model(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "".join(f"v{i + 1} = {('Relu', 'Tanh', 'Abs')[i % 3]}(v{i})\n" for i in range(9)) + "y = Neg(v9)"
    model = small(body, inputs="float[2,3] v0")
    problem = Problem(
        model, (toy("npu", "Relu", "Tanh", "Abs"), everything()), Policy(placement="model"), {}, OPERATORS
    )
    prices = Roofline(problem.backends, problem.operators)
    every = cost_search._Search(problem, prices).run()
    monkeypatch.setattr(cost_search, "OPERATORS_KEPT", 0)
    few = cost_search._Search(problem, prices).run()
    assert len(few) <= len(every)
    assert len(few) <= 3 + cost_search.BEAM
    assert few[0].seconds == every[0].seconds


def test_copies_to_a_device_and_back_are_what_a_value_costs_there_once() -> None:
    model = small("a = Exp(x)\nb = Relu(a)\nc = Tanh(a)\ny = Add(b, c)")
    backends = [toy("gpu", "Relu", "Tanh"), everything()]
    result = partition(model, backends)
    values = [value.name for value in transferred(result.model, {"gpu": "gpu"})]
    assert sorted(values) == ["a", "b", "c"]
    assert list(transferred(result.model, {})) == []


@pytest.mark.parametrize("memory", ["cpu", "gpu"])
def test_a_region_on_a_device_has_to_be_worth_its_copies(memory: str) -> None:
    model = small("a = Exp(x)\nb = Relu(a)\ny = Tanh(b)")
    gpu = toy("gpu", "Relu")
    object.__setattr__(gpu, "device", memory)
    prices = Prices({"gpu.Relu": 1.0, "rest.Relu": 100.0})  # in main memory the copies cost less than that
    plan = partition(model, [gpu, everything()], policy=MODEL, estimator=prices).plan
    assert ("gpu" in {row.backend for row in plan.placements}) == (memory == "cpu")


def test_what_passes_between_backends_of_one_device_is_copied_by_nobody() -> None:
    model = small("a = Exp(x)\nb = Relu(a)\ny = Tanh(b)")
    result = partition(model, [toy("gpu", "Relu"), toy("library", "Exp"), everything()])
    assert [value.name for value in handed_over(result.model)] == ["a", "b"]
    assert [value.name for value in handed_over(result.model, {"gpu": "gpu", "library": "gpu"})] == []
    memories = {"gpu": "gpu", "library": "gpu"}
    assert [value.name for value in transferred(result.model, memories)] == ["x", "b"]
