"""NaR of posits in every operator: equal to itself, less than every number, and the result of what it goes into."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import graft
from graft.datatypes.conversion import convert

X = np.array([np.nan, 1.0, np.nan, -2.0, 0.0])
Y = np.array([np.nan, np.nan, 3.0, -2.0, 0.0])
COMPARISONS = {
    "Equal": [True, False, False, True, True],
    "Less": [False, False, True, False, False],
    "LessOrEqual": [True, False, True, True, True],
    "Greater": [False, True, False, False, False],
    "GreaterOrEqual": [True, True, False, True, True],
}
BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max")
UNARY = (
    "Neg", "Abs", "Sign", "Sqrt", "Relu", "Exp", "Log", "Tanh", "Sigmoid", "Erf", "Sin", "Floor", "Reciprocal",
    "LeakyRelu", "Softplus", "Elu", "HardSigmoid", "Round", "Identity", "Ceil", "Cos", "Tan", "Softsign",
)  # fmt: skip


@pytest.fixture(scope="module", params=["custom[posit]8", "custom[posit]16", "custom[posit]32"])
def found(request: pytest.FixtureRequest) -> dict[str, np.ndarray]:
    kind = TensorProto.DOUBLE
    nodes = [helper.make_node(name, ["x", "y"], [name]) for name in (*COMPARISONS, *BINARY)]
    nodes += [helper.make_node(name, ["x"], [name]) for name in (*UNARY, "IsNaN")]
    truths = {*COMPARISONS, "IsNaN"}
    results = [
        helper.make_tensor_value_info(node.output[0], TensorProto.BOOL if node.output[0] in truths else kind, [5])
        for node in nodes
    ]
    given = [helper.make_tensor_value_info(name, kind, [5]) for name in "xy"]
    graph = helper.make_graph(nodes, "nar", given, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return graft.compile(convert(model, request.param), ["llvm"], threads=1).run({"x": X, "y": Y})


@pytest.mark.parametrize("name", COMPARISONS)
def test_nar_equals_itself_and_is_less_than_numbers(found: dict[str, np.ndarray], name: str) -> None:
    np.testing.assert_array_equal(found[name], COMPARISONS[name])


def test_nar_is_not_a_number(found: dict[str, np.ndarray]) -> None:
    np.testing.assert_array_equal(found["IsNaN"], [True, False, True, False, False])


@pytest.mark.parametrize("name", BINARY)
def test_an_operation_with_nar_is_nar(found: dict[str, np.ndarray], name: str) -> None:
    assert np.isnan(found[name][:3]).all()


@pytest.mark.parametrize("name", UNARY)
def test_a_function_of_nar_is_nar(found: dict[str, np.ndarray], name: str) -> None:
    assert np.isnan(found[name][[0, 2]]).all()
    assert name in ("Log", "Sqrt", "Reciprocal") or not np.isnan(found[name][[1, 3, 4]]).any()
