"""Models that both exporters of PyTorch wrote with symbolic dimensions, against ONNX Runtime, binding by binding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from examples.models.seed_weights import SeedWeights

FOLDER = Path(__file__).parents[2] / "examples" / "models" / "dynamic"
SLOW = {"mobilenet_dynamo", "mobilenet_trace", "vit_trace", "gpt2_trace", "lstm_dynamo"}
NAMES = [
    pytest.param(path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else [])
    for path in sorted(FOLDER.glob("*.onnx"))
]
BINDINGS = ((2, 3, 5), (1, 1, 9), (1, 7, 0), (3, 1, 4), (2, 3, 5))
"""Batch, length of the new tokens (or a measure of an image's height), length of the cache (or of its width)."""


def model_of(name: str) -> onnx.ModelProto:
    model = graft.load(FOLDER / f"{name}.onnx")
    SeedWeights().run(model)
    return ir.to_proto(model)


def extent(value: str, axis: int, binding: tuple[int, int, int]) -> int:
    batch, new, cached = binding
    if axis == 0:
        return batch
    if value == "pixel_values":
        return 40 + 8 * new if axis == 2 else 48 + 9 * cached
    if value in ("patches", "spectrum"):
        return 5 + 7 * new if axis == 1 else 6 + 5 * cached
    return cached if value.startswith("past.") else new


def feeds_of(model: onnx.ModelProto, binding: tuple[int, int, int]) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(3)
    feeds = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [one.dim_value or extent(value.name, axis, binding) for axis, one in enumerate(tensor.shape.dim)]
        if tensor.elem_type == onnx.TensorProto.FLOAT:
            feeds[value.name] = generator.standard_normal(shape).astype(np.float32)
        else:
            feeds[value.name] = generator.integers(1 if "mask" in value.name else 0, 2, shape)
    return feeds


@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_either_exporter_runs_every_shape_as_onnxruntime_does(name: str) -> None:
    import onnxruntime

    model = model_of(name)
    program = graft.compile(model, cache=False, tuned=False)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for binding in BINDINGS:
        feeds = feeds_of(model, binding)
        found = program.run(feeds)
        assert np.std(found[model.graph.output[0].name]) > 1e-3
        for value, expected in zip(model.graph.output, session.run(None, feeds), strict=True):
            np.testing.assert_allclose(found[value.name], expected, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize(
    "name",
    [
        "bert_dynamo", "bert_trace", "detector_dynamo", "detector_trace", "gpt2_dynamo", "gpt2_trace", "llama_dynamo",
        "llama_trace", "mobilenet_dynamo", "relative_dynamo", "relative_trace", "speech_dynamo", "speech_trace",
        "unet_dynamo", "unet_trace", "windows_dynamo", "windows_trace",
    ],
)  # fmt: skip
def test_a_model_of_either_exporter_is_native(name: str) -> None:
    plan = graft.plan(model_of(name))
    assert {row.op_type: row.backend for row in plan.placements if row.backend not in ("llvm", "runtime")} == {}
