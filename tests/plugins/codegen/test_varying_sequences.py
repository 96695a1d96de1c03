"""Recurrent layers, scans and scatters of any batch and length: one program, as static ones of the same shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import graft
from graft.runtime.program import Program

RANDOM = np.random.default_rng(8)
FEATURES, HIDDEN = 12, 20
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def random(*shape: int) -> np.ndarray:
    return RANDOM.uniform(-0.5, 0.5, shape).astype(np.float32)


def layer(kind: str, **attributes: Any) -> onnx.ModelProto:
    """A layer of symbolic batch and steps with lengths and initial states."""
    rows, directions = GATES[kind] * HIDDEN, 2 if attributes.get("direction") == "bidirectional" else 1
    weights = {"w": (directions, rows, FEATURES), "r": (directions, rows, HIDDEN), "b": (directions, 2 * rows)}
    state = ["batch", directions, HIDDEN] if attributes.get("layout") else [directions, "batch", HIDDEN]
    shapes = {"x": ["batch", "steps", FEATURES] if attributes.get("layout") else ["steps", "batch", FEATURES]}
    shapes |= dict.fromkeys(("h", "c")[: 2 if kind == "LSTM" else 1], state)
    inputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    inputs.append(helper.make_tensor_value_info("n", onnx.TensorProto.INT32, ["batch"]))
    names = [*(["x", "w", "r", "b", "n", "h"]), *(["c"] if kind == "LSTM" else [])]
    results = ["y", "last", "cell"][: 3 if kind == "LSTM" else 2]
    node = helper.make_node(kind, names, results, hidden_size=HIDDEN, **attributes)
    outputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in results]
    fixed = [numpy_helper.from_array(random(*shape), name) for name, shape in weights.items()]
    graph = helper.make_graph([node], "layer", inputs, outputs, fixed)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def feeds_of(model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    feeds = {}
    for value in model.graph.input:
        shape = [sizes[one.dim_param] if one.dim_param else one.dim_value for one in value.type.tensor_type.shape.dim]
        is_float = value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        feeds[value.name] = random(*shape) if is_float else RANDOM.integers(0, sizes["steps"] + 1, shape, np.int32)
    return feeds


def strategies(program: Program) -> set[object]:
    calls = [call for procedure in program.description.procedures for call in procedure.calls]
    return {dict(call.schedule).get("strategy") for call in calls}


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("LSTM", {"direction": "bidirectional"}),
        ("LSTM", {"direction": "reverse", "layout": 1, "clip": 0.4}),
        ("GRU", {"direction": "bidirectional", "linear_before_reset": 1}),
        ("RNN", {"activations": ["Relu"]}),
    ],
)
def test_a_recurrent_layer_of_any_batch_and_steps_is_that_of_these_numbers(kind: str, attributes: Any) -> None:
    model = layer(kind, **attributes)
    program = graft.compile(model, ["llvm"], strict=True)
    assert "recurrent_layers" in strategies(program)
    for sizes in ({"batch": 1, "steps": 7}, {"batch": 6, "steps": 3}):
        feeds = feeds_of(model, sizes)
        expected = graft.compile(model, ["llvm"], dims=sizes, strict=True).run(feeds)
        for name, found in program.run(feeds).items():
            np.testing.assert_allclose(found, expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_layer_of_no_steps_keeps_its_states_and_one_of_no_rows_gives_nothing(kind: str) -> None:
    model = layer(kind, direction="bidirectional")
    program = graft.compile(model, ["llvm"], strict=True)
    feeds = feeds_of(model, {"batch": 3, "steps": 0})
    found = program.run(feeds)
    assert found["y"].shape == (0, 2, 3, HIDDEN)
    np.testing.assert_array_equal(found["last"], feeds["h"])
    assert program.run(feeds_of(model, {"batch": 0, "steps": 4}))["y"].shape == (4, 2, 0, HIDDEN)


def test_lengths_beyond_the_steps_are_an_error_that_says_how_many_there_are() -> None:
    model = layer("GRU")
    program = graft.compile(model, ["llvm"], strict=True)
    feeds = feeds_of(model, {"batch": 2, "steps": 5})
    feeds["n"][1] = 6
    with pytest.raises(graft.GraftError) as caught:
        program.run(feeds)
    assert str(caught.value).endswith("index 6 is out of range: axis 0 has extent 5, so that 0 to 5 are legal")


SCANS_AND_SCATTERS = {
    "sums along the last axis": ("(float[n,m] x) => (float[n,m] y)", "y = CumSum<exclusive = 1>(x, last)"),
    "sums from behind": ("(float[n,m,k] x) => (float[n,m,k] y)", "y = CumSum<reverse = 1>(x, first)"),
    "rows written": (
        "(float[n,m] x, int64[k,1] i, float[k,m] u) => (float[n,m] y)",
        'y = ScatterND<reduction = "add">(x, i, u)',
    ),
    "elements written": (
        "(float[n,m] x, int64[k,m] i, float[k,m] u) => (float[n,m] y)",
        'y = ScatterElements<axis = 0, reduction = "max">(x, i, u)',
    ),
    "elements written in rows": (
        "(float[k,n,m] x, int64[k,5,m] i, float[k,5,m] u) => (float[k,n,m] y)",
        'y = ScatterElements<axis = 1, reduction = "add">(x, i, u)',
    ),
    "transposed": ("(float[n,m] x, int64[m] i) => (float[n,m] y)", "y = ReverseSequence(x, i)"),
    "sums by names": (
        "(float[n,m,8] x, float[k,8] u) => (float[n,m,k] y)",
        'y = Einsum<equation = "nmi,ki->nmk">(x, u)',
    ),
    "the best": ("(float[n,m,30] x) => (float[n,m,q] y, int64[n,m,q] at)", "y, at = TopK<largest = 0>(x, few)"),
    "gathered": ("(float[n,m] x, int64[k,1] i) => (float[k,m] y)", "y = GatherND(x, i)"),
}


@pytest.mark.parametrize("name", SCANS_AND_SCATTERS)
def test_what_depends_on_order_or_data_takes_any_extents(name: str) -> None:
    head, body = SCANS_AND_SCATTERS[name]
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 20]>
        g {head} <int64 last = {{-1}}, int64 first = {{0}}, int64[1] few = {{3}}> {{ {body} }}"""
    )
    program = graft.compile(model, ["llvm"], strict=True)
    evaluator = ReferenceEvaluator(model)
    for n, m, k in ((3, 17, 2), (5, 4, 40), (40, 65, 7), (1, 1, 1), (4, 3, 0), (6, 0, 2)):
        feeds = {}
        for value in model.graph.input:
            sizes = {"n": n, "m": m, "k": k}
            dims = value.type.tensor_type.shape.dim
            shape = [sizes[one.dim_param] if one.dim_param else one.dim_value for one in dims]
            is_float = value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
            feeds[value.name] = random(*shape) if is_float else RANDOM.integers(0, n, shape)
        expected = evaluator.run(None, feeds)[0]
        np.testing.assert_allclose(program.run(feeds)["y"], expected, rtol=2e-5, atol=2e-6)
