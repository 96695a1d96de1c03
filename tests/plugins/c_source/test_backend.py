"""The C backend: whole models, its compiler, and what it says when something is missing or not known."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graft
from benchmarks.zoo import model as zoo_model
from graft.cli.main import main
from graft.compiler.api import compile_model
from graft.compiler.request import Request, choose
from graft.core.machine.rows import COMPILED_FOR
from graft.core.machine.target import CompileOptions, host_target, target_named
from graft.core.operators.definition import build as b
from graft.core.tensor_ir.ir import (
    Binary,
    Block,
    Broadcast,
    Buffer,
    CallExtern,
    Constant,
    For,
    Function,
    Intrinsic,
    Load,
    Ramp,
    Store,
    Variable,
)
from graft.core.types import FLOAT32
from graft.errors import CompileError, GraftError, UnsupportedError
from graft.plugins.c_source.backend import FLAGS, CBackend, flags_for
from graft.plugins.c_source.functions import function_source
from graft.plugins.codegen.region_code import naming_nodes
from graft.runtime import artifact
from graft.runtime.c_source import PRELUDE
from graft.runtime.system.c_compiler import c_compiler, compiled, preprocessed, version_of
from tests.plugins.llvm.graphs import region_of

TEXT = '<ir_version: 10, opset_import: ["" : 21]> g (float[4,8] x) => (float[4,8] z) { y = Relu(x) z = Tanh(y) }'


def test_it_runs_only_when_it_is_named() -> None:
    assert "c_source" not in [backend.name for backend in choose(None)]
    assert graft.compile(onnx.parser.parse_model(TEXT), ["c_source"]).description.modules[0].plugin == "c_source"


def test_a_quantised_convolution_of_symbols_multiplies_words_of_single_lanes_too() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]> g (uint8[n,4,h,w] x) => (uint8[n,3,oh,ow] y)
        <float xs = {0.1}, uint8 xz = {100}, float ks = {0.02}, int8 kz = {0}, float ys = {0.3}, uint8 yz = {110}>
        { y = QLinearConv<pads = [1, 1, 1, 1]>(x, xs, xz, k, ks, kz, ys, yz) }"""
    )
    random = np.random.default_rng(0)
    weights = random.integers(-128, 128, (3, 4, 3, 3)).astype(np.int8)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "k"))
    x = random.integers(0, 256, (2, 4, 5, 6)).astype(np.uint8)
    ours, theirs = (graft.compile(model, [name])(x) for name in ("c_source", "reference"))
    np.testing.assert_array_equal(ours, theirs)


def relu() -> Function:
    x, y, i = Buffer("x", "float32", (b.index(5),)), Buffer("y", "float32", (b.index(5),)), Variable("i")
    value = b.maximum(Load(x, (i,)), b.constant(0, "float32"))
    return Function("relu", (x, y), 1, For(i, b.index(5), "serial", Store(y, (i,), value)), origin=("a node",))


def test_the_text_of_a_small_kernel(golden: Any) -> None:
    golden("c_source_relu.c", function_source(relu()).text)


def test_the_code_is_free_of_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    def kept(text: str, name: str, flags: Sequence[str]) -> bytes:
        texts.append(text)
        return compiled(text, name, flags)

    monkeypatch.setattr("graft.plugins.c_source.backend.compiled", kept)
    graft.compile(zoo_model("digits").clone(), ["c_source"], cache=False, strict=True)
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
    assert CBackend().available() == text
    assert CBackend().version() == ""
    assert text in refusal()


def test_a_machine_without_any_compiler_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert CBackend().available() == ("there is no C compiler (cc, gcc, clang); install one, or name it in CC")


def test_what_the_compiler_says_is_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tool(tmp_path, "echo 'kernel.c:1: no licence' >&2; exit 3")
    monkeypatch.setenv("CC", path)
    with pytest.raises(CompileError) as caught:
        CBackend().emit([relu()], CBackend().machine(host_target()))
    assert caught.value.message == (
        f"the C compiler '{path}' refused the code of 'relu' (exit 3): kernel.c:1: no licence"
    )


