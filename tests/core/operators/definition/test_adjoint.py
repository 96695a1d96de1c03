"""What rules are written in: sums over repeated axes, where shapes are known and where they are not."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from graft.core.differentiation.reverse import pull
from graft.core.graph.dimensions import unique
from graft.core.operators.definition.adjoint import Adjoint
from graft.core.operators.definition.function_body import OPSET, Body

Extents = list[int | str | None]


def adjoint(wide: Extents, narrow: Extents) -> Adjoint:
    node = onnx.parser.parse_node("y = Add (x, z)")
    types = {
        name: helper.make_tensor_type_proto(11, shape) for name, shape in (("y", wide), ("x", narrow), ("g", wide))
    }
    body = Body(node, types, {}, partial(unique, taken={"x", "y", "z", "g"}))
    return Adjoint(node, body, {"y": "g"}, {"x"}, pull)


def run(f: Adjoint, result: str, shapes: dict[str, tuple[int, ...]]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    feeds = {name: rng.uniform(-1, 1, shape) for name, shape in shapes.items()}
    inputs = [helper.make_tensor_value_info(name, 11, array.shape) for name, array in feeds.items()]
    graph = helper.make_graph(f.nodes, "g", inputs, [helper.make_value_info(result, onnx.TypeProto())])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    return np.asarray(ReferenceEvaluator(model).run([result], feeds)[0]), feeds


@pytest.mark.parametrize(
    ("wide", "narrow", "shape", "wanted", "operators"),
    [
        ([2, 3], [2, 3], (2, 3), (2, 3), []),
        (["n", 3], ["n", 3], (2, 3), (2, 3), []),
        ([4, 2, 3], [2, 3], (4, 2, 3), (2, 3), ["Constant", "ReduceSum"]),
        ([2, 3], [2, 1], (2, 3), (2, 1), ["Constant", "ReduceSum"]),
        ([4, 2, 3], [1, 3], (4, 2, 3), (1, 3), ["Constant", "ReduceSum", "Constant", "Squeeze"]),
        ([2, 3], [], (2, 3), (), ["Constant", "ReduceSum"]),
    ],
)
def test_a_gradient_is_summed_over_repeated_axes(
    wide: Extents, narrow: Extents, shape: tuple[int, ...], wanted: tuple[int, ...], operators: list[str]
) -> None:
    f = adjoint(wide, narrow)
    result = f.summed("g", "x")
    assert [node.op_type for node in f.nodes] == operators
    if operators:
        found, feeds = run(f, result, {"g": shape})
        padded = (1,) * (len(shape) - len(wanted)) + wanted
        axes = tuple(axis for axis, extent in enumerate(padded) if extent == 1)
        np.testing.assert_allclose(found, feeds["g"].sum(axes, keepdims=True).reshape(wanted))


@pytest.mark.parametrize("narrow", [(1, 3), (2, 3), (2, 1)])
def test_what_is_repeated_is_found_when_shapes_are_there(narrow: tuple[int, ...]) -> None:
    f = adjoint(["a", "b", None], ["c", None])
    result = f.summed("g", "x")
    found, feeds = run(f, result, {"g": (4, 2, 3), "x": narrow})
    axes = (0, *(axis for axis, extent in enumerate(narrow, 1) if extent == 1))
    np.testing.assert_allclose(found, feeds["g"].sum(axes, keepdims=True).reshape(narrow))


def test_an_output_that_nobody_reads_is_given_where_a_rule_asks_for_it() -> None:
    node = onnx.parser.parse_node("y = MaxPool <kernel_shape = [2]> (x)")
    types = {"x": helper.make_tensor_type_proto(1, [1, 1, 4]), "y": helper.make_tensor_type_proto(1, [1, 1, 3])}
    f = Adjoint(node, Body(node, types, {}, partial(unique, taken={"x", "y"})), {"y": "g"}, {"x"}, pull)
    name = f.result(1)
    assert list(node.output) == ["y", name]
    assert f.dtype(name) == onnx.TensorProto.INT64
    assert f.shape(name) == (1, 1, 3)
