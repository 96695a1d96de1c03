"""Import, seeding and every pass on whole models: ONNX Runtime computes the same before and after."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from examples.models.seed_weights import SeedWeights
from graft.core.graph.view import ValueView
from graft.core.importer.load import load
from graft.core.passes.normalize import PASSES, normalize
from graft.core.shapes.inference import require_static

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
EXPORTED = Path(__file__).parents[3] / "examples" / "models"
NAMES = (
    "mobilenet_v2", "lstm", "convnext_tiny", "bert_base", "gpt2", "vit_base", "swin_tiny", "distilbert",
    "whisper_tiny_encoder", "llama", "llama_opset23",
)  # fmt: skip
SMALL = ("light_squeezenet", "light_shufflenet", "light_inception_v1", "light_inception_v2", "light_resnet50")
SLOW = ("light_densenet121", "light_bvlc_alexnet", "light_vgg19", "light_zfnet512", *NAMES[2:])


def path_of(name: str) -> Path:
    return (LIGHT if name.startswith("light_") else EXPORTED) / f"{name}.onnx"


def inputs_of(model: ir.Model) -> dict[str, np.ndarray]:
    """Return seeded inputs: normal floats, token numbers, masks of ones."""
    generator = np.random.default_rng(0)
    feeds = {}
    for value in map(ValueView, model.graph.inputs):
        shape = value.static_shape
        assert shape is not None
        if value.dtype == "float32":
            feeds[value.name] = generator.standard_normal(shape, np.float32)
        else:
            tokens = generator.integers(0, 1000, shape)
            feeds[value.name] = (
                np.ones_like(tokens) if "mask" in value.name else tokens % (2 if "type" in value.name else 1000)
            )
    return feeds


def run(model: ir.Model) -> list[np.ndarray]:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    return [np.asarray(result) for result in session.run(None, inputs_of(model))]


@pytest.mark.parametrize("name", [*SMALL, *NAMES[:2], *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_passes_keep_what_a_model_computes(name: str) -> None:
    model = load(path_of(name))
    require_static(model)
    SeedWeights().run(model)
    before = run(model)
    normalize(model)
    for old, new in zip(before, run(model), strict=True):
        assert np.isfinite(old).all()
        assert old.std() > 1e-5
        np.testing.assert_allclose(new, old, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("disabled", PASSES)
def test_any_pass_can_be_switched_off(disabled: str) -> None:
    model = load(path_of("light_shufflenet"))
    SeedWeights().run(model)
    before = run(model)
    results = normalize(model, disable=[disabled])
    assert disabled not in [result.name for result in results]
    np.testing.assert_allclose(run(model)[0], before[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("light_resnet50", {"BatchNormalization": 0, "Conv": 53, "Add": 16, "Sum": 0}),
        ("light_inception_v2", {"BatchNormalization": 0, "Conv": 69, "Mul": 0, "Add": 0, "Unsqueeze": 0}),
        ("light_densenet121", {"BatchNormalization": 0, "Conv": 121, "Mul": 62, "Add": 62, "Unsqueeze": 0}),
        ("light_squeezenet", {"Dropout": 0, "Conv": 26}),
        ("lstm", {"LSTM": 2, "Slice": 0, "Concat": 0, "Unsqueeze": 0}),
    ],
)
def test_what_is_left_of_a_model(name: str, left: dict[str, int]) -> None:
    model = load(path_of(name))
    SeedWeights().run(model)
    normalize(model)
    counts = Counter(node.op_type for node in model.graph)
    assert {operator: counts[operator] for operator in left} == left
    assert counts["ConstantOfShape"] + counts["Constant"] == 0


@pytest.mark.parametrize("name", NAMES)
def test_an_exported_model_is_small_and_fully_typed(name: str) -> None:
    assert path_of(name).stat().st_size < 300_000
    model = load(path_of(name))
    normalize(model)
    shapes = [ValueView(value).static_shape for node in model.graph for value in node.outputs]
    assert None not in shapes
