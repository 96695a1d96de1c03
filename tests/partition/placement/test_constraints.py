"""The user's constraints on nodes and operators."""

from __future__ import annotations

import pytest

from graft.core.reject import Reject
from graft.errors import PlanError
from graft.partition.placement.partitioner import partition
from graft.partition.policy import Policy
from tests.partition.graphs import everything, small, toy


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
