"""Windows whose padding follows from the extents of an image of any size."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, parser
from onnx.reference import ReferenceEvaluator

import graft
from graft.core.importer.load import load
from graft.core.passes.normalize import normalize

VALUES = ", ".join(f"{number / 9 - 1:.3f}" for number in range(27))
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


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("strides", [(2, 2), (1, 3)])
@pytest.mark.parametrize(
    ("node", "kind"),
    [("ConvInteger<ATTRIBUTES>(x, v, z)", "int32"), ("ConvInteger<ATTRIBUTES>(x, v)", "int32"),
     ("QLinearConv<ATTRIBUTES>(x, s, z, v, s, o, s, z)", "uint8")],
)  # fmt: skip
def test_what_lies_around_an_image_of_integers_is_its_zero_point(
    node: str, kind: str, strides: tuple[int, int], mode: str
) -> None:
    v = np.random.default_rng(1).integers(-9, 9, (4, 3, 3, 3)).astype(np.int8)

    def model(attributes: str) -> ModelProto:
        text = (
            f"g (uint8[n, 3, h, w] x, int8[4, 3, 3, 3] v) => ({kind}[n, c, p, q] y) <uint8 z = {{7}}, int8 o = {{0}}, "
        )
        text += f"float s = {{0.1}}> {{ y = {node.replace('ATTRIBUTES', attributes)} }}"
        return parser.parse_model(f'<ir_version: 9, opset_import: ["" : 19]> {text}')

    plain = f"strides = {list(strides)}"
    program = graft.compile(model(f'auto_pad = "{mode}", {plain}'), ["llvm"], threads=1)
    for shape in SHAPES:
        x = np.random.default_rng(0).integers(0, 255, shape).astype(np.uint8)
        sides = [pads(extent, stride, mode) for extent, stride in zip(shape[2:], strides, strict=True)]
        stated = [side[0] for side in sides] + [side[1] for side in sides]
        expected = ReferenceEvaluator(model(f"pads = {stated}, {plain}")).run(None, {"x": x, "v": v})[0]
        found = program.run({"x": x, "v": v})["y"]
        assert np.abs(found.astype(np.int64) - expected).max() <= (kind == "uint8")  # a half is rounded otherwise


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("strides", [(2, 2), (1, 3)])
@pytest.mark.parametrize(
    "node",
    [
        "y = MaxPool<ATTRIBUTES, kernel_shape = [3, 3]>(x)",
        "m, y = MaxPool<ATTRIBUTES, kernel_shape = [3, 3]>(x)",
        "y = AveragePool<ATTRIBUTES, kernel_shape = [3, 3]>(x)",
        "y = AveragePool<ATTRIBUTES, kernel_shape = [3, 3], count_include_pad = 1>(x)",
        "y = LpPool<ATTRIBUTES, kernel_shape = [3, 3]>(x)",
        "y = ConvTranspose<ATTRIBUTES>(x, v)",
    ],
)
def test_windows_that_are_not_rewritten_begin_where_the_extents_say(
    node: str, strides: tuple[int, int], mode: str
) -> None:
    def model(attributes: str, image: str) -> ModelProto:
        kind = "int64" if node.startswith("m") else "float"
        text = f"g (float[{image}] x) => ({kind}[n, c, p, q] y) <float[3, 1, 3, 3] v = {{{VALUES}}}> {{ {node} }}"
        text = text.replace("ATTRIBUTES", attributes)
        return parser.parse_model(f'<ir_version: 9, opset_import: ["" : 19]> {text}')

    plain = f"strides = {list(strides)}"
    program = graft.compile(model(f'auto_pad = "{mode}", {plain}', "n, 3, h, w"), ["llvm"], threads=1)
    for shape in SHAPES:
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32) - 3
        whole = [max(3 - stride, 0) for stride in strides]  # of a ConvTranspose
        sides = [pads(extent, stride, mode) for extent, stride in zip(shape[2:], strides, strict=True)]
        if "Transpose" in node:
            sides = [(one // 2, one - one // 2)[:: 1 if mode == "SAME_UPPER" else -1] for one in whole]
        stated = [side[0] for side in sides] + [side[1] for side in sides]
        expected = graft.compile(model(f"pads = {stated}, {plain}", str(list(shape))[1:-1]), ["reference"]).run(
            {"x": x}
        )
        np.testing.assert_allclose(program.run({"x": x})["y"], expected["y"], rtol=1e-5, atol=1e-5)


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
