"""Networks whose results are images: one that leaves does not keep the others from having channels last."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import graft
from graft.core.machine.target import host_target
from graft.core.schedule.loops import nest
from graft.core.schedule.loops.flat_stages import FlatStage
from graft.core.schedule.loops.tiled_transpose import find_transposition
from graft.core.schedule.strategies.convolutions.channel_order import has_any_order
from graft.plugins.codegen.grouping import region_layout
from graft.plugins.codegen.grouping.region_layout import RegionGraph


def network(outputs: int, size: int | None, *, inside: bool = False, stride: int = 1) -> onnx.ModelProto:
    """Three convolutions of 3x3 with a residual sum; the last image leaves, with ``inside`` the second one, too."""
    rng = np.random.default_rng(0)
    channels = [3, 32, 32, outputs]
    weights = [
        numpy_helper.from_array((rng.standard_normal((after, before, 3, 3)) / 8).astype(np.float32), f"w{number}")
        for number, (before, after) in enumerate(pairwise(channels))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], name="first", pads=[1] * 4, strides=[stride] * 2),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["b", "w1"], ["c"], name="second", pads=[1] * 4),
        helper.make_node("Add", ["b", "c"], ["d"], name="sum"),
        helper.make_node("Conv", ["d", "w2"], ["e"], name="third", pads=[1] * 4),
        helper.make_node("Sigmoid", ["e"], ["y"], name="sigmoid"),
    ]
    extents = [size or "n", 3, size or "h", size or "w"]
    results = [helper.make_tensor_value_info(name, 1, None) for name in (["y", "d"] if inside else ["y"])]
    graph = helper.make_graph(nodes, "image", [helper.make_tensor_value_info("x", 1, extents)], results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("outputs", [1, 3, 20, 32])
@pytest.mark.parametrize(("size", "precision"), [(None, "float32"), (None, "bf16"), (9, "bf16")])
def test_the_results_are_those_of_the_model(outputs: int, size: int | None, precision: str, inside: bool) -> None:
    model = network(outputs, size, inside=inside)
    program = graft.compile(model, ["llvm"], threads=1, precision=precision)
    for shape in [(size, 3, size, size)] if size else [(1, 3, 9, 11), (2, 3, 20, 16), (1, 3, 1, 1)]:
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        expected = ReferenceEvaluator(model).run(None, {"x": x})
        for found, wanted in zip(program.run({"x": x}).values(), expected, strict=True):
            tolerance = 2e-5 if precision == "float32" else 0.05
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def strategies(model: onnx.ModelProto, without: list[str] | None = None) -> list[str]:
    program = graft.compile(model, ["llvm"], threads=1, without=without or [], tuned=False)
    calls = [call for procedure in program.description.procedures for call in procedure.calls]
    return [str(found) for call in calls if (found := dict(call.schedule).get("strategy"))]


def test_convolutions_have_channels_last_though_their_image_leaves() -> None:
    moved = ["varying_first_convolution", "winograd", "winograd", "fused_elementwise"]
    assert strategies(network(32, None)) == moved
    assert "fused_elementwise" not in strategies(network(32, None), ["channels-last"])


def test_what_nodes_need_is_settled_once_for_the_images_that_move_and_once_for_the_layouts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[ir.Value, ...]] = []

    def counted(graph: RegionGraph, settled: Any = region_layout._settled) -> object:
        seen.append(tuple(graph.moved))
        return settled(graph)

    monkeypatch.setattr(region_layout, "_settled", counted)
    graft.compile(network(32, None), ["llvm"], threads=1, tuned=False, cache=False)
    assert len([moved for moved in seen if moved]) == 1


def test_a_residual_of_an_open_image_with_channels_first_has_a_kernel() -> None:
    model = network(32, None)
    program = graft.compile(model, ["llvm"], threads=1, without=["channels-last"])
    x = np.random.default_rng(1).standard_normal((2, 3, 10, 13)).astype(np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(program.run({"x": x})["y"], expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("operands", [["r", "e"], ["e", "r"]])
def test_few_channels_are_computed_in_the_order_in_which_they_leave(operands: list[str]) -> None:
    assert strategies(network(1, None)).count("winograd") == 1
    residual = network(3, None)
    residual.graph.node[-1].CopyFrom(helper.make_node("Add", operands, ["y"], name="residual"))
    residual.graph.node[0].input[0] = "r"
    residual.graph.node.insert(0, helper.make_node("Resize", ["x", "", "s"], ["r"], name="larger"))
    residual.graph.initializer.append(numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "s"))
    assert strategies(residual).count("winograd") == 1


def test_an_image_is_moved_for_what_adds_a_view_to_it() -> None:
    model = network(32, None)
    model.graph.node[-1].CopyFrom(helper.make_node("Add", ["e", "r"], ["y"], name="sum of views"))
    model.graph.node.insert(0, helper.make_node("Reshape", ["x", "shape"], ["r"], name="view"))
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1, 1, 9, 12]), "shape"))
    assert strategies(model).count("winograd") == 2
    x = np.random.default_rng(0).standard_normal((1, 3, 9, 12)).astype(np.float32)
    model.graph.initializer[-1].CopyFrom(numpy_helper.from_array(np.array([3, 1, 9, 12]), "shape"))
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    found = graft.compile(model, ["llvm"], threads=1).run({"x": x})["y"]
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def test_a_pool_of_an_open_image_reads_and_writes_one_order() -> None:
    model = network(32, None, stride=2)
    del model.graph.node[1:]
    for name, source, result in (("MaxPool", "a", "b"), ("Flatten", "b", "y")):
        given = {"kernel_shape": [3, 3], "strides": [2, 2]} if name == "MaxPool" else {}
        model.graph.node.append(helper.make_node(name, [source], [result], **given))
    assert strategies(model) == ["varying_first_convolution", "clipped_windows", "fused_elementwise"]


def test_images_of_numbers_move_where_that_saves_cycles() -> None:
    model = network(32, 18, stride=2)
    found, plain = strategies(model), strategies(model, ["channels-last"])
    assert (found == plain) is not has_any_order(host_target())


def test_an_image_with_channels_first_is_joined_in_tiles_to_one_that_has_them_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tiled = list[bool]()

    def seen(stage: FlatStage, *given: Any) -> object:
        found = find_transposition(stage, *given)
        if stage.target.name == "both":
            tiled.append(found is not None)
        return found

    monkeypatch.setattr(nest, "find_transposition", seen)
    rng = np.random.default_rng(0)
    shapes = {"first": (16, 3, 3, 3), "down": (32, 16, 3, 3), "up": (32, 16, 2, 2), "last": (16, 32, 3, 3)}
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 8, name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"], name="first", pads=[1] * 4),
        helper.make_node("Conv", ["a", "down"], ["b"], name="down", pads=[1] * 4, strides=[2, 2]),
        helper.make_node("ConvTranspose", ["b", "up"], ["c"], name="up", strides=[2, 2]),
        helper.make_node("Concat", ["a", "c"], ["both"], name="both", axis=1),
        helper.make_node("Conv", ["both", "last"], ["y"], name="last", pads=[1] * 4),
    ]
    sizes = helper.make_tensor_value_info("x", 1, [1, 3, "h", "w"]), helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph(nodes, "decoder", [sizes[0]], [sizes[1]], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    program = graft.compile(model, ["llvm"], threads=1, cache=False)
    assert any(tiled)
    x = rng.standard_normal((1, 3, 12, 40)).astype(np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(program(x), expected, rtol=1e-4, atol=1e-4)
