"""Convolutions of small images by computed weights: one product for all images, the same results."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import graft
from graft.core.machine.target import host_target
from graft.core.passes.gather_patches import CACHES

LEAST = CACHES * host_target().machine.working_set(2) // 4
"""Weights from which on a convolution is a product."""


def network(
    image: tuple[int, ...], kernel: tuple[int, ...], *, outputs: int = 0, bias: bool = True, **attributes: object
) -> onnx.ModelProto:
    """A convolution, ReLU behind it, whose weights are an input, of `LEAST` elements if not of so many channels."""
    weights = (outputs or -(-LEAST // (image[1] * int(np.prod(kernel)))), image[1], *kernel)
    node = helper.make_node("Conv", ["x", "w", *(["b"] if bias else [])], ["c"], "conv", **attributes)
    given = [("x", image), ("w", weights), *([("b", weights[:1])] if bias else [])]
    graph = helper.make_graph(
        [node, helper.make_node("Relu", ["c"], ["y"], "relu")], "small",
        [helper.make_tensor_value_info(name, 1, shape) for name, shape in given],
        [helper.make_tensor_value_info("y", 1, None)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def strategies(program: graft.Program) -> set[str]:
    calls = [call for procedure in program.description.procedures for call in procedure.calls]
    return {str(found) for call in calls if (found := dict(call.schedule).get("strategy"))}


@pytest.mark.parametrize(
    ("image", "kernel", "attributes"),
    [
        ((4, 256, 4, 4), (3, 3), {"pads": [1] * 4}),
        ((3, 256, 5, 6), (3, 2), {"pads": [1, 0, 0, 2], "strides": [2, 1], "dilations": [1, 2]}),
        ((2, 512, 7, 7), (1, 1), {"bias": False}),
        ((2, 512, 7, 7), (1, 1), {"strides": [2, 2]}),
        ((3, 512, 9), (5,), {"pads": [2, 2]}),
    ],
)
def test_it_is_a_product_of_the_same_results(
    image: tuple[int, ...], kernel: tuple[int, ...], attributes: dict[str, object]
) -> None:
    model = network(image, kernel, **attributes)
    rng = np.random.default_rng(0)
    shapes = {one.name: [dim.dim_value for dim in one.type.tensor_type.shape.dim] for one in model.graph.input}
    feeds = {name: rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}
    program = graft.compile(model, ["llvm"], threads=1)
    assert "blocked_product" in strategies(program) and "direct_convolution" not in strategies(program)
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_allclose(np.asarray(program.run(feeds)["y"]), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("image", "outputs", "without"),
    [((1, 256, 4, 4), 0, []), ((4, 256, 12, 12), 0, []), ((4, 256, 4, 4), 8, []), ((4, 256, 4, 4), 0, ["patches"])],
)
def test_one_image_large_ones_and_few_weights_stay(image: tuple[int, ...], outputs: int, without: list[str]) -> None:
    model = network(image, (3, 3), outputs=outputs, pads=[1] * 4)
    assert "direct_convolution" in strategies(graft.compile(model, ["llvm"], threads=1, without=without))
