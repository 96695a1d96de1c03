"""Programs as C projects: whole, checked by themselves, with symbols as parameters; or refused with the reason."""

from __future__ import annotations

import platform
import re
import resource
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import graft
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.errors import ArtifactError
from graft.plugins.c_source.backend import CBackend
from graft.runtime.c_source import VARIES, prelude
from graft.runtime.export.c_check import Recorded
from graft.runtime.export.c_project import export_c_project
from graft.runtime.export.c_text import SECTIONS
from graft.runtime.inputs import inputs_of

TEXT = '<ir_version: 10, opset_import: ["" : 21]> g '
DENSE = (
    TEXT
    + """(float[2,8] x, float[8,6] w) => (float[2,6] y, int64[2] best) {
  h = MatMul(x, w) e = Exp(h) y = Softmax(e) best = ArgMax <axis = 1, keepdims = 0> (y) }"""
)
SYMBOLIC = TEXT + "(float[n, 8] x, float[8, 6] w) => (float[n, 6] y) { h = MatMul(x, w) y = Softmax(h) }"
SANITIZED = "-g -O1 -Wall -Wextra -Wpedantic -Werror -fsanitize=address,undefined -fno-sanitize-recover=all"


def compiled(text: str, backend: object = "c_source", **options: object) -> graft.Program:
    options = {"target": "generic", "threads": 1, **options}  # vectors take a sanitized compiler a minute
    return graft.compile(onnx.parser.parse_model(text), [backend], **options)  # type: ignore[arg-type,list-item]


@pytest.fixture(autouse=True)
def tools() -> None:
    for tool in ("make", "cc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", "-C", folder, *arguments], capture_output=True, text=True, timeout=200)


@pytest.mark.parametrize("profile", ["hosted", "bare-metal"])
def test_a_project_builds_and_gives_what_was_recorded(tmp_path: Path, profile: str) -> None:
    done = compiled(DENSE).export_c_project(tmp_path / "dense", profile=profile)  # type: ignore[arg-type]
    made = make(tmp_path / "dense", "check", f"CFLAGS={SANITIZED}")
    assert made.returncode == 0, made.stdout + made.stderr
    said = f"dense: as recorded (arena {done.arena_bytes} bytes, weights {done.weight_bytes} bytes)"
    assert (said in made.stdout) == (profile == "hosted")


def test_a_wrong_result_is_found_out(tmp_path: Path) -> None:
    compiled(DENSE).export_c_project(tmp_path / "dense")
    check = tmp_path / "dense" / "dense_check.c"
    text = check.read_text(encoding="utf-8")
    before, mark, after = text.partition("wanted1[] = {\n  ")
    check.write_text(f"{before}{mark}INT64_C(9), {after.partition(',')[2]}", encoding="utf-8")
    made = make(tmp_path / "dense", "check")
    assert made.returncode != 0
    assert "dense: 1 elements differ from what was recorded" in made.stdout


X86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the flags are those of x86-64")


