"""Windows whose padding follows from the extents of an image of any size."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, parser
from onnx.reference import ReferenceEvaluator

import graft
from graft.core.importer.load import load
from graft.core.passes.normalize import normalize

SHAPES = ((2, 3, 9, 8), (1, 3, 8, 8), (1, 3, 1, 1), (1, 3, 17, 30), (1, 3, 2, 3))


def model_of(attributes: str, image: str = "n, 3, h, w") -> ModelProto:
    """A convolution of an image."""
    text = f"g (float[{image}] x, float[4, 3, 3, 3] v) => (float[n, c, p, q] y) {{ y = Conv<{attributes}>(x, v) }}"
    return parser.parse_model(f'<ir_version: 9, opset_import: ["" : 19]> {text}')


def operators(model: ModelProto) -> set[str]:
    """Return the operators of a model after it is simplified."""
    simplified = load(model)
    normalize(simplified)
    return {node.op_type for node in simplified.graph}


def pads(extent: int, stride: int, mode: str) -> tuple[int, int]:
    """Return the padding that ONNX's text states for a window of three."""
    whole = max((-(-extent // stride) - 1) * stride + 3 - extent, 0)
    halves = whole // 2, whole - whole // 2
    return halves if mode == "SAME_UPPER" else halves[::-1]


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("strides", [(2, 2), (1, 3)])
def test_padding_is_computed_where_extents_vary(strides: tuple[int, int], mode: str) -> None:
    plain = f"strides = {list(strides)}"
    model = model_of(f'auto_pad = "{mode}", {plain}')
    assert "Pad" in operators(model)
    program = graft.compile(model, ["llvm"], threads=1)
    v = np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype(np.float32)
    for shape in SHAPES:
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32) - 3
        feeds = {"x": x, "v": v}
        sides = [pads(extent, stride, mode) for extent, stride in zip(shape[2:], strides, strict=True)]
        stated = [side[0] for side in sides] + [side[1] for side in sides]
        oracle = ReferenceEvaluator(model_of(f"pads = {stated}, {plain}"))
        np.testing.assert_allclose(program.run(feeds)["y"], oracle.run(None, feeds)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("attributes", "image"),
    [
        ('auto_pad = "SAME_UPPER", strides = [2, 2]', "n, 3, 9, 8"),
        ('auto_pad = "SAME_UPPER"', "n, 3, h, w"),
        ('auto_pad = "VALID", strides = [2, 2]', "n, 3, h, w"),
    ],
)
def test_padding_that_is_a_number_is_left_to_the_operator(attributes: str, image: str) -> None:
    assert "Pad" not in operators(model_of(attributes, image))
