"""The digits model: its size, its accuracy, and that import keeps both."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from graft.core.importer.load import load
from graft.core.passes.normalize import normalize

FOLDER = Path(__file__).parents[2] / "examples" / "digits"


@pytest.fixture(scope="module")
def data() -> ModuleType:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    spec = importlib.util.spec_from_file_location("digits_data", FOLDER / "data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_file_is_small() -> None:
    assert (FOLDER / "digits.onnx").stat().st_size < 300_000


def test_held_out_images_are_fixed_and_balanced(data: ModuleType) -> None:
    images, labels = data.held_out()
    assert (images.shape, images.dtype) == ((360, 1, 8, 8), np.float32)
    assert sorted(np.bincount(labels).tolist()) == [35, 35, 36, 36, 36, 36, 36, 36, 37, 37]


def test_the_imported_model_classifies_as_well_as_the_file(data: ModuleType) -> None:
    model = load(FOLDER / "digits.onnx")
    raw = ReferenceEvaluator(ir.to_proto(model))
    images, labels = data.held_out()
    expected = data.accuracy(lambda image: raw.run(None, {"image": image})[0], images, labels)
    normalize(model)
    assert "BatchNormalization" not in [node.op_type for node in model.graph]
    ready = ReferenceEvaluator(ir.to_proto(model))
    assert expected >= 0.97
    assert data.accuracy(lambda image: ready.run(None, {"image": image})[0], images, labels) == expected
