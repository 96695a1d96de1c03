"""C projects as parts of other programs: built by CMake, two in one program, integers, called from C++."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import graft
from benchmarks.zoo import model

TEXT = '<ir_version: 10, opset_import: ["" : 21]> g '
FIRST = TEXT + "(float[2,8] x, float[8,6] w) => (float[2,6] y) { h = MatMul(x, w) y = Softmax(h) }"
SECOND = TEXT + "(float[2,8] x, float[8,6] w) => (float[2,6] y) { h = MatMul(x, w) y = Exp(h) }"
SANITIZED = "-g -O1 -Wall -Wextra -Wpedantic -Werror -fsanitize=address,undefined -fno-sanitize-recover=all"
BOTH = """
#include <cstdio>
#include "first.h"
#include "first_check.h"
#include "second.h"
#include "second_check.h"
int main() {
  float x[2 * 8] = {1}, w[8 * 6] = {0, 1}, y[2 * 6], z[2 * 6];
  if (first_run(x, w, y) != FIRST_OK || second_run(x, w, z) != SECOND_OK) return 1;
  std::printf("%.4f %.4f", y[1], z[1]);
  return first_check() != 0 || second_check() != 0;
}
"""


def exported(text: str, folder: Path, target: str = "generic", **options: object) -> None:
    program = graft.compile(onnx.parser.parse_model(text), ["c_source"], target=target, threads=1)
    program.export_c_project(folder, **options)  # type: ignore[arg-type]


def ran(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


@pytest.mark.parametrize("kind", ["arrays", "blob", "threads"])
def test_cmake_builds_a_project_and_runs_its_check(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need("cmake", "cc", "make", "ctest")
    if kind == "blob":
        monkeypatch.setattr("graft.runtime.export.c_project.BLOB_BYTES", 1)
    weight = ", ".join(str(number / 7) for number in range(48))
    text = TEXT + f"(float[2,8] x) => (float[2,6] y) <float[8,6] w = {{{weight}}}> {{ y = MatMul(x, w) }}"
    exported(text, tmp_path / "m", threads=2 if kind == "threads" else 1, name="test" if kind == "threads" else "m")
    ran(
        "cmake",
        "-S",
        tmp_path / "m",
        "-DCMAKE_C_COMPILER=cc",
        "-B",
        tmp_path / "built",
        "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror",
    )
    ran("cmake", "--build", tmp_path / "built")
    assert "100% tests passed, 0 tests failed out of 1" in ran("ctest", "--test-dir", tmp_path / "built")


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the flags are those of x86-64")
def test_gcc_says_nothing_of_vectors_that_are_wider_than_registers(tmp_path: Path) -> None:
    """Of the ABI that they are passed by, in notes that no flag of warnings has to do with."""
    need("gcc", "make")
    text = TEXT + "(float[64] x) => (float[64] y) { d = Cast<to = 11>(x) f = Floor(d) y = Cast<to = 1>(f) }"
    exported(text, tmp_path / "m", "x86-64-v3")
    done = subprocess.run(
        ["make", "-s", "-C", tmp_path / "m", "build/m_kernels.o", "CC=gcc"], capture_output=True, text=True, timeout=200
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_two_projects_link_into_one_program_of_cpp_under_sanitizers(tmp_path: Path) -> None:
    need("make", "cc", "c++")
    objects = []
    for name, text in (("first", FIRST), ("second", SECOND)):
        exported(text, tmp_path / name, threads=2)
        ran("make", "-C", tmp_path / name, f"CFLAGS={SANITIZED}", "all", f"build/{name}_check.o")
        objects += [tmp_path / name / "build" / f"{name}_check.o", tmp_path / name / "build" / f"lib{name}.a"]
    (tmp_path / "main.cpp").write_text(BOTH, encoding="utf-8")
    flags = ["-std=c++17", *SANITIZED.split(), f"-I{tmp_path / 'first'}", f"-I{tmp_path / 'second'}"]
    ran("c++", *flags, tmp_path / "main.cpp", *objects, "-pthread", "-lm", "-o", tmp_path / "both")
    soft = np.exp([0, 1, 0, 0, 0, 0]) / (np.e + 5)
    assert ran(tmp_path / "both") == f"{soft[1]:.4f} {np.e:.4f}"


INTEGERS = (
    TEXT
    + """(float[3,16] x) => (float[3,8] y) <float s = {0.05}, int8 z = {3}, float t = {0.02}, int8 o = {0},
    int8[16,8] w = {WEIGHTS}> {
  q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) v = DequantizeLinear(w, t, o) m = MatMul(d, v) r = Relu(m)
  p = QuantizeLinear(r, s, z) y = DequantizeLinear(p, s, z) }"""
).replace("WEIGHTS", ", ".join(str(number * 37 % 255 - 127) for number in range(128)))


def test_a_quantised_network_gives_the_same_integers_as_a_project(tmp_path: Path) -> None:
    need("make", "cc")
    exported(INTEGERS, tmp_path / "m")
    assert "int8_t" in (tmp_path / "m" / "m_kernels.c").read_text(encoding="utf-8")
    ran("make", "-C", tmp_path / "m", "check", f"CFLAGS={SANITIZED}")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["int8_digits", "int8_tiny_resnet8"])
def test_a_whole_quantised_network_runs_as_a_project_with_threads(tmp_path: Path, name: str) -> None:
    need("make", "cc")
    graft.compile(model(name), ["c_source"], threads=1).export_c_project(tmp_path / "m", threads=2)
    ran("make", "-C", tmp_path / "m", "check", "CFLAGS=-O1 -march=native")


@pytest.mark.parametrize(
    ("target", "flags", "said"),
    [
        (
            "generic",
            "-std=c99",
            "kernels need C11 (_Alignas, _Static_assert): compile with -std=c11, with GCC 4.9, Clang 3.6 or newer",
        ),
        (
            "x86-64-v2",
            "-std=c11 -U__GNUC__ -D__GNUC__=11",
            "vectors need GCC 12 (__builtin_shufflevector) or Clang: export with --target generic",
        ),
        (
            "generic",
            "-std=c11 -Wno-builtin-macro-redefined -D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__",
            "weights have their lowest byte first: compile for a little-endian processor",
        ),
    ],
)
def test_a_compiler_that_will_not_do_is_told_what_it_lacks(tmp_path: Path, target: str, flags: str, said: str) -> None:
    need("gcc")
    exported(FIRST, tmp_path / "m", target)
    command = ["gcc", *flags.split(), f"-I{tmp_path / 'm'}", "-c", tmp_path / "m" / "m_kernels.c", "-o", tmp_path / "o"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert f'#error "{said}"' in done.stderr


WEIGHTED = TEXT + "(float[2,8] x) => (float[2,6] y) <float[8,6] w = {WEIGHTS}> { y = MatMul(x, w) }".replace(
    "WEIGHTS", ", ".join(str(number / 7) for number in range(48))
)
INSTANCES = """
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "m.h"
static _Alignas(64) unsigned char arenas[2][M_ARENA_BYTES + 1];
static float results[2][12];
static void *work(void *own) {
  const int number = *(const int *)own;
  float x[16];
  for (int i = 0; i < 16; i++) x[i] = (float)(i + number);
  for (int i = 0; i < 500; i++)
    if (m_run_in(arenas[number], x, results[number]) != M_OK) return own;
  return NULL;
}
int main(void) {
  pthread_t threads[2];
  int numbers[2] = {0, 1}, failed = 0;
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, &numbers[i]);
  for (int i = 0; i < 2; i++) {
    void *wrong;
    pthread_join(threads[i], &wrong);
    failed |= wrong != NULL;
  }
  for (int i = 0; i < 24; i++) printf("%.9g ", (double)results[i / 12][i % 12]);
  for (int i = -1; i < 7; i++) puts(m_error_text(i));
  return failed;
}
"""


def test_instances_compute_at_the_same_time_and_errors_have_texts(tmp_path: Path) -> None:
    need("make", "cc")
    exported(WEIGHTED, tmp_path / "m")
    (tmp_path / "m" / "main.c").write_text(INSTANCES, encoding="utf-8")
    flags = ["CFLAGS=-g -O1 -fsanitize=thread", "LDFLAGS=-pthread"]
    ran("make", "-C", tmp_path / "m", *flags, "build/m_test")
    said = ran(tmp_path / "m" / "build" / "m_test")
    weights = (np.arange(48) / 7).reshape(8, 6)
    wanted = [(np.arange(16) + number).reshape(2, 8) @ weights for number in (0, 1)]
    np.testing.assert_allclose([float(one) for one in said.split()[:24]], np.ravel(wanted), rtol=1e-5)
    other = "an error of a driver, or of a vendor's function"
    assert said.partition(other)[2].split("\n")[1:-1] == [
        "no error", "more slices than the caller has room for, or no scratch memory", other, other,
        "a dimension is out of its range, or dimensions contradict each other", "a kernel met what it cannot compute",
        other,
    ]  # fmt: skip


@pytest.mark.parametrize(("limit", "section"), [(1 << 20, "'\".model\"'"), (1, ".model")])
def test_weights_lie_in_a_section_of_the_users_name(
    tmp_path: Path, limit: int, section: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("make", "cc", "readelf")
    monkeypatch.setattr("graft.runtime.export.c_project.BLOB_BYTES", limit)
    exported(WEIGHTED, tmp_path / "m")
    ran("make", "-C", tmp_path / "m", "check", f"CFLAGS=-O1 -DM_WEIGHTS_SECTION={section}")
    listed = ran("readelf", "-SW", tmp_path / "m" / "build" / "m_weights.o")
    found = re.search(r" \.model +PROGBITS +0+ [0-9a-f]+ ([0-9a-f]+)", listed)
    assert found is not None and int(found[1], 16) >= 4 * 48, listed


def test_a_project_is_linked_statically_and_at_any_address(tmp_path: Path) -> None:
    need("make", "cc")
    exported(WEIGHTED, tmp_path / "m", threads=2)
    for flags in (["CFLAGS=-O1", "LDFLAGS=-static"], ["CFLAGS=-O1 -fPIC", "LDFLAGS=-pie"]):
        ran("make", "-C", tmp_path / "m", "clean", "check", *flags)
    objects = [*(tmp_path / "m" / "build").glob("m*.o")]
    ran("cc", "-shared", "-Wl,-z,text,-z,defs", *objects, "-pthread", "-lm", "-o", tmp_path / "m.so")


@pytest.mark.parametrize(
    ("format", "accumulate"),
    [
        ("posit]8", "quire"),
        ("posit]16", "each"),
        ("fixed]16", "each"),
        ("float8e4m3fn]8", "float32"),
        ("lns]16", "each"),
    ],
)
def test_a_number_format_is_c_without_a_warning(format: str, accumulate: str, tmp_path: Path) -> None:
    """Weights are declared as the kernels take them: pointers to other types are errors of GCC 14."""
    need("cc", "make")
    weight = ", ".join(str(number / 7) for number in range(48))
    text = TEXT + f"(float[2,8] x) => (float[2,6] y) <float[8,6] w = {{{weight}}}> {{ h = MatMul(x, w) y = Relu(h) }}"
    converted = graft.datatypes.convert(onnx.parser.parse_model(text), f"custom[{format}", accumulate=accumulate)
    graft.compile(converted, ["c_source"], target="generic", threads=1).export_c_project(tmp_path / "m")
    ran("make", "-C", tmp_path / "m", "check", f"CFLAGS={SANITIZED}", "LDFLAGS=-fsanitize=address,undefined")
