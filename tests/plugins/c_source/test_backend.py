"""The C backend: whole models, its compiler, and what it says when something is missing or not known."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from benchmarks.zoo import model as zoo_model
from graft.compiler.request import choose
from graft.core.machine.target import host_target
from graft.core.model.sample_inputs import sample_inputs
from graft.core.operators import build as b
from graft.core.tensor_ir.ir import Block, Buffer, CallExtern, For, Function, Intrinsic, Load, Store, Variable
from graft.core.types import FLOAT32
from graft.errors import CompileError, GraftError
from graft.plugins.c_source.backend import FLAGS, CSourceBackend
from graft.plugins.c_source.functions import function_text

EXACT = ("digits:custom[posit]16", "int8_digits")
CLOSE = ("digits", "light_squeezenet", "lstm", "mobilenet_v2", "convnext_tiny", "distilbert", "llama")
SLOW = ("mobilenet_v2", "convnext_tiny", "distilbert", "llama", "light_squeezenet", "lstm")
TEXT = '<ir_version: 10, opset_import: ["" : 21]> g (float[4,8] x) => (float[4,8] z) { y = Relu(x) z = Tanh(y) }'


@cache
def model(name: str) -> ir.Model:
    name, _, dtype = name.partition(":")
    source = zoo_model(name)
    return graft.datatypes.convert(source.clone(), dtype) if dtype else source


def results(name: str, backend: str) -> list[np.ndarray]:
    program = graft.compile(model(name).clone(), [backend], threads=2, strict=True)
    return list(program.run(sample_inputs(model(name))).values())


@pytest.mark.parametrize("name", EXACT)
def test_numbers_that_are_rounded_one_by_one_are_those_of_llvm(name: str) -> None:
    for ours, theirs in zip(results(name, "c_source"), results(name, "llvm"), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in CLOSE])
def test_a_model_computes_what_it_computes_with_llvm(name: str) -> None:
    for ours, theirs in zip(results(name, "c_source"), results(name, "llvm"), strict=True):
        assert np.std(theirs) > 0, "a constant output proves nothing"
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def test_it_runs_only_when_it_is_named() -> None:
    assert "c_source" not in [backend.name for backend in choose(None)]
    assert graft.compile(onnx.parser.parse_model(TEXT), ["c_source"]).description.modules[0].plugin == "c_source"


def relu() -> Function:
    x, y, i = Buffer("x", "float32", (b.index(5),)), Buffer("y", "float32", (b.index(5),)), Variable("i")
    value = b.maximum(Load(x, (i,)), b.constant(0, "float32"))
    return Function("relu", (x, y), 1, For(i, b.index(5), "serial", Store(y, (i,), value)), origin=("a node",))


def test_the_text_of_a_small_kernel(golden: Any) -> None:
    golden("c_source_relu.c", function_text(relu()))


def test_the_code_is_free_of_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    real = CSourceBackend._object

    def kept(self: CSourceBackend, text: str, *rest: Any) -> bytes:
        texts.append(text)
        return real(self, text, *rest)

    monkeypatch.setattr(CSourceBackend, "_object", kept)
    graft.compile(model("digits").clone(), ["c_source"], cache=False, strict=True)
    assert texts
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Wno-unused-variable", "-Werror", "-fsyntax-only", "-O0"]
    for text in texts:
        said = subprocess.run(["cc", *FLAGS, *flags, "-x", "c", "-"], input=text, capture_output=True, text=True)
        assert said.stderr == ""


# ---- The compiler ----


def refusal(**changes: Any) -> str:
    with pytest.raises(GraftError) as caught:
        graft.compile(onnx.parser.parse_model(TEXT), ["c_source"], cache=False, strict=True, **changes)
    return caught.value.message


def tool(folder: Path, script: str) -> str:
    path = folder / "tool"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_compiler_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "nowhere-cc -O1")
    text = "CC names the C compiler 'nowhere-cc', which is not found; install it, or unset CC"
    assert CSourceBackend().available() == text
    assert CSourceBackend().version() == ""
    assert text in refusal()


def test_a_machine_without_any_compiler_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert CSourceBackend().available() == ("there is no C compiler (cc, gcc, clang); install one, or name it in CC")


def test_what_the_compiler_says_is_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tool(tmp_path, "echo 'kernel.c:1: no licence' >&2; exit 3")
    monkeypatch.setenv("CC", path)
    with pytest.raises(CompileError) as caught:
        CSourceBackend().emit([relu()], CSourceBackend().machine(host_target()))
    assert caught.value.message == (
        f"the C compiler '{path}' refused the code of 'relu' (exit 3): kernel.c:1: no licence"
    )


def test_a_compiler_that_writes_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tool(tmp_path, "exit 0")
    monkeypatch.setenv("CC", path)
    with pytest.raises(CompileError) as caught:
        CSourceBackend().emit([relu()], CSourceBackend().machine(host_target()))
    assert caught.value.message == f"the C compiler '{path}' refused the code of 'relu' (no object file): "


def test_a_compiler_that_cannot_be_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tool"
    path.write_bytes(b"\x7fno program")
    path.chmod(0o755)
    monkeypatch.setenv("CC", str(path))
    with pytest.raises(CompileError, match=r"cannot be run: .*Exec format error"):
        CSourceBackend().emit([relu()], CSourceBackend().machine(host_target()))


def test_a_region_whose_compiler_fails_goes_to_the_next_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", tool(tmp_path, "exit 3"))
    program = graft.compile(onnx.parser.parse_model(TEXT), ["c_source", "llvm"], cache=False)
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
    np.testing.assert_allclose(program(x), np.tanh(np.maximum(x, 0)), rtol=1e-6)
    assert [module.plugin for module in program.description.modules] == ["llvm"]


def test_a_second_compilation_runs_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    graft.compile(onnx.parser.parse_model(TEXT), ["c_source"], strict=True)
    monkeypatch.setattr("graft.plugins.c_source.backend.compiled", lambda *_: pytest.fail("the compiler was run"))
    graft.compile(onnx.parser.parse_model(TEXT), ["c_source"], strict=True)


# ---- What the emitter does not know ----

X, Y, PLACE = Buffer("x", "float32", (b.index(4),)), Buffer("y", "float32", (b.index(4),)), Variable("i")
LOADED = Load(X, (PLACE,))
UNKNOWN = {
    "the intrinsic 'frobnicate' of type float32": Store(Y, (PLACE,), Intrinsic("frobnicate", (LOADED,), FLOAT32)),
    "a call of 'dma_start'": Block((CallExtern("dma_start", ()), Store(Y, (PLACE,), LOADED))),
    "a loop bound to 'block.x'": For(Variable("j"), b.index(2), "parallel", Store(Y, (PLACE,), LOADED), "block.x"),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_a_node_that_the_emitter_does_not_know_is_named(what: str) -> None:
    function = Function("kernel", (X, Y), 1, For(PLACE, b.index(4), "serial", UNKNOWN[what]))
    with pytest.raises(CompileError) as caught:
        function_text(function)
    assert caught.value.message == f"function 'kernel' has {what}, which c_source cannot write"
