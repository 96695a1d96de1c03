"""Kernels that differ in extents alone: one function, the same results; what may not be shared stays as it is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from graft.plugins.c_source.sharing import shared
from graft.plugins.codegen.kernel_source import KernelSource
from graft.runtime.c_source import CFunction, prelude

BODY = """  float sums[{k}];
  for (int64_t row = 0; row < {rows}; ++row) {{
    const int64_t first = row * {k};
    for (int64_t step = 0; step < {k}; ++step) {{
      sums[step] = x[first + step] * {scale}f;
      y[row * {k} + step] = first < {k2} ? sums[step] : 0.0f;
    }}
  }}
"""


def kernel(name: str, rows: int, k: int, scale: str = "2.0", body: str = BODY) -> KernelSource:
    parameters = f"const float *restrict {name}_x, float *restrict y"
    function = CFunction(name, parameters, (False,) * 2, (False,) * 2, needs_host=False)
    text = body.format(rows=rows, k=k, k2=2 * k, scale=scale).replace("x[", f"{name}_x[")
    return KernelSource(f"GRAFT_KERNEL {function.declaration} {{\n{text}}}\n", function)


def test_kernels_that_differ_in_extents_are_one_function_that_is_given_them(tmp_path: Path) -> None:
    apart = {one.function.entry: one for one in (kernel("one", 4, 8), kernel("two", 2, 16))}
    found = shared(apart)
    assert found["two"].text == "" and {one.function.entry for one in found.values()} == {"one"}
    text = found["one"].text
    assert "float *restrict y, int32_t extent1, int32_t extent2) {" in text and "float sums[16];" in text
    assert "first < 2 * extent2 ?" in text or "first < 2 * extent1 ?" in text

    def results(sources: dict[str, KernelSource], folder: Path) -> str:
        (folder / "graft").mkdir(parents=True)
        (folder / "graft" / "kernel.h").write_text(prelude())
        calls = "".join(
            f"  {one.function.entry}({', '.join(['x', 'y', *map(str, one.function.extents)])});\n"
            '  for (int i = 0; i < 32; ++i) printf("%a\\n", (double)y[i]);\n'
            for one in sources.values()
        )
        main = f"int main(void) {{\n  float x[32], y[32];\n  for (int i = 0; i < 32; ++i) x[i] = (float)i;\n{calls}}}\n"
        kernels = "".join(one.text for one in sources.values())
        (folder / "main.c").write_text(f'#include <stdio.h>\n#include "graft/kernel.h"\n{kernels}{main}')
        flags = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-DGRAFT_PROJECT", f"-I{folder}"]
        subprocess.run(["cc", *flags, "-o", folder / "main", folder / "main.c"], check=True)
        return subprocess.run([folder / "main"], capture_output=True, text=True, check=True).stdout

    assert results(found, tmp_path / "shared") == results(apart, tmp_path / "apart")


@pytest.mark.parametrize(
    "other",
    [
        kernel("two", 2, 16, scale="3.0"),
        kernel("two", 2, 16, body=BODY.replace("* {k};", "/ {k};")),
        kernel("two", 2, 16, body=BODY.replace("  float sums", "  static const float table[1] = {{1}};\n  float sums")),
        kernel("two", 2, 16, body=BODY.replace("? sums[step]", "? sums[step] + 3")),
    ],
    ids=["another number", "a divisor", "a table", "other terms"],
)
def test_kernels_that_differ_in_more_stay_apart(other: KernelSource) -> None:
    division = "/" in other.text
    first = kernel("one", 4, 8, body=BODY.replace("* {k};", "/ {k};") if division else BODY)
    apart = {"one": first, "two": other}
    assert shared(apart) == apart
