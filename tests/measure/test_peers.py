"""The peers that are no ONNX runtimes: what they compute, what they refuse, and how a missing one is told."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import graft
from benchmarks.zoo import model as zoo_model
from graft.core.shapes.sample_inputs import sample_inputs
from graft.errors import GraftError
from graft.measure.peers.peer_table import COMPARE, INSTALL, PACKAGES, PEERS, peer

HEADER = '<ir_version: 10, opset_import: ["" : 23]>'
CASES = {
    "uneven pools": "(float[1,2,7,7] x) => (float[1,2,3,3] y) { a = AveragePool<kernel_shape=[2,2], strides=[2,2], "
    "pads=[0,0,1,1]>(x) y = MaxPool<kernel_shape=[2,2], pads=[0,0,0,0]>(a) }",
    "uneven convolution": "(float[1,2,6,6] x) => (float[1,4,6,6] y) "
    "<float[4,1,2,2] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}> { y = Conv<group=2, pads=[0,0,1,1]>(x, w) }",
    "padding": "(float[2,3] x) => (float[4,6] y) <int64[4] p = {1,0,1,3}, float v = {2.5}> { y = Pad(x, p, v) }",
    "uneven split": "(float[5,2] x) => (float[2,2] z) <int64[2] s = {3,2}> { y, z = Split<axis=0>(x, s) }",
    "slice": "(float[6,5] x) => (float[2,5] y) <int64[1] b = {-5}, int64[1] e = {5}, int64[1] a = {0}, "
    "int64[1] s = {2}> { y = Slice(x, b, e, a, s) }",
    "gather": "(float[4,3] x, int64[2] i) => (float[4,2] y) { y = Gather<axis=1>(x, i) }",
    "lookups": "(float[4,3] x) => (float[2,3] y) <int64[2,1] i = {-1, 2}> { y = GatherND(x, i) }",
    "shape": "(float[4,3] x) => (float[3,4] y) <int64[2] p = {1,0}> "
    "{ s = Shape(x) t = Gather(s, p) y = Reshape(x, t) }",
    "scalars": "(float[3] x) => (float[3] y) <float c = {3.0}, float d = {0.5}> "
    "{ a = Pow(x, c) b = Sub(d, a) y = Div(b, c) }",
    "integers": "(int64[4] i) => (float[4] y) <int64 c = {3}> { j = Div(i, c) y = Cast<to=1>(j) }",
    "product": "(float[3,2] x) => (float[2,4] y) <float[3,4] w = {1,2,3,4,5,6,7,8,9,1,2,3}, float[2,1] c = {1,2}> "
    "{ y = Gemm<alpha=0.5, beta=2.0, transA=1>(x, w, c) }",
    "attention": "(float[1,4,16] q, float[1,6,8] k, float[1,6,8] v, float[4,6] m) => (float[1,4,16] y) "
    "{ y = Attention<q_num_heads=4, kv_num_heads=2>(q, k, v, m) }",
    "normalised rows": "(float[3,8] x, float[8] s) => (float[3,8] y) { y = RMSNormalization<axis=-1>(x, s) }",
    "means": "(float[2,3,4] x) => (float[2,4] y) <int64[1] a = {1}> { y = ReduceMean<keepdims=0>(x, a) }",
    "folded": "(float[2,2] x) => (float[2,2] y) <float[2] a = {1,2}, float[2] b = {3,4}> "
    "{ c = Add(a, b) y = Mul(x, c) }",
}  # fmt: skip


def text_model(text: str) -> ir.Model:
    return graft.load(ir.to_proto(ir.from_onnx_text(f"{HEADER} g {text}")))


def by_onnxruntime(model: ir.Model, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    return list(peer("onnxruntime", model, feeds, 1)())  # type: ignore[call-overload]


def compare(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * float(np.max(np.abs(other))))


def by_torch(model: ir.Model, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return what the PyTorch graph of a model computes, uncompiled."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from graft.measure.peers.torch_compile import torch_module

    with torch.inference_mode():
        results = torch_module(model)(*[torch.from_numpy(feeds[value.name]) for value in model.graph.inputs])
    return [one.numpy() for one in results]


@pytest.mark.parametrize("case", CASES)
def test_torch_computes_what_onnxruntime_does(case: str) -> None:
    model = text_model(CASES[case])
    feeds = sample_inputs(model)
    compare(by_torch(model, feeds), by_onnxruntime(model, feeds))


@pytest.mark.parametrize("name", ["lstm", "light_squeezenet", "mobilenet_v2"])
def test_torch_computes_models(name: str) -> None:
    model = zoo_model(name)
    feeds = sample_inputs(model)
    compare(by_torch(model, feeds), by_onnxruntime(model, feeds))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own
@pytest.mark.parametrize("name", ["lstm", "digits"])
def test_compiled_by_torch_models_stay_what_they_are(name: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    model = zoo_model(name)
    feeds = sample_inputs(model)
    compare(peer("torch", model, feeds, 1)(), by_onnxruntime(model, feeds))  # type: ignore[arg-type]


@pytest.mark.parametrize("threads", [1, 2])
def test_iree_computes_what_onnxruntime_does(threads: int) -> None:
    pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")
    pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")
    model = zoo_model("digits")
    feeds = sample_inputs(model)
    run = peer("iree", model, feeds, threads)
    run()
    compare(run(), by_onnxruntime(model, feeds))  # type: ignore[arg-type]


@pytest.mark.slow
def test_tvm_computes_what_onnxruntime_does_once_it_is_tuned(tmp_path: Path) -> None:
    pytest.importorskip("tvm", reason="apache-tvm is not installed")
    pytest.importorskip("xgboost", reason="xgboost is not installed")
    from graft.measure.peers.tvm import trials, tune, tvm_run

    model = text_model(CASES["product"])
    feeds = sample_inputs(model)
    with pytest.raises(GraftError, match="have no record in"):
        tvm_run(model, feeds, 1, tmp_path)
    tune(model, 1, 1.0, tmp_path)
    assert all(map(any, trials(model, 1, tmp_path).values()))
    compare(tvm_run(model, feeds, 1, tmp_path)(), by_onnxruntime(model, feeds))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(float[2] x) => (float[2] y) { y = Celu(x) }", "torch has no 'Celu' here (node 'y')"),
        (
            "(float[1,1,4,4] x) => (float[1,1,2,2] y) { y = MaxPool<kernel_shape=[3,3], ceil_mode=1>(x) }",
            "torch has no ceil_mode=1 of MaxPool (node 'y') here",
        ),
        (
            "(float[2] x, int64[1] s) => (float[N] y) { y = Reshape(x, s) }",
            "torch takes input 1 of Reshape (node 'y') as a constant here, but it is computed",
        ),
        (
            "(float[4,1,3] x, float[1,8,3] w, float[1,8,2] r, int32[1] n) => (float[4,1,1,2] y) "
            "{ y = LSTM<hidden_size=2>(x, w, r, , n) }",
            "torch has no input 4 of LSTM (node 'y') here",
        ),
    ],
)
def test_what_torch_cannot_be_given_is_told(text: str, message: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from graft.measure.peers.torch_compile import torch_module

    with pytest.raises(GraftError) as caught:
        torch_module(text_model(text))
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("name", "imported", "advice"),
    [
        ("torch", "torch", "pip install 'graft-compiler[torch]', and have a C++ compiler"),
        ("iree", "iree.runtime", "pip install iree-base-compiler iree-base-runtime"),
        ("mnn", "MNN", "pip install MNN"),
        ("openvino", "openvino", "pip install openvino"),
        ("tvm", "tvm", "pip install apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post0 xgboost cloudpickle psutil"),
    ],
)
def test_a_peer_that_is_missing_is_told(name: str, imported: str, advice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [
        one
        for one in sys.modules
        if one.startswith(("graft.measure.peers.torch_", "graft.measure.peers.iree", "graft.measure.peers.tvm"))
    ]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, imported, None)
    model = text_model(CASES["means"])
    with pytest.raises(GraftError) as caught:
        graft.bench(model, ["reference"], compare=[name], threads=1, seconds=0.01)
    assert caught.value.message == f"{name} is not installed; {advice}"


def test_every_peer_says_what_it_needs() -> None:
    assert set(COMPARE) == set(PEERS) == set(PACKAGES) == set(INSTALL)