def test_the_line_of_c_and_its_nodes_are_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tool(tmp_path, "echo 'relu.c:3:5: error: no licence' >&2; exit 1")
    monkeypatch.setenv("CC", path)
    other = replace(relu(), name="other", origin=("another node",))
    with pytest.raises(CompileError) as caught, naming_nodes(other, relu()):
        CBackend().emit([other, relu()], CBackend().machine(host_target()))
    assert caught.value.message == (
        f"'a node': the C compiler '{path}' refused the code of 'other, relu' (exit 1): relu.c:3:5: error: no licence\n"
        "the line is: for (int64_t i = 0; i < 5; ++i) {"
    )


def test_a_compiler_that_is_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tool(tmp_path, "echo '#define __GNUC__ 4'")
    monkeypatch.setenv("CC", path)
    text = (
        f"the C compiler '{path}' is GCC 4; GCC 9 or newer is needed (C11, and __builtin_convertvector for vectors); "
        "install one, or name another compiler in CC"
    )
    assert CBackend().available() == text
    assert text in refusal()


def test_a_program_says_what_compiled_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = graft.compile(onnx.parser.parse_model(TEXT), ["c_source"], cache=False, strict=True)
    source = program.description.modules[0].source
    assert source is not None
    assert source.compiler.startswith(f"{version_of(c_compiler())} -std=c11 -O3 ")
    assert "-I" not in source.compiler
    program.save(tmp_path / "model.graft")
    with pytest.raises(SystemExit):
        main(["inspect", str(tmp_path / "model.graft")])
    said = capsys.readouterr().out
    assert f"{program.description.modules[0].name} was compiled from C by {source.compiler}" in said


# ---- Without a compiler ----


def test_c_is_written_without_a_compiler_for_any_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    request = Request([CBackend(compiles=False)], target="riscv64", strict=True)
    (module,) = compile_model(onnx.parser.parse_model(TEXT), request).description.modules
    assert module.source is not None
    assert "tanh" in next(iter(module.source.functions))
    assert module.source.compiler == ""


def test_what_was_only_written_is_not_saved_as_a_program(tmp_path: Path) -> None:
    request = Request([CBackend(compiles=False)], strict=True)
    description = compile_model(onnx.parser.parse_model(TEXT), request).description
    with pytest.raises(GraftError) as caught:
        artifact.save(description, tmp_path / "model.graft")
    name = description.modules[0].name
    assert caught.value.message == (
        f"module '{name}' cannot be saved: it is C that was not compiled; compile the model where it is to run"
    )


def test_a_compiler_that_writes_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tool(tmp_path, "exit 0")
    monkeypatch.setenv("CC", path)
    with pytest.raises(CompileError) as caught:
        CBackend().emit([relu()], CBackend().machine(host_target()))
    assert caught.value.message == f"the C compiler '{path}' refused the code of 'relu' (no object file): "


def test_a_compiler_that_cannot_be_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tool"
    path.write_bytes(b"\x7fno program")
    path.chmod(0o755)
    monkeypatch.setenv("CC", str(path))
    with pytest.raises(CompileError, match=r"cannot be run: .*Exec format error"):
        CBackend().emit([relu()], CBackend().machine(host_target()))


def test_the_nodes_of_the_model_are_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tool(tmp_path, "echo 'no licence' >&2; exit 3")
    monkeypatch.setenv("CC", path)
    source = onnx.parser.parse_model(TEXT)
    for node, name in zip(source.graph.node, ("first", "second"), strict=True):
        node.name = name
    with pytest.raises(CompileError) as caught:
        graft.compile(source, ["c_source"], cache=False, strict=True)
    name = caught.value.facts["function"]
    text = f"'first', 'second': the C compiler '{path}' refused the code of '{name}' (exit 3): no licence"
    assert text in caught.value.message


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


# ---- The machine ----


