"""oneDNN's primitives as calls in C, against the built-in compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import graft
from benchmarks.zoo import model as zoo_model
from graft.errors import GraftError
from graft.plugins.onednn.c_backend import OneDnnCBackend
from graft.runtime.artifact import save
from tests.plugins.c_library import model

MISSING = OneDnnCBackend().available()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
RANDOM = np.random.default_rng(0)


def values(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


FORMS: dict[str, tuple[str, str, str, dict[str, np.ndarray], tuple[np.ndarray, ...]]] = {
    "convolution, bias, relu": (
        "a = Conv<pads=[1,1,1,1]>(x, w, b) y = Relu(a)", "float[1,4,8,8] x", "float[1,6,8,8] y",
        {"w": values(6, 4, 3, 3), "b": values(6)}, (values(1, 4, 8, 8),),
    ),
    "convolution in groups, residual, relu": (
        "a = Conv<pads=[1,1,1,1], group=2, strides=[2,2]>(x, w) b = Add(a, z) y = Relu(b)",
        "float[1,4,8,8] x, float[1,6,4,4] z", "float[1,6,4,4] y", {"w": values(6, 2, 3, 3)},
        (values(1, 4, 8, 8), values(1, 6, 4, 4)),
    ),
    "product, bias, relu": (
        "a = MatMul(x, w) b = Add(a, c) y = Relu(b)", "float[2,3,5] x", "float[2,3,7] y",
        {"w": values(5, 7), "c": values(7)}, (values(2, 3, 5),),
    ),
    "many products": (
        "y = MatMul(x, z)", "float[2,3,5] x, float[2,5,4] z", "float[2,3,4] y", {}, (values(2, 3, 5), values(2, 5, 4)),
    ),
    "gemm, both sides transposed": (
        "y = Gemm<transA=1, transB=1>(x, w, c)", "float[5,3] x", "float[3,7] y", {"w": values(7, 5), "c": values(7)},
        (values(5, 3),),
    ),
    "pooling": (
        "a = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) y = GlobalAveragePool(a)", "float[1,4,8,8] x",
        "float[1,4,1,1] y", {}, (values(1, 4, 8, 8),),
    ),
    "elementwise, softmax": (
        "a = Add(c, x) b = LeakyRelu<alpha=0.2>(a) y = Softmax(b)", "float[3,8] x", "float[3,8] y", {"c": values(8)},
        (values(3, 8),),
    ),
}  # fmt: skip


def compiled(form: str, backend: str) -> graft.Program:
    body, x, y, weights, _ = FORMS[form]
    made = model(body, x, y)
    made.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    program: graft.Program = graft.compile(made, [backend], strict=True, cache=False)
    return program


@pytest.mark.parametrize("form", FORMS)
def test_a_call_is_what_the_built_in_compiler_computes(form: str) -> None:
    program, inputs = compiled(form, "onednn_c"), FORMS[form][4]
    assert [module.kind for module in program.description.modules] == ["c_source"]
    assert np.allclose(program(*inputs), compiled(form, "llvm")(*inputs), rtol=1e-5, atol=1e-5)


def test_a_composite_is_one_call() -> None:
    (call,) = compiled("convolution, bias, relu", "onednn_c").description.procedures[0].calls
    assert call.schedule == {"strategy": "onednn_c: graft_onednn_convolution"}


def test_the_digits_model_is_the_same_in_c() -> None:
    x = RANDOM.random((1, 1, 8, 8), np.float32)
    program = graft.compile(zoo_model("digits").clone(), ["onednn_c", "llvm"], strict=True, cache=False)
    assert "c_source" in [module.kind for module in program.description.modules]
    expected = graft.compile(zoo_model("digits").clone(), ["llvm"], cache=False)
    assert np.allclose(program(x), expected(x), rtol=1e-4, atol=1e-5)


def test_a_saved_program_finds_the_library_that_the_plugin_opens(tmp_path: Path) -> None:
    compiled("pooling", "onednn_c").save(tmp_path / "m.graft")
    code = (
        "import sys, numpy, graft.runtime; p = graft.runtime.load(sys.argv[1], strict=True);"
        "print(p(numpy.ones((1, 4, 8, 8), 'f')).ravel())"
    )
    found = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m.graft")], env=found, capture_output=True, text=True
    )
    assert done.stdout == "[1. 1. 1. 1.]\n", done.stderr


def test_what_has_no_call_has_a_reason() -> None:
    made = model("y = Transpose(x)", y="float[3,2] y")
    (placement,) = graft.plan(made, ["onednn_c", "reference"]).placements
    reason = graft.Reject("no-pattern", "no call of oneDNN in C computes Transpose")
    assert dict(placement.reasons) == {"onednn_c": reason}


def test_shapes_that_vary_are_refused_for_they_are_part_of_a_call() -> None:
    made = model("y = Relu(x)", x="float[n,3] x", y="float[n,3] y")
    with pytest.raises(GraftError) as caught:
        graft.compile(made, ["onednn_c"], strict=True)
    assert "onednn_c: dynamic-shape: axis 0 of 'x' is n; onednn_c compiles static shapes" in str(caught.value)


def test_calls_that_were_compiled_for_another_machine_are_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "m.graft"
    description = compiled("pooling", "onednn_c").description
    save(replace(description, targets=({"arch": "riscv64", "features": ["v"]},)), path)
    with pytest.raises(GraftError, match="the program was compiled for riscv64, and this machine is"):
        graft.runtime.load(path)
