"""Whole models: what is compiled, and what is partitioned, computes what ONNX Runtime computes."""

from functools import cache

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from benchmarks.zoo import LIGHT, NAMES, SMALL, model
from graft.compiler.driver import prepare
from graft.compiler.request import choose
from graft.core.operators.all import OPERATORS
from graft.core.shapes.sample_inputs import sample_inputs
from graft.partition.placement.partitioner import partition

onnxruntime = pytest.importorskip("onnxruntime")
RTOL, ATOL = 1e-3, 1e-4
BEFORE_SOFTMAX = {f"light_{name}" for name in LIGHT if name != "densenet121"}
"""Models that end in a Softmax: their logits are compared as well, which a Softmax flattens."""

SLOW = (
    "swin_tiny", "whisper_tiny_encoder", "light_vgg19", "light_inception_v1", "light_inception_v2", "light_zfnet512",
    "light_densenet121", "light_bvlc_alexnet", "bert_base", "vit_base",
)  # fmt: skip
"""Models that take long to compile and are like others; that with oneDNN they compute the same is tested always."""


@cache
def source(name: str) -> ir.Model:
    """Return a model with its last Softmax's input as a further output."""
    result = model(name).clone()
    if name in BEFORE_SOFTMAX:
        softmax = next(node for node in reversed(list(result.graph)) if node.op_type == "Softmax")
        result.graph.outputs.append(softmax.inputs[0])
    return result


def run_onnxruntime(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


@cache
def expected(name: str) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    feeds = sample_inputs(source(name))
    return feeds, run_onnxruntime(ir.to_proto(source(name)), feeds)


def assert_same(name: str, backends: list[str]) -> None:
    feeds, wanted = expected(name)
    program = graft.compile(source(name), backends, threads=2, strict=True)
    results = program.run(feeds)
    assert len(results) == len(wanted)
    for output, value in zip(program.outputs, wanted, strict=True):
        assert np.std(value) > 0, "a constant output proves nothing"
        np.testing.assert_allclose(results[output.name], value, rtol=RTOL, atol=ATOL, err_msg=output.name)


SAMPLE = [pytest.param(one, marks=pytest.mark.slow) if one in SLOW else one for one in NAMES]


@pytest.mark.parametrize("name", SAMPLE)
def test_the_built_in_compiler_agrees_with_onnxruntime(name):
    assert_same(name, ["llvm"])


@pytest.mark.parametrize("name", NAMES)
def test_onednn_and_the_built_in_compiler_agree_with_onnxruntime(name):
    reason = choose(["onednn"])[0].available()
    if reason is not None:
        pytest.skip(reason)
    assert_same(name, ["onednn", "llvm"])


@pytest.mark.parametrize("name", SMALL)
def test_the_reference_backend_agrees_with_onnxruntime(name):
    assert_same(name, ["reference"])


@pytest.mark.parametrize("name", SAMPLE)
def test_the_partitioned_model_is_valid_and_means_the_same(name):
    feeds, wanted = expected(name)
    chosen = [backend for backend in choose(["onednn", "llvm", "reference"]) if backend.available() is None]
    proto = ir.to_proto(partition(prepare(source(name)), chosen, operators=OPERATORS).model)
    onnx.checker.check_model(proto)
    assert any(function.domain == "graft.region" for function in proto.functions)
    for value, reference in zip(run_onnxruntime(proto, feeds), wanted, strict=True):
        np.testing.assert_allclose(value, reference, rtol=RTOL, atol=ATOL)