def test_kept_kernels_are_those_of_the_processor_that_they_were_compiled_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    ran: list[str] = []

    def kept(text: str, name: str, flags: Sequence[str]) -> bytes:
        ran.append(name)
        return compiled(text, name, flags)

    def compile_by(processor: str) -> int:
        """The number of kernels compiled where the compiler takes `-mtune=native` for a processor."""
        script = f'for one; do [ "$one" = -mtune=native ] && one="{processor}"; set -- "$@" "$one"; shift; done'
        monkeypatch.setenv("CC", tool(tmp_path, f'{script}\nexec cc "$@"'))
        preprocessed.cache_clear()
        ran.clear()
        graft.compile(onnx.parser.parse_model(TEXT), ["c_source"], strict=True)
        return len(ran)

    monkeypatch.setattr("graft.plugins.c_source.backend.compiled", kept)
    assert [compile_by(one) for one in ("-DONE", "-DONE", "-DOTHER", "-DONE")] == [1, 0, 1, 0]


def test_a_program_for_this_machine_says_all_that_its_compiler_may_use() -> None:
    """By what the compiler says of `-march=native`: a macro for each feature."""
    macros = set(preprocessed(c_compiler(), flags_for(host_target().machine), PRELUDE).split())
    used = {name for name in COMPILED_FOR if f"__{name.upper().replace('.', '_')}__" in macros}
    if host_target().arch == "x86_64":
        assert "sse3" in used, "the compiler says what it may use"
    needed = compile_model(onnx.parser.parse_model(TEXT), Request(["c_source"])).description.targets[0]["features"]
    assert used <= set(needed)


@pytest.mark.parametrize(("target", "processor"), [("x86-64-v3", "x86-64-v3"), ("x86-64-v4+avx512vnni", "x86-64-v4")])
def test_a_row_of_this_architecture_is_what_the_compiler_calls_it(target: str, processor: str) -> None:
    found = [flag for flag in flags_for(target_named(target).machine) if flag.startswith("-march=")]
    assert found == ([f"-march={processor}"] if host_target().arch == "x86_64" else [])


def test_a_machine_that_the_compiler_is_not_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    here = host_target().arch
    reason = f"it runs a compiler for {here}, not for riscv64; name one for that in CC"
    with pytest.raises(UnsupportedError) as caught:
        graft.compile(onnx.parser.parse_model(TEXT), ["c_source"], target="riscv64")
    assert caught.value.message == f"no backend generates code for target 'riscv64'; c_source: {reason}"
    options = CompileOptions(target_named("riscv64"))
    with pytest.raises(CompileError) as caught:
        CBackend().compile(region_of("g (float[4] x) => (float[4] y) { y = Relu(x) }"), options)
    assert caught.value.message == f"c_source does not compile for 'riscv64': {reason}"


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
        function_source(function)
    assert caught.value.message == f"function 'kernel' has {what}, which c_source cannot write"


# ---- Vectors ----


def add() -> Function:
    x, y = Buffer("x", "float32", (b.index(20),)), Buffer("y", "float32", (b.index(20),))
    i = Variable("i")
    place = Ramp(Binary("mul", i, b.index(16)), 1, 16)
    on = Binary("lt", place, Broadcast(b.index(20), 16))
    total = Binary("add", Load(x, (place,), on), Constant(1.5, FLOAT32.with_lanes(16)))
    return Function("add", (x, y), 1, For(i, b.index(2), "serial", Store(y, (place,), total, on)))


def test_the_text_of_a_kernel_with_vectors(golden: Any) -> None:
    golden("c_source_add_vectors.c", function_source(add(), vectors=True).text)


def test_vector_types_are_off_by_a_switch() -> None:
    target = host_target()
    assert CBackend().machine(target) == target
    without = replace(target, without=frozenset({"vector-types"}))
    assert CBackend().machine(without).machine.vectors == ()


def test_a_compiler_without_shuffles_gets_scalars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", tool(tmp_path, "echo '#define __GNUC__ 11'"))
    assert CBackend().available() is None
    assert CBackend().machine(host_target()).machine.vectors == ()


def test_lanes_that_no_vector_type_has_are_taken_apart() -> None:
    x, y = Buffer("x", "float32", (b.index(3),)), Buffer("y", "float32", (b.index(3),))
    place = Ramp(b.index(0), 1, 3)
    text = function_source(Function("copy", (x, y), 1, Store(y, (place,), Load(x, (place,)))), vectors=True).text
    assert "float32x3" not in text
