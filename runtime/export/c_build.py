"""What builds a C project: a Makefile and a CMakeLists.txt."""

from __future__ import annotations

from collections.abc import Sequence

TAKEN = frozenset(
    ["all", "ALL_BUILD", "clean", "edit_cache", "help", "install", "package", "rebuild_cache", "RUN_TESTS", "test"]
)
"""Names that CMake gives to targets of its own."""
FLAGS = ("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-ffunction-sections", "-fdata-sections")
"""What kernels are written for: every operation is rounded where it stands, and nothing sets errno."""


def makefile_text(name: str, sources: Sequence[str], libraries: Sequence[str], sizes: str) -> str:
    """Return a Makefile for a static library of ``sources`` and its check."""
    threads = " -pthread" if f"{name}_threads.c" in sources else ""
    objects = " ".join(f"$(BUILD)/{source.rpartition('.')[0]}.o" for source in sources)
    return f"""# `make` builds $(BUILD)/lib{name}.a, `make check` runs the model on a recorded input.
# For another machine: make CC=arm-none-eabi-gcc AR=arm-none-eabi-ar CFLAGS="-O3 -mcpu=cortex-m4"
CC ?= cc
AR ?= ar
CFLAGS ?= -O3
BUILD ?= build
NEEDED := -std=c11 {" ".join(FLAGS)}{threads} -I.
OBJECTS := {objects}

all: $(BUILD)/lib{name}.a
	@echo "{sizes}"

$(BUILD)/lib{name}.a: $(OBJECTS)
	$(AR) rcs $@ $(OBJECTS)

$(BUILD)/{name}_test: $(BUILD)/{name}_check.o $(BUILD)/main.o $(BUILD)/lib{name}.a
	$(CC) $(CFLAGS) $(LDFLAGS) $^ -o $@ -Wl,--gc-sections {" ".join([*libraries, "-lm"])}{threads}

$(BUILD)/%.o: %.c $(wildcard *.h graft/*.h) | $(BUILD)
	$(CC) $(NEEDED) $(CFLAGS) -c $< -o $@

$(BUILD)/%.o: %.S {name}_weights.bin | $(BUILD)
	$(CC) $(CFLAGS) -c $< -o $@

{name}_weights.bin:

$(BUILD):
	mkdir -p $@

check: $(BUILD)/{name}_test
	$(BUILD)/{name}_test

clean:
	rm -rf $(BUILD)

.PHONY: all check clean
"""


def cmake_text(name: str, sources: Sequence[str], libraries: Sequence[str]) -> str:
    """Return a CMakeLists.txt with the static library as a target, and its check as a test."""
    has_blob = any(source.endswith(".S") for source in sources)
    has_threads = f"{name}_threads.c" in sources
    linked = " ".join([*libraries, "-lm", *(["Threads::Threads"] if has_threads else [])])
    threads = "set(THREADS_PREFER_PTHREAD_FLAG ON)\nfind_package(Threads REQUIRED)\n" if has_threads else ""
    here = "${CMAKE_CURRENT_SOURCE_DIR}"
    blob = (
        f'set_source_files_properties({name}_weights.S PROPERTIES COMPILE_OPTIONS "-Wa,-I,{here}"\n'
        f'  OBJECT_DEPENDS "{here}/{name}_weights.bin")\n'
    )
    target = f"{name}_model" if name in TAKEN else name
    return f"""cmake_minimum_required(VERSION 3.13)
project({target} {"C ASM" if has_blob else "C"})
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
{threads}
add_library({target} STATIC {" ".join(sources)})
set_target_properties({target} PROPERTIES C_STANDARD 11 C_EXTENSIONS OFF)
target_include_directories({target} PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})
target_compile_options({target} PRIVATE $<$<COMPILE_LANGUAGE:C>:{";".join(FLAGS)}>)
target_link_libraries({target} PUBLIC {linked})
{blob if has_blob else ""}
enable_testing()
add_executable({name}_test main.c {name}_check.c)
target_link_libraries({name}_test PRIVATE {target})
add_test(NAME {name} COMMAND {name}_test)
"""
