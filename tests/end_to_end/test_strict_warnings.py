"""C projects under the strictest warnings of the compilers that are here, for every kind of target."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

import graft
from benchmarks.zoo import NAMES, TINY
from benchmarks.zoo import model as zoo_model
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.plugins.c_source.backend import CBackend
from graft.report.sign_off import DEVIATIONS
from graft.runtime.dtypes import numpy_dtype
from graft.runtime.export.c_check import Recorded
from graft.runtime.export.c_project import Profile, export_c_project
from graft.runtime.procedure import ProgramDescription
from tests.end_to_end.review import faults
from tests.plugins.c_source.reduced_models import reduced
from tests.runtime.export.test_c_control import CHOICE, GROWS, NESTED, SCAN, TEXT

STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Wcast-qual", "-Werror"]
CORTEX_M = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
RV32 = ("-march=rv32imafc", "-mabi=ilp32f")
GCC = ("gcc", "gcc-7", "gcc-11", "gcc-13")
CLANG = ("clang", "clang-13", "clang-14", "clang-15", "clang-16", "clang-19", "clang-22")
HOSTED = (*GCC, *CLANG)
COMPILERS = (
    *((compiler, "generic", ()) for compiler in HOSTED),
    *((compiler, target, ()) for target in ("x86-64-v4", "native") for compiler in HOSTED
      if compiler not in ("gcc-7", "gcc-11")),  # vectors need GCC 12
    ("aarch64-linux-gnu-gcc", "armv8-a", ()), ("arm-none-eabi-gcc", "thumbv7em", CORTEX_M),
    ("arm-none-eabi-gcc-13", "thumbv7em", CORTEX_M),
    ("riscv64-unknown-elf-gcc", "generic", (*RV32, "-specs=picolibc.specs")),
    *((compiler, target, flags) for compiler in CLANG for target, flags in (
        ("armv8-a", ("--target=aarch64-linux-gnu",)),
        ("thumbv7em", ("--target=arm-none-eabi", *CORTEX_M, "-isystem/usr/lib/arm-none-eabi/include")),
        ("generic", ("--target=riscv32-unknown-elf", *RV32,
                     "-isystem/usr/lib/picolibc/riscv64-unknown-elf/include")))),
)  # fmt: skip
"""Compilers, the target that they get the text of, and their flags for that."""
FLASH = 16 << 20
"""Bytes of weights from which a project has them in a file: as numbers in C they would take minutes to write."""
NAMED = """(float[3] shadow_run_in, float[3] shadow_relu, float[3] INT8_MAX, float[3] memmove, float[3] I,
            float[0,3] none, float[2,9,4] typeid, int64[3] unread) => (float[3] shadow, float[3] int64_t, float[3] NAN,
            float[3] same, float[3] compl, float[0,3] nothing, float[2,9,4] q) <float h = {0.5}> {
  shadow = Relu(shadow_run_in) int64_t = Add(shadow_relu, INT8_MAX) NAN = Exp(memmove) same = Identity(shadow)
  compl = Mul(I, NAN) nothing = Neg(none) k = Transpose <perm = [0, 2, 1]> (typeid) s = MatMul(typeid, k)
  u = Mul(s, h) p = Softmax(u) q = MatMul(p, typeid) }"""
"""What else means something in C, and what no kernel uses: inputs, tensors without elements, sums of one block."""
TEXTS = {"choice": CHOICE, "nested": NESTED, "grows": GROWS, "shadow": NAMED,
         "scan": SCAN.replace("float[6,4] back) {", "float[6,4] back) <int64[1] axis = {0}> {")}  # fmt: skip
SAMPLE = ("digits", "nested", "scan", "shadow")
MODELS = ("int8_digits", "choice", "grows", *TINY, *(f"int8_{one}" for one in TINY), *NAMES)


def network(name: str) -> ir.Model:
    if name in TEXTS:
        return graft.load(onnx.parser.parse_model(TEXT + TEXTS[name]))
    if name.startswith("int8_"):
        pytest.importorskip("onnxruntime")
    return (reduced(name) if name in NAMES else zoo_model(name)).clone()


def description(name: str, target: str, **options: bool) -> ProgramDescription:
    dims = {"n": (1, 5)} if name in ("choice", "nested") else None
    backend = CBackend(compiles=False, **options)
    threads = 2 if target == "generic" and "digits" in name else 1
    request = Request([backend], threads=threads, target=target, strict=True, dims=dims, memory="maximum")
    return compile_model(network(name), request).description


def written(name: str, target: str, folder: Path, **options: bool) -> Path:
    """Write a project whose check compares with zeros."""
    made = description(name, target, **options)
    entry = made.procedures[0]

    def zeros(index: int) -> np.ndarray:
        tensor = entry.tensors[index]
        return np.zeros([one if isinstance(one, int) else 2 for one in tensor.shape or ()], numpy_dtype(tensor.dtype))

    recorded = Recorded(list(map(zeros, entry.inputs)), list(map(zeros, entry.outputs)))
    is_small = sum(array.nbytes for array in made.constants.values()) < FLASH
    profile: Profile = "bare-metal" if target == "thumbv7em" and is_small else "hosted"
    export_c_project(made, folder, recorded, name=name.removeprefix("light_"), profile=profile)
    return folder


@cache
def works(compiler: str, flags: tuple[str, ...]) -> bool:
    """Whether a compiler is here, and the headers of its target."""
    if shutil.which(compiler) is None:
        return False
    command = [compiler, *flags, "-fsyntax-only", "-xc", "-"]
    text = "#include <stdint.h>\n#include <stdio.h>\n#include <string.h>\n"
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60).returncode == 0


def compilers() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    return ((compiler, target, flags) for compiler, target, flags in COMPILERS if works(compiler, flags))


def warnings_of(project: Path, compiler: str, flags: tuple[str, ...]) -> str:
    """Return what a compiler says of a project, but for its weights, with the flags of its Makefile."""
    needed = re.search(r"^NEEDED := (.*)$", (project / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert needed is not None
    sources = [one for one in sorted(project.glob("*.c")) if not one.name.endswith("_weights.c")]
    hosted = [one for one in sources if "-march=rv32" not in " ".join(flags) or "_threads" not in one.name]
    command = [compiler, *STRICT, *needed[1].split(), *flags, f"-I{project}", "-fsyntax-only", *map(str, hosted)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600).stderr


def check(name: str, folder: Path) -> None:
    found = list(compilers())
    if not found:
        pytest.skip("no C compiler is installed")
    for target in dict.fromkeys(target for _, target, _ in found):
        project = written(name, target, folder / target)
        for source in [*project.glob("*.[ch]"), *project.glob("graft/*.h")]:
            found = [] if source.name.endswith("_weights.c") else faults(source.read_text(encoding="utf-8"))
            assert not found, (source, found[:3])
        for compiler, meant, flags in found:
            if meant == target:
                assert warnings_of(project, compiler, flags) == "", (name, compiler, target)


def test_a_reviewer_finds_what_is_wrong_and_nothing_else() -> None:
    """C as it should be, with casts, calls, and what rounds otherwise; then each fault in it."""
    good = """/* ((a)) t1 */
