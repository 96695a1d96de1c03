"""What whole plans take, chosen and not chosen."""

from __future__ import annotations

import pytest

from graft.core.operators.definition.table import Cost
from graft.core.reject import Reject
from graft.partition.placement.partitioner import partition
from graft.partition.plan import Plan
from graft.partition.policy import PlacementMode, Policy
from tests.partition.costly import Clock, Costly, plan_by
from tests.partition.graphs import small

MODEL = Policy(placement="model")


@pytest.mark.parametrize(
    ("mode", "npu", "rest", "text"),
    [
        ("model", None, None, "10 ms against 100 ms with npu here, by the model"),
        ("auto", None, None, "10 ms against 100 ms with npu here, by the model"),
        ("auto", 3.0, 2.0, "2000 ms against 3000 ms with npu here, as measured here"),
        ("measured", 3.0, 2.0, "2000 ms against 3000 ms with npu here, as measured here"),
    ],
)
def test_the_reason_of_what_cost_decided_has_both_totals(
    mode: PlacementMode, npu: float | None, rest: float | None, text: str
) -> None:
    times = {(name,): seconds for name, seconds in (("npu", npu), ("rest", rest)) if seconds is not None}
    clock = Clock({}, times) if mode == "measured" else Clock(times)
    plan = plan_by(mode, clock)
    assert plan["y"].reasons["npu"] == Reject("cost", f"another placement is cheaper as a whole: {text}")
    assert Plan.from_json(plan.to_json()) == plan


def test_the_reason_says_which_of_the_totals_was_not_measured() -> None:
    model = small("a = Relu(x)\nb = Exp(a)\ny = Tanh(b)")
    rest, second = Costly("rest", Cost(10**9, 0), fallback=True), Costly("second", Cost(10**10, 0))
    backends = [Costly("npu", Cost(10**11, 0)), second, rest]
    clock = Clock({("second",): 1.0, ("rest",): 0.5})
    plan = partition(model, backends, policy=Policy(placement="auto"), times=clock).plan
    assert plan["b"].reasons["second"].text == (
        "another placement is cheaper as a whole: 500 ms against 1000 ms with second here, as measured here"
    )
    assert plan["b"].reasons["npu"].text == (
        "another placement is cheaper as a whole: 500 ms as measured here; with npu here it was not measured, by the "
        "model 10 ms against 1000 ms"
    )


def test_a_gain_within_the_margin_is_said_to_be_one() -> None:
    npu, rest = Costly("npu", Cost(9 * 10**9, 0)), Costly("rest", Cost(10**10, 0), fallback=True)
    plan = partition(small("y = Relu(x)"), [npu, rest], policy=MODEL).plan
    assert plan["y"].reasons["npu"].text == (
        "another placement is cheaper as a whole: 100 ms against 90 ms with npu here, by the model; "
        "a gain counts from 15% on"
    )
