"""The C text that a module keeps: for which nodes, in an artifact, from the cache, and in a project without Graft."""

from __future__ import annotations

import json
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import graft
from benchmarks.zoo import model as zoo_model
from graft.core.operators.definition import build as b
from graft.core.tensor_ir.ir import (
    Allocate,
    Binary,
    Block,
    Broadcast,
    Buffer,
    Expression,
    For,
    Function,
    Load,
    Ramp,
    Store,
    Variable,
)
from graft.errors import ArtifactError
from graft.plugins.c_source.functions import function_source
from graft.plugins.codegen.kernel_source import comment
from graft.runtime import artifact
from graft.runtime.c_source import PRELUDE, VARIES, CFunction, CSource, prelude
from graft.runtime.procedure import Module, ProgramDescription

TEXT = '<ir_version: 10, opset_import: ["" : 21]> g (float[4,8] x) => (float[4,8] z) { y = Relu(x) z = Tanh(y) }'
SYMBOLIC = '<ir_version: 10, opset_import: ["" : 21]> g (float[n,8] x) => (float[n,8] z) { y = Relu(x) z = Tanh(y) }'


def source_of(text: str, **options: bool) -> CSource:
    source = onnx.parser.parse_model(text)
    for node, name in zip(source.graph.node, ("first", "second"), strict=True):
        node.name = name
    program = graft.compile(source, ["c_source"], strict=True, **options)
    found = program.description.modules[0].source
    assert found is not None
    return found


def test_a_kernel_says_which_nodes_it_computes() -> None:
    assert "\n/* 'first', 'second' */\n" in source_of(TEXT, cache=False).text


def test_a_kernel_from_the_cache_has_its_own_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = source_of(TEXT)
    renamed = source_of(TEXT.replace("g (", "h ("))
    assert renamed == first, "nothing of the text depends on the cache"


def test_a_shape_that_varies_is_passed_behind_its_tensor() -> None:
    (function,) = source_of(SYMBOLIC, cache=False, without=["threads"]).functions.values()
    name = function.entry
    assert function.declaration == (
        f"void {name}(const float *x, const int64_t *x_shape, float *z, const int64_t *z_shape)"
    )
    assert function.shapes == (True, True)


def test_names_of_nodes_do_not_end_their_comment() -> None:
    assert comment(["a*/b", "c\nd"]) == "/* 'a* /b', 'c?d' */\n"


N = Variable("n")


@pytest.mark.parametrize(
    ("extent", "room", "scratch", "growing"),
    [
        (b.index(100_000), b.index(100_000), 400_000, ()),
        (N, N, 0, ((4, 0, 0),)),
        (N, b.add(N, 1), VARIES, ()),
    ],
)
def test_scratch_memory_is_counted(
    extent: Expression, room: Expression, scratch: int, growing: tuple[tuple[int, ...], ...]
) -> None:
    x, y = Buffer("x", "float32", (extent,)), Buffer("y", "float32", (extent,))
    i, part = Variable("i"), Buffer("part", "float32", (room,), memory="scratch")
    body = For(i, extent, "serial", Store(part, (i,), Load(x, (i,))))
    unread = function_source(Function("kernel", (x, y), 1, Allocate(part, body)))
    assert (unread.function.scratch, "part" in unread.text) == (0, False)
    body = Block((body, For(i, extent, "serial", Store(y, (i,), Load(part, (i,))))))
    made = function_source(Function("kernel", (x, y), 1, Allocate(part, body))).function
    assert (made.scratch, made.growing) == (scratch, growing)
    again = For(Variable("times"), b.index(2), "serial", Allocate(part, body))
    made = function_source(Function("kernel", (x, y), 1, again)).function
    assert made.scratch == (scratch or VARIES), "each round asks for memory that grows"


# ---- In an artifact ----


def saved(path: Path) -> ProgramDescription:
    description = graft.compile(onnx.parser.parse_model(TEXT), ["c_source"], cache=False, strict=True).description
    artifact.save(description, path)
    return description


def test_an_artifact_keeps_the_text(tmp_path: Path) -> None:
    description = saved(tmp_path / "model.graft")
    assert artifact.read(tmp_path / "model.graft").modules[0].source == description.modules[0].source
    with zipfile.ZipFile(tmp_path / "model.graft") as archive:
        assert "modules/0000.c" in archive.namelist()


def test_libraries_and_headers_are_kept(tmp_path: Path) -> None:
    function = CFunction("f", "GraftContext *context", (), ())
    source = CSource("text", {"f": function}, ("-lopenblas",), ("cblas.h",))
    artifact.save(ProgramDescription((), (Module("m", "native", ("f",), b"", source=source),), {}), tmp_path / "a")
    assert artifact.read(tmp_path / "a").modules[0].source == source


def test_a_text_of_other_functions_is_refused(tmp_path: Path) -> None:
    description = saved(tmp_path / "model.graft")
    wrong = replace(description.modules[0], source=CSource("", {}))
    artifact.save(replace(description, modules=(wrong,)), tmp_path / "model.graft")
    name = wrong.name
    with pytest.raises(ArtifactError) as caught:
        artifact.read(tmp_path / "model.graft")
    assert caught.value.message == (
        f"artifact '{tmp_path / 'model.graft'}' is damaged: its manifest lacks a field, or has one of another kind "
        f"(the C text of module '{name}' has other functions than the module); compile it again"
    )


