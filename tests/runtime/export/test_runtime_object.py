"""The runtime as a library for C: what its folder has builds programs, by pkg-config's and CMake's files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import onnx.parser
import pytest

import graft
from graft.errors import ArtifactError
from graft.runtime import library_dir

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
