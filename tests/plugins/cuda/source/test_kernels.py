"""CUDA C: the text computes what the reference does, NVRTC compiles it, and an edited text comes back."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
import pytest

import graft
from graft.core.machine.target import Target
from graft.errors import CompileError, RunError
from graft.plugins.cuda.launches import launches_of
from graft.plugins.cuda.machines import DEVICES, SM_80, SM_90
from graft.plugins.cuda.source import nvrtc
from graft.plugins.cuda.source.backend import CudaSource
from graft.plugins.cuda.source.kernels import kernel_c, source_text
from tests.plugins.cuda.emulated_source import EmulatedSource
from tests.plugins.cuda.graphs import graph, node, scheduled
from tests.plugins.cuda.test_strategies import FLOAT_CASES, PRECISE, RANDOM, attention, convolution, given, product

needs_nvrtc = pytest.mark.skipif(nvrtc.library() is None, reason=nvrtc.MISSING)
SAMPLE = ("rows of any length", "bf16", "integers", "product_bf16")
"""What is not slow, for each case is compiled by a C++ compiler or by NVRTC."""


def sampled(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.slow) for name in names]


def error(model: onnx.ModelProto, **requested: str | int) -> float:
    sizes = {name: int(size) for name, size in requested.items() if name != "precision"}
    inputs = given(model, **sizes)
    precision = requested.get("precision", "float32")
    program = graft.compile(model, [EmulatedSource()], cache=False, strict=True, precision=precision)
    (ours,), (theirs,) = (one.run(dict(inputs)).values() for one in (program, graft.compile(model, ["reference"])))
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


@pytest.mark.parametrize("name", sampled(FLOAT_CASES))
def test_the_text_computes_what_the_reference_does(name: str) -> None:
    _, model, sizes = FLOAT_CASES[name]
    assert error(model, **sizes) < 2e-6


@pytest.mark.parametrize("precision", sampled(PRECISE))
def test_products_by_warps_are_rounded_as_requested(precision: str) -> None:
    assert 1e-5 < error(product(100, 64, 72), precision=precision) < PRECISE[precision][1]


def test_the_text_says_which_index_is_out_of_range() -> None:
    model = graph([node("Gather", "x i", axis=1)], {"x": ("float32", [3, 4]), "i": ("int64", ["n"])})
    program = graft.compile(model, [EmulatedSource()], cache=False, strict=True)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(program(x, np.array([3, -4, 0])), x[:, [3, -4, 0]])
    with pytest.raises(RunError, match=r"\(node 'gather_y'\): index 4 is out of range: axis 1 has extent 4"):
        program(x, np.array([0, 4]))


@pytest.mark.slow
def test_products_of_bytes_are_exact_in_the_text() -> None:
    weights = RANDOM.integers(-127, 127, (96, 64)).astype(np.int8)
    assert error(graph([node("MatMulInteger", "x w")], {"x": ("uint8", [70, 96])}, {"w": weights})) == 0


STAGED = {"float32": (attention(40, 200, 32), 2e-6), "float16": (attention(40, 200, 32, "float16"), 4e-3)}


@pytest.mark.parametrize("name", sampled(STAGED))
def test_keys_and_values_come_in_stages_in_the_text(name: str) -> None:
    model, tolerance = STAGED[name]
    (function,) = scheduled(model)
    text = source_text([kernel_c(one, function, Target(SM_80)) for one in launches_of(function).launches])
    assert "wait_copies(0);" in text and error(model) < tolerance


OPERATORS = {
    "integers": ([node("Div", "x b", "a"), node("Mod", "a c", "d"), node("BitwiseXor", "d e")], "uint8"),
    "signed integers": ([node("Div", "x b", "a"), node("Mul", "a a", "d"), node("Mod", "d c")], "int8"),
    "long integers": ([node("Mul", "x x", "a"), node("Sub", "a c", "d"), node("Neg", "d")], "int64"),
    "float16": ([node("Mul", "x b", "a"), node("Exp", "a", "d"), node("Sqrt", "d")], "float16"),
    "float64": ([node("Sin", "x", "a"), node("Round", "a", "d"), node("Max", "d x")], "float64"),
    "conditions": ([node("Less", "x b", "a"), node("Not", "a", "d"), node("Where", "d x b")], "float32"),
}  # fmt: skip


@pytest.mark.parametrize("name", sampled(OPERATORS))
def test_arithmetic_is_that_of_the_tensor_ir(name: str) -> None:
    nodes, dtype = OPERATORS[name]
    constants = {key: np.array([value], dtype) for key, value in (("b", 3), ("c", 5), ("e", 2))}
    read = {name for one in nodes for name in one.input}
    model = graph(nodes, {"x": (dtype, [7, 33])}, {key: value for key, value in constants.items() if key in read})
    assert error(model) < 1e-3 if dtype == "float16" else error(model) < 1e-6


COMPILED = {
    "softmax": (FLOAT_CASES["softmax"][1], "float32"),
    "product": (product(100, 64, 72), "float32"),
    "product_bf16": (product(128, 64, 128), "bf16"),
    "convolution_tf32": (convolution([1, 16, 9, 9], [24, 16, 3, 3]), "tf32"),
    "attention_fp16": (attention(70, 130, 64), "fp16"),
    "attention_in_stages": (attention(70, 200, 32, "float16"), "float32"),
}


@needs_nvrtc
def test_nvrtc_compiles_what_looks_at_indices() -> None:
    model = graph([node("Gather", "x i")], {"x": ("float32", [9, 4]), "i": ("int64", ["n"])})
    check, _ = scheduled(model, "float32")
    text = source_text([kernel_c(one, check, Target(SM_80)) for one in launches_of(check).launches])
    assert "atom" in nvrtc.compiled(text, SM_80, "check", form="ptx").decode()


@needs_nvrtc
@pytest.mark.parametrize("name", sampled(COMPILED))
def test_nvrtc_compiles_the_text_for_each_device(name: str) -> None:
    for function in scheduled(*COMPILED[name]):
        for machine in DEVICES:
            text = source_text([kernel_c(one, function, Target(machine)) for one in launches_of(function).launches])
            assert nvrtc.compiled(text, machine, name, form="cubin").startswith(b"\x7fELF")
            ptx = nvrtc.compiled(text, machine, name, form="ptx").decode()
            assert f".target {machine.name}" in ptx and f".entry {function.name}(" in ptx


@needs_nvrtc
def test_several_elements_are_accessed_at_one_time() -> None:
    (function,) = scheduled(FLOAT_CASES["elements"][1])
    text = source_text([kernel_c(one, function, Target(SM_80)) for one in launches_of(function).launches])
    assert "st.global.v4" in re.sub(r"\.[bu](32|64)", "", nvrtc.compiled(text, SM_80, "elements", form="ptx").decode())


def test_a_kernel_reads_as_it_was_scheduled() -> None:
    (function,) = scheduled(graph([node("Add", "x x")], {"x": ("float32", [8, 16])}))
    (launch,) = launches_of(function).launches
    assert source_text([kernel_c(launch, function, Target(SM_80))]) == (
        '#include "graft_cuda.cuh"\n\n'
        "/* 'add_y' */\n"
        "KERNEL(128) void cuda_0_0_add(const float *x_1, float *y) {\n"
        "  const int64_t i0_i1_thread = THREAD(x);\n"
        "  const float x_1_at1 = x_1[i0_i1_thread];\n"
        "  y[i0_i1_thread] = x_1_at1 + x_1_at1;\n"
        "}\n"
    )


def test_without_nvrtc_the_backend_says_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "library", lambda: None)
    assert CudaSource().available() == "NVRTC is not installed; pip install nvidia-cuda-nvrtc-cu12"
    with pytest.raises(
        CompileError, match=r"^there is no NVRTC to compile 'k' with; pip install nvidia-cuda-nvrtc-cu12$"
    ):
        nvrtc.compiled("", SM_90, "k", form="cubin")


@needs_nvrtc
def test_what_nvrtc_refuses_is_quoted_with_line_and_device() -> None:
    with pytest.raises(CompileError) as caught:
        nvrtc.compiled("\nnonsense;", SM_90, "broken", form="cubin")
    assert str(caught.value).startswith("NVRTC refused the code of 'broken' for sm_90: kernels.cu(2): error: ")
