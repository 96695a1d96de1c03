"""Programs as shared libraries: the same bytes every time, loaded as artifacts are, side by side in one process."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import graft
from graft.errors import ArtifactError, CompileError, InputError
from graft.runtime.export.c_names import model_name
from graft.runtime.export.library import Need, export_library
from graft.runtime.procedure import Module, ProgramDescription

TEXT = '<ir_version: 10, opset_import: ["" : 21]> g (float[4] x) => (float[4] y) { y = OPERATOR(x) }'


def program(operator: str = "Neg") -> graft.Program:
    return graft.compile(onnx.parser.parse_model(TEXT.replace("OPERATOR", operator)), ["llvm"], threads=1)


@pytest.fixture(autouse=True)
def compiler() -> None:
    if shutil.which("cc") is None:
        pytest.skip("cc is not installed")


def test_a_library_is_the_same_on_every_build_and_runs(tmp_path: Path) -> None:
    made = program()
    first = made.export_library(tmp_path / "m.so")
    data = (tmp_path / "m.so").read_bytes()
    (tmp_path / "other").mkdir()
    second = made.export_library(tmp_path / "other" / "m.so")
    assert (tmp_path / "other" / "m.so").read_bytes() == data
    assert (first.name, first.bytes, first.needs) == ("m", len(data), ())
    assert second.bytes == first.bytes
    assert str(tmp_path).encode() not in data
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(graft.runtime.load(tmp_path / "m.so", threads=1)(x), -x)


def test_libraries_of_two_models_work_in_one_program(tmp_path: Path) -> None:
    program("Neg").export_library(tmp_path / "libnegate.so")
    program("Exp").export_library(tmp_path / "exp.so", name="raised")
    (tmp_path / "main.c").write_text(
        """
