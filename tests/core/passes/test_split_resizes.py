"""Images of any size that are enlarged along one axis after the other."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, parser
from onnx.reference import ReferenceEvaluator

import graft
from graft.core.importer.load import load
from graft.core.passes.normalize import normalize

SCALES = "float[4] scales = {1, 1, 2, 1.5}"
SHAPES = ((1, 3, 5, 8), (1, 3, 1, 2), (1, 3, 20, 33))


def model_of(attributes: str, image: str = "1, 3, h, w", result: str = "1, 3, p, q") -> ModelProto:
    """A Resize by scales, before a Relu."""
    text = f"""g (float[{image}] x) => (float[{result}] y) <{SCALES}>
    {{ b = Resize<{attributes}>(x, , scales)  y = Relu(b) }}"""
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')


def to_sizes(mode: str) -> ModelProto:
    """A Resize to a size that is computed, as exporters write that of another image."""
    text = f"""g (float[1, 3, h, w] x) => (float[1, 3, p, q] y)
    {{ s = Shape<start = 2>(x)  t = Add(s, s)  y = Resize<mode = "{mode}", axes = [2, 3]>(x, , , t) }}"""
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')


def resized(model: ModelProto) -> list[list[int] | None]:
    """Return the axes of each Resize after a model is simplified."""
    simplified = load(model)
    normalize(simplified)
    axes = [node.attributes.get("axes") for node in simplified.graph if node.op_type == "Resize"]
    return [None if one is None else list(one.as_ints()) for one in axes]


def check(model: ModelProto) -> None:
    program = graft.compile(model, ["llvm"], threads=1)
    for shape in SHAPES:
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
        np.testing.assert_allclose(program(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("mode", "coordinates"), [("linear", "half_pixel"), ("linear", "align_corners"), ("cubic", "pytorch_half_pixel")]
)
def test_two_steps_compute_what_one_does(mode: str, coordinates: str) -> None:
    model = model_of(f'mode = "{mode}", coordinate_transformation_mode = "{coordinates}"')
    assert resized(model) == [[3], [2]]
    check(model)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_sizes_that_are_computed_are_taken_one_by_one(mode: str) -> None:
    assert resized(to_sizes(mode)) == [[3], [2]]
    check(to_sizes(mode))


@pytest.mark.parametrize(
    "model",
    [
        model_of('mode = "nearest"'),
        model_of('mode = "linear", antialias = 1'),
        model_of('mode = "linear"', "1, 3, 6, 8", "1, 3, 12, 12"),
        model_of('mode = "linear"', "1, 64, h, w", "1, 64, p, q"),
    ],
    ids=["nearest", "smoothed", "known", "many channels"],
)
def test_other_images_are_enlarged_at_once(model: ModelProto) -> None:
    assert resized(model) == [None]
