"""The XNNPACK backend against the built-in compiler: each operator that it takes, its layouts, and what it refuses."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest

import graft
from benchmarks.zoo import model as zoo_model
from graft.plugins.xnnpack import library
from graft.plugins.xnnpack.backend import XnnpackBackend
from tests.plugins.c_library import model

MISSING = XnnpackBackend().available()
needs_xnnpack = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
RANDOM = np.random.default_rng(0)


def values(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


IMAGE = values(2, 6, 9, 7)
FORMS: dict[str, tuple[str, str, str, dict[str, np.ndarray], tuple[np.ndarray, ...]]] = {
    "convolution, bias, relu": (
        "a = Conv<pads=[1,0,2,1], strides=[2,1]>(x, w, b) y = Relu(a)", "float[2,6,9,7] x", "float[2,4,5,6] y",
        {"w": values(4, 6, 3, 3), "b": values(4)}, (IMAGE,),
    ),
    "convolution, clip": (
        "a = Conv(x, w) y = Clip(a, low, high)", "float[2,6,9,7] x", "float[2,5,9,7] y",
        {"w": values(5, 6, 1, 1), "low": np.float32(-1), "high": np.float32(2)}, (IMAGE,),
    ),
    "groups, dilations": (
        "y = Conv<group=3, dilations=[2,1]>(x, w, b)", "float[2,6,9,7] x", "float[2,9,5,5] y",
        {"w": values(9, 2, 3, 3), "b": values(9)}, (IMAGE,),
    ),
    "depthwise, same": (
        'y = Conv<group=6, auto_pad="SAME_LOWER", strides=[2,2]>(x, w)', "float[2,6,9,7] x", "float[2,6,5,4] y",
        {"w": values(6, 1, 3, 3)}, (IMAGE,),
    ),
    "images between calls": (
        "a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) c = Conv(b, v) d = Add(c, x) e = HardSwish(d) "
        "f = MaxPool<kernel_shape=[2,2], strides=[2,2]>(e) y = GlobalAveragePool(f)",
        "float[2,6,9,7] x", "float[2,6,1,1] y", {"w": values(8, 6, 3, 3), "v": values(6, 8, 1, 1)}, (IMAGE,),
    ),
    "an image that is flattened": (
        "a = Conv(x, w) b = Softmax(a) y = Mul(b, s)", "float[2,6,9,7] x", "float[2,3,9,7] y",
        {"w": values(3, 6, 1, 1), "s": values(3, 1, 1)}, (IMAGE,),
    ),
    "pools": (
        "a = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]>(x) y = AveragePool<kernel_shape=[2,3], "
        "pads=[1,1,0,1]>(a)", "float[2,6,9,7] x", "float[2,6,5,4] y", {}, (IMAGE,),
    ),
    "product, bias, relu": (
        "a = MatMul(x, w) b = Add(c, a) y = Relu(b)", "float[2,3,5] x", "float[2,3,7] y",
        {"w": values(5, 7), "c": values(7)}, (values(2, 3, 5),),
    ),
    "gemm, transposed": (
        "y = Gemm<transB=1>(x, w, c)", "float[3,5] x", "float[3,7] y", {"w": values(7, 5), "c": values(1, 7)},
        (values(3, 5),),
    ),
    "gemm, clip": (
        "a = Gemm(x, w) y = Clip(a, , high)", "float[3,5] x", "float[3,7] y",
        {"w": values(5, 7), "high": np.float32(0.5)}, (values(3, 5),),
    ),
    "arithmetic": (
        "a = Sub(c, x) b = Div(a, d) e = Mul(b, b) y = Add(e, x)", "float[3,8] x", "float[3,8] y",
        {"c": values(8), "d": np.float32(3)}, (values(3, 8),),
    ),
    "elements": (
        "a = LeakyRelu<alpha=0.2>(x) b = Elu<alpha=0.5>(a) c = Neg(b) d = Round(c) e = Abs(x) f = Sqrt(e) g = Floor(f) "
        "h = Ceil(e) i = Add(d, g) j = Add(i, h) y = Sigmoid(j)", "float[3,8] x", "float[3,8] y", {}, (values(3, 8),),
    ),
}  # fmt: skip


def model_of(form: str) -> onnx.ModelProto:
    body, x, y, weights, _ = FORMS[form]
    made = model(body, x, y)
    made.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(one), name) for name, one in weights.items())
    return made


def compiled(form: str, *backends: str) -> graft.Program:
    program: graft.Program = graft.compile(model_of(form), [*backends], strict=True, cache=False)
    return program


@needs_xnnpack
@pytest.mark.parametrize("form", FORMS)
def test_a_call_is_what_the_built_in_compiler_computes_in_each_run(form: str) -> None:
    program, inputs = compiled(form, "xnnpack"), FORMS[form][4]
    expected = compiled(form, "llvm")(*inputs)
    for _ in range(2):
        assert np.allclose(program(*inputs), expected, rtol=1e-4, atol=1e-5)


@needs_xnnpack
def test_images_are_transposed_at_the_borders_of_a_region_alone() -> None:
    (module,) = compiled("images between calls", "xnnpack").description.modules
    assert module.source is not None
    calls = re.findall(r"graft_transpose_32\((\d+), (\d+), (\d+), \w+", module.source.text)
    assert calls == [("2", "6", "63"), ("2", "1", "6")], "the input, once for two readers, and the result"


@needs_xnnpack
def test_several_threads_have_operators_of_their_own() -> None:
    program, (x,) = compiled("images between calls", "xnnpack"), FORMS["images between calls"][4]
    expected = program(x)
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(program, [x] * 200))
    assert all(np.array_equal(one, expected) for one in found)


@needs_xnnpack
def test_the_digits_model_is_the_same_in_a_c_project(tmp_path: Path) -> None:
    x = RANDOM.random((1, 1, 8, 8), np.float32)
    program = graft.compile(zoo_model("digits").clone(), ["xnnpack", "c_source"], strict=True, cache=False)
    assert np.allclose(program(x), graft.compile(zoo_model("digits").clone(), ["llvm"], cache=False)(x), atol=1e-4)
    program.export_c_project(tmp_path / "digits", name="digits")
    done = subprocess.run(["make", "--silent", "-C", str(tmp_path / "digits"), "check"], capture_output=True, text=True)
    assert done.stdout.startswith("digits: as recorded"), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        ("y = Transpose(x)|float[2,3] x|float[3,2] y", "no-pattern", "XNNPACK has no call for Transpose"),
        ("y = Relu(x)|double[2,3] x|double[2,3] y", "dtype", "float32 only, got float64 for 'x'"),
        ("y = Relu(x)|float[n,3] x|float[n,3] y", "dynamic-shape",
         "axis 0 of 'x' is n; xnnpack compiles static shapes"),
        ("y = MatMul(x, z)|float[2,3] x, float[3,2] z|float[2,2] y", "constant-required",
         "input 'z' of MatMul is computed at run time"),
        ("y = LeakyRelu<alpha=2.0>(x)|float[2,3] x|float[2,3] y", "attribute",
         "XNNPACK needs a slope between 0 and 1, got 2"),
        ("y = Softmax<axis=0>(x)|float[2,3] x|float[2,3] y", "attribute", "Softmax over axis 0 of 2; the last only"),
        ("y = MaxPool<kernel_shape=[1,1]>(x)|float[1,2,3,3] x|float[1,2,3,3] y", "attribute",
         "XNNPACK has no window of one element"),
        ("y = MaxPool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(x)|float[1,2,3,3] x|float[1,2,2,2] y",
         "attribute", "ceil_mode has windows that leave the padding; XNNPACK has none"),
        ("y = AveragePool<kernel_shape=[2,2], pads=[1,1,0,0], count_include_pad=1>(x)|float[1,2,3,3] x|"
         "float[1,2,3,3] y", "attribute", "XNNPACK does not count padding, as count_include_pad asks"),
        ("y = MaxPool<kernel_shape=[2,2], dilations=[2,1], pads=[0,0,1,0]>(x)|float[1,2,5,5] x|float[1,2,4,4] y",
         "attribute", "XNNPACK's padded maxima with dilations read what lies beside the window"),
        ("y = MaxPool<kernel_shape=[2]>(x)|float[1,2,3] x|float[1,2,2] y", "rank",
         "MaxPool of 3 axes; XNNPACK takes images, of 4"),
        ("y = Conv(x, w)|float[1,2,5] x, float[3,2,2] w|float[1,3,4] y", "rank",
         "Conv of 3 axes; XNNPACK takes images, of 4"),
    ],
)  # fmt: skip
@needs_xnnpack
def test_what_has_no_call_has_a_reason(text: str, code: str, reason: str) -> None:
    (placement,) = graft.plan(model(*text.split("|")), ["xnnpack", "reference"]).placements
    assert dict(placement.reasons) == {"xnnpack": graft.Reject(code, reason)}


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "NAME", "libXNNPACK-of-nobody.so.0")
    assert library.missing() == "XNNPACK is not installed; apt-get install libxnnpack-dev libpthreadpool-dev"
