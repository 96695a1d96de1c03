"""NaN where nobody named oneDNN: what its maxima, minima and exponentials take for a number goes to others."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft
from graft.core.operators.all import OPERATORS
from graft.partition.policy import Policy
from graft.plugins.onednn.accuracy import ELTWISE
from graft.plugins.onednn.backend import OneDnnBackend
from graft.plugins.onednn.operators import LOSES_NAN, ROWS
from tests.plugins.onednn.models import needs_library

TEXT = """<ir_version: 10, opset_import: ["" : 24]> g (float[1,2,3,3] x) => (float[1,1,2,2] y)
    <float[1,2,2,2] w = {1,2,3,4,5,6,7,8}> { c = Conv(x, w) y = Relu(c) }"""


def plan(policy: Policy, *backends: str) -> graft.Plan:
    return graft.plan(onnx.parser.parse_model(TEXT), [*backends], policy=policy)


def test_the_operators_that_lose_nans_are_those_of_the_algorithms_that_do() -> None:
    builds = {name: row.eltwise for name, row in ROWS.items() if row.eltwise is not None}
    made = {name: build({}, [None, np.float32(3), np.float32(4)]) for name, build in builds.items()}
    plain = {name for name, one in made.items() if one is not None and ELTWISE[one.algorithm].loses_nan}
    others = {"LeakyRelu"}  # with a slope it is another kernel
    assert plain - others <= LOSES_NAN <= {one.name for one in OPERATORS}


@needs_library
@pytest.mark.parametrize("placement", ["auto", "model"])
def test_placement_by_cost_gives_no_operator_to_who_loses_nans_in_it(placement: str) -> None:
    made = plan(Policy(placement=placement, pin={"c": "onednn"}), "onednn", "llvm")
    assert (made["c"].backend, made["y"].backend) == ("onednn", "llvm")
    assert str(made["y"].reasons["onednn"]) == (
        "accuracy: onednn takes a NaN for a number in Relu; allow it to be inaccurate to have that"
    )


@needs_library
@pytest.mark.parametrize(
    "policy", [Policy(), Policy(placement="model", pin={"c": "onednn", "y": "onednn"}),
               Policy(placement="model", pin={"c": "onednn"}, allow_inaccurate=("onednn:Relu",))]
)  # fmt: skip
def test_who_asks_for_onednn_gets_its_composite(policy: Policy) -> None:
    assert plan(policy, "onednn", "llvm")["y"].composite == "onednn.conv_relu"


@pytest.mark.parametrize("text", ["Relu(x)", "Exp(x)", "Softmax(x)", "Max(x, x)", "HardSigmoid(x)", "GlobalMaxPool(x)"])
def test_a_nan_is_a_nan_by_default(text: str) -> None:
    extent = 1 if "Global" in text else 9
    source = f'<ir_version: 10, opset_import: ["" : 24]> g (float[1,2,9,9] x) => (float[1,2,{extent},{extent}] y)'
    program = graft.compile(onnx.parser.parse_model(f"{source} {{ y = {text} }}"))
    assert np.isnan(program(np.full((1, 2, 9, 9), np.nan, np.float32))).all()


def test_what_a_backend_states_of_nans_is_a_set_of_operators() -> None:
    assert OneDnnBackend.loses_nan == LOSES_NAN
