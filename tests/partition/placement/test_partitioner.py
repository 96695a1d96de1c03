from __future__ import annotations

import pytest

from graft.errors import PlanError, UnsupportedError
from graft.partition.placement.partitioner import partition
from tests.partition.graphs import small, toy


def test_a_backend_listed_twice_is_an_error() -> None:
    with pytest.raises(PlanError) as caught:
        partition(small("y = Relu(x)"), [toy("npu"), toy("npu")])
    assert str(caught.value) == "backend 'npu' is listed twice; list each backend once"


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
        assert caught.value.resort == (resort if hint else "")
