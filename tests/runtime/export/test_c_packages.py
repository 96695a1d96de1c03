"""Projects as a library of Arduino and as a module of Zephyr: what their builds do with the folder, done here."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.runtime.export.test_c_project import DENSE, compiled

ARDUINO = """#include <stdio.h>
struct { void begin(long) {} void println(const char *text) { puts(text); } } Serial;
"""
ZEPHYR = """cmake_minimum_required(VERSION 3.13)
project(application C)
function(zephyr_include_directories folder)
  include_directories(${CMAKE_CURRENT_SOURCE_DIR}/${folder})
endfunction()
macro(zephyr_library_named name)
  add_library(${name} STATIC)
  set(current ${name})
endmacro()
macro(zephyr_library_sources)
  target_sources(${current} PRIVATE ${ARGN})
endmacro()
macro(zephyr_library_compile_options)
  target_compile_options(${current} PRIVATE ${ARGN})
endmacro()
macro(zephyr_library_compile_definitions_ifdef option definition)
  if(${option})
    target_compile_definitions(${current} PRIVATE ${definition})
  endif()
endmacro()
add_subdirectory(module/zephyr)
"""


def ran(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needs(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def built_as_arduino_does(folder: Path, build: Path, compilers: tuple[str, str], flags: tuple[str, ...]) -> list[Path]:
    """Compile all of src, and the sketch behind the header that every sketch has."""
    build.mkdir()
    (build / "Arduino.h").write_text(ARDUINO, encoding="utf-8")
    (sketch,) = (folder / "examples").rglob("*.ino")
    assert sketch.stem == sketch.parent.name  # else it is no sketch
    (build / "sketch.cpp").write_text(f"#include <Arduino.h>\n{sketch.read_text(encoding='utf-8')}", encoding="utf-8")
    sources, objects = [*sorted((folder / "src").rglob("*.c")), build / "sketch.cpp"], []
    for source in sources:
        objects.append(build / f"{source.stem}.o")
        compiler = compilers[source.suffix == ".cpp"]
        standard = "-std=gnu++17" if source.suffix == ".cpp" else "-std=gnu11"
        ran(compiler, standard, *flags, f"-I{folder / 'src'}", f"-I{build}", "-c", source, "-o", objects[-1])
    return objects


def test_arduino_builds_the_library_and_its_example_runs(tmp_path: Path) -> None:
    needs("cc", "c++")
    compiled(DENSE).export_c_project(tmp_path / "net", profile="arduino")
    objects = built_as_arduino_does(tmp_path / "net", tmp_path / "build", ("cc", "c++"), ("-Os", "-Wall", "-Werror"))
    (tmp_path / "main.cpp").write_text("void setup();\nint main() { setup(); }\n", encoding="utf-8")
    ran("c++", tmp_path / "main.cpp", *objects, "-lm", "-o", tmp_path / "main")
    assert ran(tmp_path / "main") == "as recorded\n"


def test_a_board_of_arduino_compiles_the_library(tmp_path: Path) -> None:
    needs("arm-none-eabi-gcc", "arm-none-eabi-g++")
    compiled(DENSE).export_c_project(tmp_path / "net", profile="arduino")
    compilers, board = ("arm-none-eabi-gcc", "arm-none-eabi-g++"), ("-Os", "-mcpu=cortex-m4", "-mthumb")
    assert len(built_as_arduino_does(tmp_path / "net", tmp_path / "build", compilers, board)) >= 4


def test_a_library_of_arduino_says_what_arduino_asks(tmp_path: Path) -> None:
    compiled(DENSE).export_c_project(tmp_path / "net", profile="arduino")
    lines = (tmp_path / "net" / "library.properties").read_text(encoding="utf-8").splitlines()
    said = dict(line.split("=", 1) for line in lines)
    assert {
        "name",
        "version",
        "author",
        "maintainer",
        "sentence",
        "paragraph",
        "category",
        "architectures",
    } <= said.keys()
    assert (said["name"], said["includes"], said["category"]) == ("net", "net.h", "Data Processing")
    assert re.fullmatch(r"\d+\.\d+\.\d+", said["version"])
    assert not list((tmp_path / "net").glob("*.c")) and not (tmp_path / "net" / "src" / "main.c").exists()


@pytest.mark.parametrize("options", [(), ("-DCONFIG_NET_NO_ARENA=y",)])
def test_zephyr_builds_the_module_where_it_is_configured(tmp_path: Path, options: tuple[str, ...]) -> None:
    needs("cmake", "cc", "nm")
    compiled(DENSE).export_c_project(tmp_path / "module", profile="zephyr", name="net")
    (tmp_path / "CMakeLists.txt").write_text(ZEPHYR, encoding="utf-8")
    ran("cmake", "-S", tmp_path, "-B", tmp_path / "none")
    ran("cmake", "--build", tmp_path / "none")
    assert not list((tmp_path / "none").rglob("libnet.a"))
    ran("cmake", "-S", tmp_path, "-B", tmp_path / "build", "-DCONFIG_NET=y", *options)
    ran("cmake", "--build", tmp_path / "build")
    (library,) = (tmp_path / "build").rglob("libnet.a")
    names = ran("nm", "-g", "--defined-only", library).split()
    assert "net_run_in" in names and ("net_run" in names) == (not options)


def test_the_options_of_the_module_are_those_that_it_reads(tmp_path: Path) -> None:
    compiled(DENSE).export_c_project(tmp_path / "module", profile="zephyr", name="net")
    folder = tmp_path / "module" / "zephyr"
    options = set(re.findall(r"^config (\w+)$", (folder / "Kconfig").read_text(encoding="utf-8"), re.MULTILINE))
    read = set(re.findall(r"CONFIG_(\w+)", (folder / "CMakeLists.txt").read_text(encoding="utf-8")))
    assert options == read == {"NET", "NET_NO_ARENA"}
    module = (folder / "module.yml").read_text(encoding="utf-8")
    assert module == "name: net\nbuild:\n  cmake: zephyr\n  kconfig: zephyr/Kconfig\n"