#include <stdio.h>
#include "graft/model.h"
GRAFT_DECLARE_MODEL(negate)
GRAFT_DECLARE_MODEL(raised)
static int show(const GraftModel *model) {
  GraftError error = {0};
  GraftProgram *program;
  if (model->size < sizeof *model || model->load(NULL, &program, &error)) return printf("%s\\n", error.message);
  float x[4] = {0, 1, 2, 3}, y[4];
  int64_t shape[] = {4};
  DLTensor in = {.data = x, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape}, out = in;
  out.data = y;
  if (model->run(program, &in, &out, &error)) return printf("%s\\n", error.message);
  GraftCancelToken token = {0};
  GraftRunOptions options = {sizeof options, -1, &token};
  if (model->run_with(program, &in, &out, &options, &error) != GRAFT_ERROR_DEADLINE) return printf("no deadline\\n");
  options.nanoseconds = 0;
  model->cancel(&token);
  if (model->run_with(program, &in, &out, &options, &error) != GRAFT_ERROR_CANCELLED) return printf("not cancelled\\n");
  model->destroy(program);
  return printf("%.3f %.3f\\n", (double)y[0], (double)y[1]);
}
int main(void) {
  show(graft_model_negate());
  show(graft_model_raised());
}
""",
        encoding="utf-8",
    )
    include = f"-I{graft.runtime.include_dir()}"
    libraries = [tmp_path / "libnegate.so", tmp_path / "exp.so", f"-Wl,-rpath,{tmp_path}"]
    subprocess.run(
        ["cc", "-Wall", "-Werror", include, tmp_path / "main.c", *libraries, "-o", tmp_path / "main"], check=True
    )
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "-0.000 -1.000\n1.000 2.718\n"


def test_symbols_of_shapes_are_carried_through(tmp_path: Path) -> None:
    text = TEXT.replace("[4]", "[n]").replace("OPERATOR", "Neg")
    graft.compile(onnx.parser.parse_model(text), ["llvm"], threads=1).export_library(tmp_path / "m.so")
    loaded = graft.runtime.load(tmp_path / "m.so", threads=1)
    assert loaded.inputs[0].shape == ("n",)
    for count in (1, 7):
        np.testing.assert_array_equal(loaded(np.ones(count, np.float32)), -np.ones(count, np.float32))


def test_equations_of_extents_are_carried_through(tmp_path: Path) -> None:
    text = TEXT.split("(")[0] + """(float[n, k] x, float[j, 2] w) => (float[?, 2] y) { y = MatMul(x, w) }"""
    graft.compile(onnx.parser.parse_model(text), ["llvm"], threads=1).export_library(tmp_path / "m.so")
    loaded = graft.runtime.load(tmp_path / "m.so", threads=1)
    assert loaded(np.ones((3, 4), np.float32), np.ones((4, 2), np.float32)).shape == (3, 2)
    with pytest.raises(InputError) as caught:
        loaded(np.ones((3, 4), np.float32), np.ones((5, 2), np.float32))
    assert caught.value.message == "MatMul (node 'y'): axis 0 of 'w' is 5 and axis 1 of 'x' is 4; they must be equal"


def test_another_shared_library_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "empty.c").write_text("", encoding="utf-8")
    subprocess.run(["cc", "-shared", tmp_path / "empty.c", "-o", tmp_path / "empty.so"], check=True)
    with pytest.raises(ArtifactError) as caught:
        graft.runtime.load(tmp_path / "empty.so")
    assert caught.value.message == (
        "the shared library holds no Graft program: it has no section '.graft'; give one that `graft export` wrote"
    )


def test_a_library_says_which_loaders_it_needs(tmp_path: Path) -> None:
    described = program().description
    module = Module("m", "json:npu", ("f",), b"", plugin="npu", install="pip install npu")
    done = export_library(
        ProgramDescription(described.procedures, (*described.modules, module), described.constants), tmp_path / "m.so"
    )
    assert done.needs == (Need("json:npu", "npu", "pip install npu"),)
    assert str(done.needs[0]) == "the loader of plugin 'npu' for 'json:npu' (pip install npu)"


@pytest.mark.parametrize(
    ("given", "path", "name"),
    [(None, "a/libdig-its.so", "dig_its"), (None, "7.so", "model_7"), (None, "x.v2.so", "x"), ("a_1", "b.so", "a_1")],
)
def test_the_name_is_that_of_the_file_unless_given(given: str | None, path: str, name: str) -> None:
    assert model_name(given, path) == name


def test_what_is_no_name_in_c_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError) as caught:
        program().export_library(tmp_path / "m.so", name="a-b")
    assert caught.value.message == (
        "'a-b' cannot be the name of a model in C; give letters, digits and underscores that begin with no digit, as "
        "in 'digits_v2'"
    )


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_without_a_compiler_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(CompileError) as caught:
        program().export_library(tmp_path / "m.so")
    assert caught.value.message == (
        "CC names the C compiler 'no-such-compiler', which is not found; install it, or unset CC"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_compiler_that_fails_is_quoted_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.so").write_text("old", encoding="utf-8")
    broken = script(tmp_path / "broken-cc", 'case "$*" in *" -c "*) echo no assembler >&2; exit 3;; esac; exec cc "$@"')
    monkeypatch.setenv("CC", str(broken))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(CompileError) as caught:
        program().export_library(tmp_path / "m.so")
    assert caught.value.message == (
        f"the C compiler '{broken}' refused the sources of Graft's runtime (exit 3): no assembler"
    )
    assert (tmp_path / "m.so").read_text(encoding="utf-8") == "old"


def test_a_compiler_for_another_machine_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = script(tmp_path / "cc", 'case "$*" in *-dumpmachine*) echo mips-linux-gnu;; *) exec cc "$@";; esac')
    monkeypatch.setenv("CC", str(other))
    made = program()
    arch = made.description.targets[0]["arch"]
    with pytest.raises(ArtifactError) as caught:
        made.export_library(tmp_path / "m.so")
    assert caught.value.message == (
        f"the program is compiled for {arch}, and the C compiler '{other}' is one for mips; name one for {arch} in CC, "
        f"as in CC={arch}-linux-gnu-gcc"
    )


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let this process write so many bytes into a file and no more, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_is_full_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    made = program()
    size = made.export_library(tmp_path / "whole.so").bytes
    (tmp_path / "whole.so").unlink()
    for limit in (0, 1000, size // 2, size - 1):
        with pytest.raises((ArtifactError, CompileError)), files_of_at_most(limit):
            made.export_library(tmp_path / "whole.so")
        assert list(tmp_path.iterdir()) == []


def test_a_folder_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "missing"
    with pytest.raises(ArtifactError) as caught:
        program().export_library(folder / "m.so")
    assert caught.value.message == (
        f"cannot write library '{folder / 'm.so'}': there is no folder '{folder}', make it first; nothing was written"
    )
    if os.geteuid() != 0:
        folder.mkdir(mode=0o555)
        with pytest.raises(ArtifactError):
            program().export_library(folder / "m.so")
