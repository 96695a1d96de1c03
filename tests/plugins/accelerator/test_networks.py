"""Whole networks of bytes: all products on the device, every output as the reference gives it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import graft
from examples.models.quantized import QUANTIZED

PRODUCTS = {"Conv", "MatMul", "Gemm"}
LARGE = {"resnet18", "resnet50", "mobilenet_v2", "bert_tiny"}


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] * (one in LARGE)) for one in QUANTIZED])
def test_a_network_runs_on_the_device_as_the_reference_does(name: str, tmp_path: Path) -> None:
    model, path = QUANTIZED[name](), tmp_path / "network.graft"
    source = model.graph.input[0]
    shape = [dimension.dim_value for dimension in source.type.tensor_type.shape.dim]
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    backends = ["accelerator", "llvm"]
    plan = graft.plan(model, backends)
    assert not [row.node for row in plan.placements if row.op_type in PRODUCTS and row.backend != "accelerator"]
    graft.compile(model, backends, strict=True).save(path)
    expected = ReferenceEvaluator(model).run(None, {source.name: x})[0]
    np.testing.assert_array_equal(graft.runtime.load(path, strict=True)(x), expected)
