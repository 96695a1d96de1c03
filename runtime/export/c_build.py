"""What builds a C project: a Makefile and a CMakeLists.txt, and the files that Arduino and Zephyr ask for."""

from __future__ import annotations

import platform as host_platform
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graft.runtime.system.c_compiler import c_compiler

TAKEN = frozenset(
    ["all", "ALL_BUILD", "clean", "edit_cache", "help", "install", "package", "rebuild_cache", "RUN_TESTS", "test"]
)
"""Names that CMake gives to targets of its own."""
FLAGS = (
    "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-ffunction-sections", "-fdata-sections",
    "-Wno-psabi",
)  # fmt: skip
"""What kernels are written for: every operation is rounded where it stands, and nothing sets errno. Of what GCC says of
vectors that are passed to functions, which are all inline, a pragma in the header does not reach its notes."""
_ARM = {
    "neon": ("", "__ARM_NEON"), "dotprod": ("+dotprod", "__ARM_FEATURE_DOTPROD"),
    "fullfp16": ("+fp16", "__ARM_FEATURE_FP16_VECTOR_ARITHMETIC"), "i8mm": ("+i8mm", "__ARM_FEATURE_MATMUL_INT8"),
    "bf16": ("+bf16", "__ARM_FEATURE_BF16"), "sve": ("+sve", "__ARM_FEATURE_SVE"),
    "sve2": ("+sve2", "__ARM_FEATURE_SVE2"),
}  # fmt: skip
"""By the names of features, the flags of compilers for 64-bit ARM, and the macro that they define then."""

BOARD_COMPILERS = {
    "thumb": "arm-none-eabi-gcc -O3 -fno-schedule-insns --param=max-completely-peeled-insns=70 "
    "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16",
    "aarch64": "aarch64-linux-gnu-gcc -O3", "riscv64": "riscv64-linux-gnu-gcc -O3",
}  # fmt: skip
"""What compiles a project for another architecture, by the usual names."""


def compiler_for(targets: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    """Return the usual compiler for a target; raise CompileError where there is none for this machine."""
    arches = {str(target.get("arch")) for target in targets} & BOARD_COMPILERS.keys()
    for arch in arches - {host_platform.machine()}:
        return shlex.split(BOARD_COMPILERS[arch])
    return (*c_compiler(), "-O3")


def target_flags(targets: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the flags of a compiler for the processor that kernels are written for."""
    flags: list[str] = []
    for target in targets:
        features = sorted(map(str, target.get("features", ())))
        if target.get("arch") == "x86_64":
            flags += [f"-m{feature}" for feature in features]
        elif target.get("arch") == "aarch64":
            flags.append("-march=armv8-a" + "".join(_ARM[one][0] for one in features if one in _ARM))
        elif target.get("arch") == "riscv64" and "v" in features:
            flags.append("-march=rv64gcv")
    return tuple(flags)


def target_check(name: str, targets: Sequence[Mapping[str, Any]]) -> str:
    """Return the lines of C that refuse a compiler which was not told so, "" where nothing has to be told."""
    macros = [macro for target in targets for macro in _macros(target)]
    if not macros:
        return ""
    condition = " || ".join(f"!defined({macro})" for macro in macros)
    flags = " ".join(target_flags(targets))
    return f"""#if {condition}
#error "the kernels of {name} are written for a processor with more than this compiler was told of: say {flags}"
#endif
"""


def _macros(target: Mapping[str, Any]) -> Iterator[str]:
    for feature in sorted(map(str, target.get("features", ()))):
        if target.get("arch") == "x86_64":
            yield f"__{feature.upper().replace('.', '_')}__"
        elif target.get("arch") == "aarch64" and feature in _ARM:
            yield _ARM[feature][1]
        elif target.get("arch") == "riscv64" and feature == "v":
            yield "__riscv_vector"


def makefile_text(
    name: str, sources: Sequence[str], libraries: Sequence[str], sizes: str, flags: Sequence[str] = ()
) -> str:
    """Return a Makefile for a library of ``sources`` and its check; ``flags`` are the compiler's for the processor."""
    threads = " -pthread" if f"{name}_threads.c" in sources else ""
    objects = " ".join(f"$(BUILD)/{source.rpartition('.')[0]}.o" for source in sources)
    return f"""# `make` builds $(BUILD)/lib{name}.a, `make check` runs the model on a recorded input.
# For another machine: make CC=arm-none-eabi-gcc AR=arm-none-eabi-ar CFLAGS="-O3 -mcpu=cortex-m4"
CC ?= cc
AR ?= ar
CFLAGS ?= -O3
BUILD ?= build
NEEDED := -std=c11 {" ".join([*FLAGS, *flags])}{threads} -I.
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


def cmake_text(name: str, sources: Sequence[str], libraries: Sequence[str], flags: Sequence[str] = ()) -> str:
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
target_compile_options({target} PRIVATE $<$<COMPILE_LANGUAGE:C>:{";".join([*FLAGS, *flags])}>)
target_link_libraries({target} PUBLIC {linked})
{blob if has_blob else ""}
enable_testing()
add_executable({name}_test main.c {name}_check.c)
target_link_libraries({name}_test PRIVATE {target})
add_test(NAME {name} COMMAND {name}_test)
"""


def arduino_files(name: str) -> dict[str, str]:
    """Return the files that make a library of Arduino of a folder whose sources are in ``src``."""
    return {
        "library.properties": f"""name={name}
version=1.0.0
author=Graft
maintainer=Graft
sentence=The model {name}, as C.
paragraph=Written by Graft: one function, no heap, no runtime.
category=Data Processing
architectures=*
includes={name}.h
""",
        f"examples/{name}_check/{name}_check.ino": f"""/* Runs {name} on a recorded input and says how it went. */
#include <{name}.h>
#include <{name}_check.h>

void setup() {{
  Serial.begin(115200);
  const long wrong = {name}_check();
  Serial.println(wrong == 0 ? "as recorded" : wrong < 0 ? "an error" : "other outputs than recorded");
}}

void loop() {{}}
""",
    }


def zephyr_files(name: str, sources: Sequence[str], flags: Sequence[str] = ()) -> dict[str, str]:
    """Return the files that make a module of Zephyr of a folder with these sources, for ``ZEPHYR_EXTRA_MODULES``."""
    option, given = name.upper(), "".join(f"\n  ../{source}" for source in sources)
    return {
        "zephyr/module.yml": f"""name: {name}
build:
  cmake: zephyr
  kconfig: zephyr/Kconfig
""",
        "zephyr/Kconfig": f"""config {option}
\tbool "The model {name}"
\thelp
\t  {name}.h, written by Graft: one function, no heap, no runtime.

config {option}_NO_ARENA
\tbool "Leave out {name}_run and its arena"
\tdepends on {option}
\thelp
\t  The application gives {name}_run_in an arena of its own.
""",
        "zephyr/CMakeLists.txt": f"""if(CONFIG_{option})
  zephyr_include_directories(..)
  zephyr_library_named({name})
  zephyr_library_sources({given}
  )
  zephyr_library_compile_options(-std=c11 {" ".join([*FLAGS, *flags])})
  zephyr_library_compile_definitions_ifdef(CONFIG_{option}_NO_ARENA {option}_NO_ARENA)
endif()
""",
    }