int f(const float *restrict input, float *relu_2) {
  const int64_t y = (int64_t)(x + 1) * 2 + (a - b) - (c - d), z = (a / b) * c, big = INT64_C(4294967296);
  if ((a & 1) == 0 && (b < c) == d) return -(a + b);
  relu_2[(y + 1) * 4] = max(a, (b + c) * 2) / (z * y) + (float)input[0];
  return a < b ? (int)(c) : 0x7fffffff;
}
"""
    assert faults(good) == []
    wrong = {
        "x = (a * b) + c;": "x = ( a * b ) + c", "return (a + b);": "return ( a + b ) ;",
        "x = a + (b);": "= a + ( b ) ;", "y[(i * 4)] = 0;": "y [ ( i * 4 ) ] =",
        "x = 2147483648;": "out of range: 2147483648", "float *t12;": "tensor without a name: t12",
        "\n#define fmaxf(a, b) 1\n": "of libm: fmaxf", "\n#define M_LEAST -3\n": "without parentheses: M_LEAST -3",
        "\n\nint x;": "empty lines", f"/* {'wide' * 30} */": "wide: ",
    }  # fmt: skip
    for text, said in wrong.items():
        (found,) = faults(f"{good};\n{text}")
        assert said in found


@pytest.mark.parametrize("name", SAMPLE)
def test_no_compiler_warns_of_a_project(tmp_path: Path, name: str) -> None:
    check(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_no_compiler_warns_of_any_model(tmp_path: Path, name: str) -> None:
    check(name, tmp_path)


@pytest.mark.parametrize("name", ["digits", "nested"])
def test_no_compiler_warns_where_indices_have_32_bits(tmp_path: Path, name: str) -> None:
    project = written(name, "generic", tmp_path / "m", narrow_indices=True)
    assert "int32_t" in (project / f"{name}_kernels.c").read_text(encoding="utf-8")
    for compiler, target, flags in compilers():
        if target == "generic":
            assert warnings_of(project, compiler, flags) == "", compiler


def test_an_optimising_compiler_finds_nothing_that_may_be_uninitialized(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    for name in SAMPLE:
        project = written(name, "generic", tmp_path / name)
        command = ["make", "-s", "-C", project, "all", "CC=gcc", f"CFLAGS=-O2 {' '.join(STRICT)}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert (done.returncode, done.stderr) == (0, "")


ADVISORY = frozenset({
    "1.2", "2.3", "2.4", "2.5", "2.6", "2.7", "4.2", "5.9", "8.7", "8.9", "8.11", "8.13",
    "10.5", "11.4", "11.5", "12.1", "12.3", "12.4", "13.3", "13.4", "15.1", "15.4", "15.5", "17.5",
    "17.8", "18.4", "18.5", "19.2", "20.1", "20.5", "20.10", "21.12",
})  # fmt: skip
"""The rules of MISRA C:2012 that are advice."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "int8_digits", "nested", "choice", "grows", "scan"])
def test_a_project_keeps_the_required_rules_of_misra_but_for_a_table(tmp_path: Path, name: str) -> None:
    if shutil.which("cppcheck") is None:
        pytest.skip("cppcheck is not installed")
    project = written(name, "generic", tmp_path / "m")
    command = ["cppcheck", "--addon=misra", "--std=c11", "--platform=unix64", "--enable=style", "-q", "-DGRAFT_PROJECT"]
    files = [f"-I{project}", project / f"{name}.c", project / f"{name}_kernels.c"]
    said = subprocess.run([*command, *files], capture_output=True, text=True, timeout=900).stderr
    broken = set(re.findall(r"misra-c2012-([0-9.]+)\]", said)) - ADVISORY
    assert broken <= {rule for rule, _, _ in DEVIATIONS}