def test_a_module_without_a_text_has_no_such_field(tmp_path: Path) -> None:
    program = graft.compile(onnx.parser.parse_model(TEXT), ["llvm"], strict=True)
    program.save(tmp_path / "model.graft")
    with zipfile.ZipFile(tmp_path / "model.graft") as archive:
        assert "source" not in json.loads(archive.read("manifest.json"))["modules"][0]


# ---- In a project ----

MAIN = """
#include <stdio.h>
#include "graft/kernel.h"
#include "kernels.c"
int main(void) {
  static float x[32], y[32];
  for (int i = 0; i < 32; ++i) x[i] = (float)(i - 16) / 16;
  KERNEL(x, y);
  for (int i = 0; i < 32; ++i) printf("%a\\n", (double)y[i]);
}
"""


def project(folder: Path, source: CSource) -> Path:
    (folder / "graft").mkdir()
    (folder / PRELUDE).write_text(prelude())
    (folder / "kernels.c").write_text(source.text)
    return folder


def test_a_project_compiles_the_same_text_and_computes_the_same(tmp_path: Path) -> None:
    source = source_of(TEXT, cache=False)
    (function,) = source.functions.values()
    (project(tmp_path, source) / "main.c").write_text(MAIN.replace("KERNEL", function.entry))
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-DGRAFT_PROJECT", f"-I{tmp_path}"]
    subprocess.run(["cc", *flags, "-o", tmp_path / "main", tmp_path / "main.c"], check=True)
    said = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    x = (np.arange(32, dtype=np.float32) - 16).reshape(4, 8) / 16
    np.testing.assert_allclose([float.fromhex(one) for one in said.split()], np.tanh(x.clip(0)).ravel(), rtol=1e-6)


def test_kernels_call_nothing_of_libc_or_libm(tmp_path: Path) -> None:
    source = graft.compile(zoo_model("digits").clone(), ["c_source"], strict=True).description.modules[0].source
    assert source is not None
    text = f'#include "{PRELUDE}"\n#include "kernels.c"\n'
    flags = ["-std=c11", "-O2", "-ffreestanding", "-fno-math-errno", "-DGRAFT_PROJECT", "-DGRAFT_KERNEL="]
    command = ["cc", *flags, f"-I{project(tmp_path, source)}", "-c", "-x", "c", "-", "-o", tmp_path / "kernels.o"]
    subprocess.run(command, input=text, text=True, check=True)
    said = subprocess.run(["nm", "-u", tmp_path / "kernels.o"], capture_output=True, text=True, check=True).stdout
    assert set(said.split()) - {"U"} <= {"memset", "memcpy"}, "what GCC asks of every environment"


def test_an_array_of_the_stack_is_no_shorter_than_a_vector_that_it_is_written_by() -> None:
    """GCC takes a masked vector of 32 bytes for one of other memory than an array of 5, and moves loads before it."""
    extent, lanes = b.index(5), Ramp(b.index(0), 1, 32)
    x, y = Buffer("x", "uint8", (extent,)), Buffer("y", "uint8", (extent,))
    part, mask = Buffer("part", "uint8", (extent,), memory="scratch"), Binary("lt", lanes, Broadcast(extent, 32))
    copies = [Store(to, (lanes,), Load(of, (lanes,), mask), mask) for to, of in ((part, x), (y, part))]
    function = Function("kernel", (x, y), 1, Allocate(part, Block(tuple(copies))))
    assert "_Alignas(64) uint8_t part[64];" in function_source(function, vectors=True).text


REMAINDERS = """
#include <stdio.h>
#include <string.h>
#include "graft/kernel.h"
int main(void) {
  uint64_t seed = 88172645463325252u, bits[2];
  for (int i = 0; i < 200000; ++i) {
    double x, y;
    for (int k = 0; k < 2; ++k) seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17, bits[k] = seed;
    if (i % 3 == 0) bits[1] = (bits[1] & ~((uint64_t)2047 << 52)) | (bits[0] & ((uint64_t)2047 << 52));
    if (i % 7 == 0) bits[0] &= ~((uint64_t)2047 << 52);
    if (i % 5 == 0) bits[1] &= ~((uint64_t)2047 << 52);
    memcpy(&x, bits, 8), memcpy(&y, bits + 1, 8);
    const double own = fmod_float64(x, y), wanted = fmod(x, y);
    if (memcmp(&own, &wanted, 8) != 0 && !(own != own && wanted != wanted)) printf("%a %a\\n", x, y);
  }
}
"""


def test_remainders_are_those_of_libm_for_subnormal_numbers_too(tmp_path: Path) -> None:
    (tmp_path / "graft").mkdir()
    (tmp_path / PRELUDE).write_text(prelude())
    (tmp_path / "main.c").write_text(REMAINDERS)
    command = [
        "cc",
        "-std=c11",
        "-O2",
        "-DGRAFT_PROJECT",
        f"-I{tmp_path}",
        "-o",
        tmp_path / "main",
        tmp_path / "main.c",
    ]
    subprocess.run([*command, "-lm"], check=True)
    assert subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout == ""