@X86
def test_what_kernels_are_written_for_stands_in_both_build_files(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(DENSE)
    written = compile_model(model, Request([CBackend(compiles=False)], target="x86-64-v3"))
    recorded = Recorded.of(compiled(DENSE), inputs_of(compiled(DENSE), (), 0))
    export_c_project(written.description, tmp_path / "dense", recorded)
    for file in ("Makefile", "CMakeLists.txt"):
        text = (tmp_path / "dense" / file).read_text(encoding="utf-8")
        assert {"-mavx2", "-mfma", "-mf16c", "-mbmi2"} <= {*re.split(r"[ ;>]", text)}
        assert "avx512" not in text


@X86
def test_a_compiler_that_is_not_told_of_the_processor_is_refused(tmp_path: Path) -> None:
    compiled(DENSE, target="x86-64-v3").export_c_project(tmp_path / "dense")
    makefile = tmp_path / "dense" / "Makefile"
    makefile.write_text(re.sub(r" -m\w[\w.]*", "", makefile.read_text(encoding="utf-8")), encoding="utf-8")
    made = make(tmp_path / "dense")
    assert made.returncode != 0
    assert (
        "the kernels of dense are written for a processor with more than this compiler was told of: say -mavx -mavx2 "
        "-mbmi -mbmi2 -mf16c -mfma -mlzcnt -mmovbe -mpopcnt -msse3 -msse4.1 -msse4.2 -mssse3"
    ) in made.stderr


def test_the_check_of_text_that_was_compiled_here_too_compares_bits(tmp_path: Path) -> None:
    compiled(DENSE).export_c_project(tmp_path / "dense")
    check = tmp_path / "dense" / "dense_check.c"
    text = check.read_text(encoding="utf-8")
    first = re.search(r"wanted0\[\] = {\n  (\S+)f,", text)
    assert first is not None and "1e-4" not in text
    near = np.nextafter(np.float32(float.fromhex(first[1])), np.float32(2))
    check.write_text(text.replace(first[1], float(near).hex(), 1), encoding="utf-8")
    made = make(tmp_path / "dense", "check")
    assert "dense: 1 elements differ from what was recorded" in made.stdout


def test_large_weights_are_a_file_of_the_assembler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graft.runtime.export.c_project.BLOB_BYTES", 1)
    weight = ", ".join(str(number / 7) for number in range(48))
    text = TEXT + f"(float[2,8] x) => (float[2,6] y) <float[8,6] w = {{{weight}}}> {{ y = MatMul(x, w) }}"
    done = compiled(text).export_c_project(tmp_path / "m")
    assert (tmp_path / "m" / "m_weights.bin").stat().st_size >= done.weight_bytes >= 4 * 48
    made = make(tmp_path / "m", "check", f"CFLAGS={SANITIZED}")
    assert made.returncode == 0, made.stdout + made.stderr


def test_symbols_are_parameters_that_are_checked(tmp_path: Path) -> None:
    program = compiled(SYMBOLIC, dims={"n": (1, 5)}, memory="maximum")
    program.export_c_project(tmp_path / "dense")
    assert make(tmp_path / "dense", "check", f"CFLAGS={SANITIZED}").returncode == 0
    (tmp_path / "dense" / "main.c").write_text(
        """
#include <stdio.h>
#include "dense.h"
int main(void) {
  float x[6 * 8] = {1}, w[8 * 6] = {1, 2}, y[6 * 6];
  printf("%d %d %d", dense_run(0, x, w, y), dense_run(DENSE_N_MAX + 1, x, w, y), dense_run(5, x, w, y));
  for (int i = 0; i < 30; i++) printf(" %.6f", (double)y[i]);
}
""",
        encoding="utf-8",
    )
    make(tmp_path / "dense", "check", f"CFLAGS={SANITIZED}")
    done = subprocess.run([tmp_path / "dense" / "build" / "dense_test"], capture_output=True, text=True, timeout=60)
    low, high, status, *values = done.stdout.split()
    assert (low, high, status) == ("4", "4", "0")
    x, w = np.zeros((5, 8), np.float32), np.zeros((8, 6), np.float32)
    x[0, 0], w[0, :2] = 1, (1, 2)
    np.testing.assert_allclose([float(value) for value in values], program(x, w).reshape(-1), atol=1e-5)


RECURRENT = (
    TEXT
    + """(float[4,n,3] x) => (float[4,1,n,2] y, float[1,n,2] h) <float[1,6,3] w = {W}, float[1,6,2] r = {R}> {
  y, h = GRU<hidden_size = 2>(x, w, r) }"""
)
RECURRENT = RECURRENT.replace("W", ", ".join(f"{number / 9}" for number in range(-9, 9)))
RECURRENT = RECURRENT.replace("{R}", "{" + ", ".join(f"{number / 6}" for number in range(-6, 6)) + "}")


@pytest.mark.parametrize("rows", [1, 7])
def test_scratch_memory_that_grows_with_a_dimension_is_part_of_the_arena(tmp_path: Path, rows: int) -> None:
    """Of a GRU, for the most rows; sanitizers see what is beyond the arena, and a kernel fails that has too little."""
    program = compiled(RECURRENT, dims={"n": (1, 7)}, memory="maximum")
    (function,) = (one for module in program.description.modules for one in module.source.functions.values())
    assert function.growing
    x = np.random.default_rng(0).standard_normal((4, rows, 3)).astype(np.float32)
    program.export_c_project(tmp_path / "m", {"x": x})
    made = make(tmp_path / "m", "check", f"CFLAGS={SANITIZED}")
    assert made.returncode == 0, made.stdout + made.stderr


def test_equations_are_checked(tmp_path: Path) -> None:
    """As many columns as the weights have rows, which are three."""
    text = TEXT + "(float[n,k] x) => (float[?,2] y) <float[3,2] w = {1, 2, 3, 4, 5, 6}> { y = MatMul(x, w) }"
    compiled(text, dims={"n": (1, 5), "k": (1, 5)}, memory="maximum").export_c_project(tmp_path / "joined")
    (tmp_path / "joined" / "main.c").write_text(
        """
#include <stdio.h>
#include "joined.h"
int main(void) {
  float x[5 * 5] = {1}, y[5 * 2];
  for (int k = 2; k < 5; k++) printf("%d ", joined_run(5, k, x, y));
}
""",
        encoding="utf-8",
    )
    made = make(tmp_path / "joined", "check", f"CFLAGS={SANITIZED}")
    assert "build/joined_test" in made.stdout, made.stdout + made.stderr
    done = subprocess.run([tmp_path / "joined" / "build" / "joined_test"], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["4", "0", "4"]
    source = (tmp_path / "joined" / "joined.c").read_text(encoding="utf-8")
    assert "axis 1 of 'x' is ... and axis 0 of 'w' is ...; they must be equal" in source


def test_the_same_program_gives_the_same_files(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        compiled(DENSE).export_c_project(tmp_path / folder, name="dense")
    files = {path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file()}
    assert {str(one) for one in files} >= {"dense.h", "dense.c", "Makefile", "CMakeLists.txt", "graft/kernel.h"}
    for one in files:
        assert (tmp_path / "a" / one).read_bytes() == (tmp_path / "b" / one).read_bytes()


def refused(tmp_path: Path, program: graft.Program, **options: int) -> str:
    with pytest.raises(ArtifactError) as caught:
        program.export_c_project(tmp_path / "m", **options)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    return caught.value.message


def test_a_program_without_c_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, compiled(DENSE, "llvm", target="native")) == (
        "module 'llvm_0' of kind 'native' has no C source, so that the program cannot be exported as a C project (it "
        "computes 'h', 'e', 'y' and others); compile the model with the backend 'c_source' alone, or export it as "
        "a library"
    )


def test_memory_that_is_planned_later_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, compiled(SYMBOLIC)) == (
        "the program plans its memory for each binding of its symbols, and a C project has one arena; compile the "
        'model with memory="maximum" and a range for each dimension'
    )


def test_an_arena_that_is_too_large_is_told_with_its_tensors(tmp_path: Path) -> None:
    program = compiled(DENSE)
    message = refused(tmp_path, program, ram=10)
    assert message.startswith("the arena has ")
    assert " more than the 10 that there are, and no plan of this program has less than " in message
    assert "; the largest tensors of its fullest moment are '" in message
    arena, least = (int(message.split(before)[1].split()[0].rstrip(";,")) for before in ("arena has ", "less than "))
    assert program.export_c_project(tmp_path / "whole").arena_bytes == arena == least, "the plan is at its lower bound"
    program.export_c_project(tmp_path / "m", ram=1 << 20)


@pytest.mark.parametrize("change", [{"scratch": VARIES}, {"growing": ((4, 0, 9),)}], ids=["unknown", "of-no-axis"])
def test_a_kernel_that_needs_an_allocator_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    program = compiled(DENSE)
    (module,) = program.description.modules
    assert module.source is not None
    functions = {name: replace(one, **change) for name, one in module.source.functions.items()}
    varying = replace(module, source=replace(module.source, functions=functions))
    recorded = Recorded.of(program, inputs_of(program, (), 0))
    with pytest.raises(ArtifactError) as caught:
        export_c_project(replace(program.description, modules=(varying,)), tmp_path / "m", recorded)
    assert caught.value.message.endswith(
        "cannot be exported as a C project: its scratch memory depends on shapes, and a C project has a fixed arena; "
        "export it as a library"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    program = compiled(DENSE)
    folder = tmp_path / "m"
    program.export_c_project(folder)
    (folder / "build").mkdir()
    (folder / "build" / "x.o").write_text("", encoding="utf-8")
    program.export_c_project(folder)
    assert not (folder / "build").exists()
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ArtifactError) as caught:
        program.export_c_project(folder)
    assert caught.value.message == (
        f"the folder '{folder}' has files that are not of an export, such as 'notes.txt', which would be lost; name "
        "another folder, or move them away"
    )
    assert (folder / "notes.txt").read_text(encoding="utf-8") == "mine"


def test_a_disk_that_is_full_in_the_middle_leaves_what_was_there(tmp_path: Path) -> None:
    program = compiled(DENSE)
    program.export_c_project(tmp_path / "m")
    before = {path: path.read_bytes() for path in (tmp_path / "m").rglob("*") if path.is_file()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (0, 500, 2000, 5000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(ArtifactError) as caught:
                program.export_c_project(tmp_path / "m")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert caught.value.message == (
            f"cannot write the folder '{tmp_path / 'm'}': File too large; it is as it was before"
        )
    assert {path: path.read_bytes() for path in (tmp_path / "m").rglob("*") if path.is_file()} == before
    assert list(tmp_path.iterdir()) == [tmp_path / "m"]


def test_what_is_no_name_in_c_gets_one(tmp_path: Path) -> None:
    text = TEXT + '(float[2] "int", float[2] "a.b/c") => (float[2] "a_b_c") { "a_b_c" = Add("int", "a.b/c") }'
    model = onnx.parser.parse_model(text.replace('"int"', "p").replace('"a.b/c"', "q").replace('"a_b_c"', "r"))
    for value, name in zip((*model.graph.input, *model.graph.output), ("int", "a.b/c", "a_b_c"), strict=True):
        value.name = name
    model.graph.node[0].input[:] = ["int", "a.b/c"]
    model.graph.node[0].output[:] = ["a_b_c"]
    graft.compile(model, ["c_source"], threads=1).export_c_project(tmp_path / "m")
    header = (tmp_path / "m" / "m.h").read_text(encoding="utf-8")
    assert "int m_run(const float int_2[2], const float a_b_c[2], float a_b_c_2[2]);" in header
    assert make(tmp_path / "m", "check").returncode == 0


def test_a_folder_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError) as caught:
        compiled(DENSE).export_c_project("/proc/m")
    assert caught.value.message == ("cannot write the folder '/proc/m': No such file or directory; nothing was written")


def test_the_memory_of_control_flow_is_told_apart(tmp_path: Path) -> None:
    text = (
        TEXT
        + """(float[64] x, int64 trip) => (float[64] y) {
      y = Loop (trip, , x) <body = b (int64 i, bool c, float[64] p) => (bool d, float[64] t) {
        d = Identity(c) t = Tanh(p) }> }"""
    )
    assert refused(tmp_path, compiled(text), ram=100) == (
        "the arena has 256 bytes, of which 256 are of control flow, 156 more than the 100 that there are, and no plan "
        "of this program has less than 256: make the model smaller, or its numbers narrower"
    )


@pytest.mark.parametrize(
    ("dtype", "test"), [("float", "fabsf(got - wanted) <= 1e-4f"), ("double", "fabs(got - wanted)")]
)
def test_a_check_compares_floats_in_their_own_width(tmp_path: Path, dtype: str, test: str) -> None:
    model = onnx.parser.parse_model(TEXT + f"({dtype}[4] x) => ({dtype}[4] y) {{ y = Exp(x) }}")
    description = compile_model(model, Request([CBackend(compiles=False)], threads=1, target="generic")).description
    array = np.zeros(4, np.float32 if dtype == "float" else np.float64)
    recorded = Recorded([array], [np.ones_like(array)])
    export_c_project(description, tmp_path / "m", recorded, name="m")
    assert test in (tmp_path / "m" / "m_check.c").read_text(encoding="utf-8")


def test_the_header_of_kernels_has_what_they_use(tmp_path: Path) -> None:
    titles = re.findall(r"^/\* ---- (.*?) -* \*/$", prelude(), re.MULTILINE)
    assert {one for one in SECTIONS if not any(title.startswith(one) for title in titles)} == set()
    compiled(TEXT + "(float[4] x) => (float[4] y) { y = Relu(x) }").export_c_project(tmp_path / "relu")
    compiled(TEXT + "(float[4] x, float[4] z) => (float[4] y) { y = Mod <fmod = 1> (x, z) }").export_c_project(
        tmp_path / "mod"
    )
    relu, mod = ((tmp_path / one / "graft" / "kernel.h").read_text(encoding="utf-8") for one in ("relu", "mod"))
    assert "GRAFT_FLOAT(float32" in relu and "GRAFT_INTEGER" not in relu and "GraftKept" not in relu
    assert "fmod_float64" in mod and "fmod_float64" not in relu
    assert "graft/runtime.h" not in relu and "GRAFT_PROJECT_THREADS" not in relu
