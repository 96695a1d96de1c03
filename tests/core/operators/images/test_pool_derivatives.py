"""Derivatives of pools: beside differences, at ties, and without a scatter where windows lie apart."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft
from tests.core.differentiation.differences import of_text
from tests.core.operators.elementwise.test_derivatives import gradient


@pytest.mark.parametrize(
    "node",
    [
        "AveragePool <kernel_shape = [3], strides = [2], ceil_mode = 1, pads = [1, 1], count_include_pad = 1>",
        "AveragePool <kernel_shape = [3], strides = [2], ceil_mode = 1, pads = [1, 1]>",
        "AveragePool <kernel_shape = [2], dilations = [3]>", "MaxPool <kernel_shape = [3], pads = [1, 1]>",
        "MaxPool <kernel_shape = [2], storage_order = 1>", "LpPool <kernel_shape = [2], p = 3, pads = [1, 0]>",
        "MaxPool <kernel_shape = [2], strides = [5], dilations = [3], pads = [1, 3]>",
        "MaxPool <kernel_shape = [3], strides = [3], ceil_mode = 1>", "MaxPool <kernel_shape = [3], strides = [3]>",
        "MaxPool <kernel_shape = [2], strides = [2], storage_order = 1>",
        "AveragePool <kernel_shape = [2], strides = [5], dilations = [3], pads = [1, 3]>",
        "AveragePool <kernel_shape = [3], strides = [3], ceil_mode = 1>",
        "AveragePool <kernel_shape = [2], strides = [3]>",
        "GlobalLpPool <p = 3>", "GlobalLpPool <p = 1>", "GlobalMaxPool", "GlobalAveragePool",
    ],
)  # fmt: skip
def test_pools(node: str) -> None:
    assert of_text(f"y = {node} (x)", {"x": (2, 3, 8)}) <= 1


def test_the_first_of_equal_elements_has_the_gradient_of_its_window() -> None:
    nodes = """s = Constant <value_ints = [1, 1, -1]> () i = Reshape (x, s)
        m = MaxPool <kernel_shape = [2], strides = [2]> (i) g = GlobalMaxPool (i) y = Add (m, g)"""
    assert gradient(nodes, x=[0, 0, 0, 0])["x"] == [3, 0, 1, 0]


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
def test_windows_of_planes_that_lie_apart(operator: str) -> None:
    node = f"y = {operator} <kernel_shape = [2, 3], strides = [3, 3], pads = [1, 0, 1, 2]> (x)"
    assert of_text(node, {"x": (2, 3, 7, 8)}) <= 1


@pytest.mark.parametrize("batch", ["2", "n"])
@pytest.mark.parametrize(("stride", "operator"), [(2, "MaxPool"), (2, "AveragePool"), (1, "MaxPool")])
def test_only_windows_that_overlap_are_scattered(batch: str, stride: int, operator: str) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 22]> g (float[{batch},3,6,8] x) => (float loss) {{
            y = {operator} <kernel_shape = [2, 2], strides = [{stride}, {stride}]> (x)
            loss = ReduceSum <keepdims = 0> (y) }}"""
    )
    gradients = graft.grad(model, wrt=["x"])
    found = {node.op_type for node in gradients.graph}
    assert ("ScatterElements" in found, "ConvTranspose" in found) == (stride == 1, False)
    x = np.random.default_rng(0).permutation(288).reshape(2, 3, 6, 8).astype(np.float32)
    of_all = graft.compile(gradients).run({"x": x})["x_grad"]
    assert of_all.sum() == (72 if stride == 2 else 210)  # windows: each gives a gradient of one
