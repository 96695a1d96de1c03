"""What assembled kernels take of a device: registers, shared memory, and nothing that is spilled."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import onnx
import pytest

from graft.core.machine.machine import Machine
from graft.core.machine.target import Target
from graft.core.tensor_ir.ir import Function
from graft.core.tensor_ir.verifying.verifier import verify
from graft.errors import CompileError
from graft.plugins.cuda import jit_link, ptx
from graft.plugins.cuda.kernel_text import kernel_text
from graft.plugins.cuda.launches import launches_of
from graft.plugins.cuda.machines import DEVICES, SM_80, SM_90
from graft.plugins.cuda.ptx import assembled, assembler, ptx_of
from tests.plugins.cuda.graphs import graph, node, scheduled
from tests.plugins.cuda.test_strategies import FLOAT_CASES
from tests.plugins.cuda.test_strategies import attention as any_attention
from tests.plugins.cuda.test_strategies import product as any_product

needs_ptxas = pytest.mark.skipif(assembler() is None, reason=f"ptxas is not installed: {ptx.INSTALL}")


def product(rows: int, terms: int, columns: int, dtype: str = "float32") -> onnx.ModelProto:
    weights = {"w": np.zeros((terms, columns), dtype), "b": np.zeros(columns, dtype)}
    return graph([node("MatMul", "x w", "a"), node("Add", "a b")], {"x": (dtype, [rows, terms])}, weights)


def rows(operator: str, inputs: str, **constants: np.ndarray) -> onnx.ModelProto:
    return graph([node(operator, inputs)], {"x": ("float32", [128, 768])}, constants)


def attention(features: int) -> onnx.ModelProto:
    shapes = {name: ("float32", [1, 12, 128, features]) for name in ("q", "v")}
    shapes["k"] = ("float32", [1, 12, features, 128])
    nodes = [node("MatMul", "q k", "s"), node("Mul", "s c", "t"), node("Softmax", "t", "p"), node("MatMul", "p v")]
    return graph(nodes, shapes, {"c": np.array(0.125, np.float32)})


def convolution() -> onnx.ModelProto:
    weights = {"w": np.zeros((64, 64, 3, 3), np.float32)}
    return graph([node("Conv", "x w", pads=[1, 1, 1, 1])], {"x": ("float32", [1, 64, 56, 56])}, weights)


def of_bytes(left: str) -> onnx.ModelProto:
    weights = {"w": np.ones((1024, 1024), np.int8)}
    return graph([node("MatMulInteger", "x w")], {"x": (left, [1024, 1024])}, weights)


def of_quantised() -> onnx.ModelProto:
    """A quantised convolution with its scales, as quantisers write it."""
    constants = {
        "w": np.ones((64, 64, 3, 3), np.int8), "s": np.array(0.02, np.float32), "z": np.array(3, np.uint8),
        "ws": np.full(64, 0.01, np.float32), "wz": np.zeros(64, np.int8), "b": np.zeros(64, np.int32),
    }  # fmt: skip
    convolution = node("QLinearConv", "x s z w ws wz s z b", pads=[1, 1, 1, 1])
    return graph([convolution], {"x": ("uint8", [1, 64, 28, 28])}, constants)


KERNELS = {
    "elements": (graph([node("Gelu", "x")], {"x": ("float32", [1024, 1024])}), "float32"),
    "transposition": (graph([node("Transpose", "x", perm=[1, 0])], {"x": ("float32", [1024, 1024])}), "float32"),
    "softmax": (rows("Softmax", "x"), "float32"),
    "normalization": (rows("LayerNormalization", "x s b", s=np.ones(768, "f"), b=np.ones(768, "f")), "float32"),
    "product": (product(1024, 1024, 1024), "float32"),
    "product_bf16": (product(1024, 1024, 1024), "bf16"),
    "product_tf32": (product(1024, 1024, 1024), "tf32"),
    "product_of_float16": (product(4096, 4096, 4096, "float16"), "float32"),
    "convolution": (convolution(), "float32"),
    "convolution_bf16": (convolution(), "bf16"),
    "attention_64": (attention(64), "float32"),
    "attention_64_bf16": (attention(64), "bf16"),
    "attention_128": (attention(128), "float32"),
    "attention_128_bf16": (attention(128), "bf16"),
    "attention_of_float16_64": (any_attention(512, 512, 64, "float16"), "float32"),
    "attention_of_float16_128": (any_attention(512, 512, 128, "float16"), "float32"),
    "attention_of_float16_of_any_length": (any_attention("l", "s", 64, "float16"), "float32"),
    "attention_in_stages": (any_attention(256, 256, 32), "float32"),
    "gather": (graph([node("Gather", "x i")], {"x": ("float32", [1000, 64]), "i": ("int64", [512])}), "float32"),
    "product_of_bytes": (of_bytes("uint8"), "float32"),
    "product_of_signed_bytes": (of_bytes("int8"), "float32"),
    "product_fp16": (product(1024, 1024, 1024), "fp16"),
    "product_by_splits": (product(64, 4096, 64), "float32"),
    "product_of_any_height": (any_product("n", 1024, 1024), "float32"),
    "product_of_any_height_bf16": (any_product("n", 1024, 1024), "bf16"),
    "quantised_convolution": (of_quantised(), "float32"),
    **{name.replace(" ", "_"): (model, "float32") for name, (_, model, _) in FLOAT_CASES.items() if " " in name},
}
"""The kernels that figures are about, and those of the tests of strategies: varying extents, rests, groups, splits."""
VERSIONS = "llvmlite 0.50.0, LLVM 22.1.0, ptxas 12.9.86"
"""What the golden numbers are of; with others only spills are looked at."""


def taken(functions: list[Function]) -> list[str]:
    """A line for each kernel: by device its registers and what is spilled, and its shared memory."""
    lines = []
    for function in functions:
        texts = {one.name: one for one in launches_of(function).launches}
        used: dict[str, list[str]] = {name: [] for name in texts}
        shared = {}
        for machine in (SM_80, SM_90):
            own = {name: kernel_text(one, function, Target(machine)) for name, one in texts.items()}
            shared = {name: text.shared for name, text in own.items()}
            _, found = assembled(ptx_of(list(own.values()), machine, function.name), machine, function.name)
            for name, one in found.items():
                assert one.spilled == one.stack == 0, f"{name} spills {one.spilled} bytes on {machine.name}"
                used[name].append(f"{machine.name} {one.registers}")
        lines += [f"{', '.join(own)} registers, {shared[name]} bytes shared" for name, own in used.items()]
    return lines


@needs_ptxas
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_assembled_and_spills_nothing(name: str, golden: Callable[[str, str], None]) -> None:
    lines = taken(scheduled(*KERNELS[name]))
    assert lines
    if ptx.versions() == VERSIONS:
        golden(f"cuda/{name}.txt", "\n".join((*lines, "")))


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_verified_for_its_device(name: str) -> None:
    """Barriers of warps, too: which threads wait for each other there stands in the barrier."""
    for function in scheduled(*KERNELS[name]):
        verify(function, SM_80)


WIDE = re.compile(r"(ld|st)\.global(?:\.nc)?\.(?:v4\.\w32|v8\.\w16)")
ROWS = {
    "softmax": (KERNELS["softmax"][0], 2, 1),
    "normalization": (KERNELS["normalization"][0], 5, 1),
    "sums": (graph([node("ReduceSum", "x a", keepdims=0)], {"x": ("float32", [128, 768])},
                   {"a": np.array([1], np.int64)}), 1, 0),
    "float16": (graph([node("Softmax", "x")], {"x": ("float16", [128, 768])}), 2, 1),
    "rest": (graph([node("Softmax", "x")], {"x": ("float32", [128, 767])}), 0, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_aligned_extents_are_read_and_written_16_bytes_at_a_time(name: str) -> None:
    model, reads, writes = ROWS[name]
    (function,) = scheduled(model, "float32")
    texts = [kernel_text(one, function, Target(SM_80)) for one in launches_of(function).launches]
    found = [match[1] for match in WIDE.finditer(ptx_of(texts, SM_80, name))]
    assert (found.count("ld") >= reads, found.count("st") >= writes) == (True, True), found
    assert bool(found) == bool(reads)


@needs_ptxas
def test_what_ptxas_refuses_is_an_error_with_its_message() -> None:
    with pytest.raises(CompileError) as caught:
        assembled(".version 7.2\n.target sm_80\nnonsense\n", SM_80, "broken")
    assert str(caught.value).startswith("ptxas refused the code of 'broken': ptxas ")


needs_jit_link = pytest.mark.skipif(
    jit_link.library() is None, reason=f"nvJitLink is not installed: {jit_link.INSTALL}"
)


@needs_jit_link
@pytest.mark.parametrize("machine", DEVICES, ids=lambda one: one.name)
def test_without_ptxas_nvjitlink_makes_the_cubin(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptx, "assembler", lambda: None)
    (function,) = scheduled(*KERNELS["softmax"])
    texts = [kernel_text(one, function, Target(machine)) for one in launches_of(function).launches]
    cubin = ptx.cubin_of(ptx_of(texts, machine, "softmax"), machine, "softmax")
    assert cubin.startswith(b"\x7fELF") and function.name.encode() in cubin
    assert "nvJitLink" in ptx.versions()


@needs_jit_link
def test_what_nvjitlink_refuses_is_an_error_with_its_message() -> None:
    with pytest.raises(CompileError) as caught:
        jit_link.linked(".version 7.2\n.target sm_80\nnonsense\n", SM_80, "broken")
    assert str(caught.value).startswith("nvJitLink refused the code of 'broken' (status 4): ptxas ")


def test_without_nvjitlink_the_error_names_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit_link, "library", lambda: None)
    with pytest.raises(CompileError) as caught:
        jit_link.linked("", SM_80, "kernel")
    assert str(caught.value) == "there is no nvJitLink to assemble 'kernel' with; pip install nvidia-nvjitlink-cu12"


def test_without_ptxas_the_error_names_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptx, "assembler", lambda: None)
    with pytest.raises(CompileError) as caught:
        assembled("", SM_80, "kernel")
    assert str(caught.value) == "there is no ptxas to assemble 'kernel' with; pip install nvidia-cuda-nvcc-cu12"
