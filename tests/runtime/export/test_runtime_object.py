"""The runtime as a library for C: what its folder has builds programs, by pkg-config's and CMake's files."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import onnx.parser
import pytest

import graft
from graft.errors import ArtifactError
from graft.runtime import library_dir

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"
TEXT = '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x, float[3] z) => (float[3] y) { y = Add(x, z) }'
MAIN = """
#include <stdio.h>
#include "graft/runtime.h"
int main(int count, char **arguments) {
  GraftProgram *program;
  GraftError error = {0};
  if (count != 2 || graft_program_load(arguments[1], NULL, &program, &error)) return printf("%s\\n", error.message);
  printf("%d %d %d %s\\n", graft_program_input_index(program, "z"), graft_program_output_index(program, "y"),
         graft_program_input_index(program, "y"), graft_code_text(GRAFT_ERROR_DEADLINE));
  graft_program_destroy(program);
  return 0;
}
"""
SAID = "1 0 -1 the run was not done in its time\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("cc is not installed")
    graft.compile(onnx.parser.parse_model(TEXT), ["llvm"]).save(tmp_path / "m.graft")
    (tmp_path / "main.c").write_text(MAIN)
    return tmp_path / "main.c"


def ran(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_flags_of_pkg_config_build_a_program(source: Path) -> None:
    rows = (Path(library_dir()) / "graft.pc").read_text().splitlines()
    flags = {key: value.split() for key, _, value in (row.partition(": ") for row in rows)}
    ran("cc", "-Wall", "-Werror", source, *flags["Cflags"], *flags["Libs"], "-o", source.with_name("main"))
    assert ran(source.with_name("main"), source.with_name("m.graft")) == SAID


def test_cmake_finds_the_package(source: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    source.with_name("CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(p C)\nfind_package(graft REQUIRED)\n"
        "add_executable(main main.c)\ntarget_link_libraries(main graft::runtime)\n"
    )
    built = source.with_name("built")
    ran("cmake", "-S", source.parent, "-B", built, f"-Dgraft_DIR={library_dir()}")
    ran("cmake", "--build", built)
    assert ran(built / "main", source.with_name("m.graft")) == SAID


def test_a_library_is_made_once(monkeypatch: pytest.MonkeyPatch, source: Path) -> None:
    first = library_dir()
    monkeypatch.setattr("graft.runtime.export.runtime_object.run_tool", pytest.fail)
    assert library_dir() == first


def test_a_user_without_a_cache_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graft.runtime.export.runtime_object.cache_directory", lambda: None)
    with pytest.raises(
        ArtifactError, match=r"^there is no cache directory for the library; set HOME or XDG_CACHE_HOME"
    ):
        library_dir()


WITHOUT_A_HEAP = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "graft/runtime.h"
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
static int closed;
static void look(void) { if (closed) abort(); }
void *malloc(size_t bytes) { look(); return __libc_malloc(bytes); }
void *calloc(size_t count, size_t bytes) { look(); return __libc_calloc(count, bytes); }
void *realloc(void *block, size_t bytes) { look(); return __libc_realloc(block, bytes); }
void *aligned_alloc(size_t alignment, size_t bytes) { look(); return __libc_memalign(alignment, bytes); }
static _Alignas(64) char room[1 << 24];
static size_t used, held;
static void *take(void *user, size_t bytes) {
  size_t rounded = (bytes + 63) / 64 * 64;
  (void)user;
  if (rounded > sizeof room - used) return NULL;
  used += rounded;
  ++held;
  return room + used - rounded;
}
static void give_back(void *user, void *block) { (void)user; (void)block; --held; }
int main(int count, char **arguments) {
  GraftAllocator allocator = {take, give_back, NULL};
  GraftLoadOptions options = {.size = sizeof options, .threads = 1, .allocator = &allocator};
  GraftProgram *program;
  GraftError error = {0};
  static float image[64];
  int64_t shape[] = {1, 1, 8, 8};
  DLTensor input = {image, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, shape, NULL, 0}, output = {0};
  int32_t status = GRAFT_OK;
  closed = count;
  for (int i = 0; i < 3 && !status; i++) {
    status = graft_program_load(arguments[1], &options, &program, &error);
    if (status) break;
    status = graft_program_run(program, &input, &output, &error);
    if (!status) graft_free_output(&output);
    graft_program_destroy(program);
  }
  closed = 0;
  return printf("%s%zu left, %s\\n", error.message, held, used ? "used" : "unused") < 0;
}
"""


@pytest.mark.parametrize("backend", ["llvm", "c_source"])
def test_a_program_is_loaded_and_run_without_the_heap(tmp_path: Path, backend: str) -> None:
    if shutil.which("cc") is None or platform.libc_ver()[0] != "glibc":
        pytest.skip("cc is not installed, or libc is not glibc, whose functions this replaces")
    graft.compile(DIGITS, [backend]).save(tmp_path / "m.graft")
    (tmp_path / "main.c").write_text(WITHOUT_A_HEAP)
    include, library = graft.runtime.include_dir(), Path(library_dir()) / "libgraft_runtime.a"
    ran("cc", "-O1", f"-I{include}", tmp_path / "main.c", library, "-lm", "-ldl", "-pthread", "-o", tmp_path / "main")
    assert ran(tmp_path / "main", tmp_path / "m.graft") == "0 left, used\n"
