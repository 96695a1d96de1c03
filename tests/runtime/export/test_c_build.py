"""Flags for a processor, and what builds a C project."""

from __future__ import annotations

from typing import Any

import pytest

from graft.runtime.export.c_build import TAKEN, cmake_text, makefile_text, target_check, target_flags

X86 = {"arch": "x86_64", "features": ["fma", "avx512f"]}
ARM = {"arch": "aarch64", "features": ["neon", "i8mm", "dotprod", "unheard"]}


@pytest.mark.parametrize(
    ("target", "flags", "macros"),
    [
        (X86, ("-mavx512f", "-mfma"), ("__AVX512F__", "__FMA__")),
        ({"arch": "x86_64", "features": ["sse4.2"]}, ("-msse4.2",), ("__SSE4_2__",)),
        (ARM, ("-march=armv8-a+dotprod+i8mm",), ("__ARM_FEATURE_DOTPROD", "__ARM_FEATURE_MATMUL_INT8", "__ARM_NEON")),
        ({"arch": "aarch64"}, ("-march=armv8-a",), ()),
        ({"arch": "riscv64", "features": ["v"]}, ("-march=rv64gcv",), ("__riscv_vector",)),
        ({"arch": "riscv64", "features": ["m"]}, (), ()),
        ({"arch": "wasm32", "features": ["simd128"]}, (), ()),
        ({}, (), ()),
    ],
)
def test_a_processor_has_flags_and_a_check_that_they_were_given(
    target: dict[str, Any], flags: tuple[str, ...], macros: tuple[str, ...]
) -> None:
    assert target_flags([target]) == flags
    check = target_check("net", [target])
    if not macros:
        assert check == ""
        return
    condition, error, end = check.splitlines()
    assert condition == "#if " + " || ".join(f"!defined({macro})" for macro in macros)
    assert error.startswith('#error "the kernels of net are written for a processor with more than this compiler was')
    assert error.endswith(f'told of: say {" ".join(flags)}"')
    assert end == "#endif"


def test_flags_of_several_processors_stand_one_after_another() -> None:
    assert target_flags([X86, {"arch": "riscv64", "features": ["v"]}]) == ("-mavx512f", "-mfma", "-march=rv64gcv")
    assert target_flags([]) == ()


def test_both_build_files_name_sources_libraries_and_flags() -> None:
    sources, libraries = ["net.c", "net_weights.c"], ["-lopenblas"]
    make = makefile_text("net", sources, libraries, "sizes", ["-mfma"])
    cmake = cmake_text("net", sources, libraries, ["-mfma"])
    assert "OBJECTS := $(BUILD)/net.o $(BUILD)/net_weights.o\n" in make
    assert "-lopenblas -lm\n" in make
    assert "-ffp-contract=off" in make
    assert "-mfma -I." in make
    assert '@echo "sizes"' in make
    assert "add_library(net STATIC net.c net_weights.c)" in cmake
    assert "target_link_libraries(net PUBLIC -lopenblas -lm)" in cmake
    assert ";-mfma>" in cmake
    assert "project(net C)" in cmake
    for text in (make, cmake):
        assert "hread" not in text


def test_threads_and_a_blob_bring_what_they_need() -> None:
    sources = ["net.c", "net_threads.c", "net_weights.S"]
    make, cmake = makefile_text("net", sources, [], ""), cmake_text("net", sources, [])
    assert make.count("-pthread") == 2
    assert "$(BUILD)/net_weights.o" in make
    assert "find_package(Threads REQUIRED)" in cmake
    assert "PUBLIC -lm Threads::Threads)" in cmake
    assert "project(net C ASM)" in cmake
    assert 'OBJECT_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/net_weights.bin"' in cmake


@pytest.mark.parametrize("name", sorted(TAKEN))
def test_a_name_that_cmake_takes_gets_another_target(name: str) -> None:
    text = cmake_text(name, [f"{name}.c"], [])
    assert f"add_library({name}_model STATIC {name}.c)" in text
    assert f"add_executable({name}_test main.c {name}_check.c)" in text
