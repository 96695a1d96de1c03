"""Models of the suite with symbolic batch and image size: one program computes what ONNX Runtime computes of each."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from benchmarks.zoo import model
from graft.core.importer.load import load
from graft.core.shapes.sample_inputs import sample_inputs

onnxruntime = pytest.importorskip("onnxruntime")
NAMES = ("light_squeezenet", pytest.param("convnext_tiny", marks=pytest.mark.slow))
"""Those whose export fixes neither batch nor image size inside."""
SIZES = ((1, 64, 64), (2, 70, 96))


def with_symbols(name: str) -> onnx.ModelProto:
    """Return a model whose images have symbolic batch, height and width, and whose results state nothing."""
    proto = ir.to_proto(model(name))
    for value in proto.graph.input:
        for axis, symbol in ((0, "batch"), (2, "height"), (3, "width")):
            value.type.tensor_type.shape.dim[axis].dim_param = symbol
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    del proto.graph.value_info[:]
    return proto


@pytest.mark.parametrize("name", NAMES)
def test_one_program_runs_every_batch_and_image_size(name: str) -> None:
    proto = with_symbols(name)
    loaded = load(proto)
    program = graft.compile(loaded, threads=2)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for batch, height, width in SIZES:
        feeds = sample_inputs(loaded, dims={"batch": batch, "height": height, "width": width})
        results = program.run(feeds)
        for output, expected in zip(program.outputs, session.run(None, feeds), strict=True):
            assert len(results[output.name]) == batch
            np.testing.assert_allclose(results[output.name], expected, rtol=1e-3, atol=1e-3)
