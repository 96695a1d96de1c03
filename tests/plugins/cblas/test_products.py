"""The CBLAS backend against the built-in compiler: products of every form that it takes, and those that it refuses."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graft
from graft.plugins.cblas.backend import CblasBackend
from graft.runtime.c_source import INCLUDE, PRELUDE
from graft.runtime.loaders import C_SOURCE
from tests.plugins.c_library import model

MISSING = CblasBackend().available()
needs_blas = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
RANDOM = np.random.default_rng(0)


def values(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(dtype)


def with_weights(body: str, x: str, y: str, weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    made = model(body, x, y)
    made.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    return made


def compiled(made: onnx.ModelProto, backend: str) -> graft.Program:
    program: graft.Program = graft.compile(made, [backend], strict=True, cache=False)
    return program


def functions(program: graft.Program) -> list[tuple[str, ...]]:
    return [module.functions for module in program.description.modules if module.kind == C_SOURCE]


W, C = values(5, 7), values(7)
FORMS: dict[str, tuple[str, str, str, dict[str, np.ndarray], tuple[np.ndarray, ...]]] = {
    "matmul": ("y = MatMul(x, w)", "float[3,5] x", "float[3,7] y", {"w": W}, (values(3, 5),)),
    "rows of several axes": ("y = MatMul(x, w)", "float[2,3,5] x", "float[2,3,7] y", {"w": W}, (values(2, 3, 5),)),
    "bias and relu": (
        "a = MatMul(x, w) b = Add(c, a) y = Relu(b)", "float[3,5] x", "float[3,7] y", {"w": W, "c": C},
        (values(3, 5),),
    ),
    "bias": (
        "a = MatMul(x, w) y = Add(a, c)", "float[4,3,5] x", "float[4,3,7] y", {"w": W, "c": C[None, None]},
        (values(4, 3, 5),),
    ),
    "relu": ("a = MatMul(x, w) y = Relu(a)", "float[3,5] x", "float[3,7] y", {"w": W}, (values(3, 5),)),
    "many products": (
        "y = MatMul(x, z)", "float[2,4,3,5] x, float[2,4,5,6] z", "float[2,4,3,6] y", {},
        (values(2, 4, 3, 5), values(2, 4, 5, 6)),
    ),
    "one left side": (
        "y = MatMul(x, z)", "float[3,5] x, float[4,5,6] z", "float[4,3,6] y", {}, (values(3, 5), values(4, 5, 6)),
    ),
    "gemm": (
        "y = Gemm<transA=1, transB=1, alpha=0.5, beta=2.0>(x, w, c)", "float[5,3] x", "float[3,7] y",
        {"w": W.T.copy(), "c": values(3, 1)}, (values(5, 3),),
    ),
    "gemm and relu": (
        "a = Gemm(x, w, c) y = Relu(a)", "float[3,5] x", "float[3,7] y", {"w": W, "c": C}, (values(3, 5),),
    ),
    "gemm plus a matrix": (
        "y = Gemm(x, w, c)", "float[3,5] x", "float[3,7] y", {"w": W, "c": values(3, 7)}, (values(3, 5),),
    ),
    "gemm plus a number": (
        "y = Gemm(x, w, c)", "float[3,5] x", "float[3,7] y", {"w": W, "c": values()}, (values(3, 5),),
    ),
    "gemm of one column": (
        "y = Gemm(x, w, c)", "float[3,5] x", "float[3,1] y", {"w": W[:, :1].copy(), "c": values(3, 1)},
        (values(3, 5),),
    ),
    "nothing to add up": (
        "a = Gemm(x, w, c) y = Relu(a)", "float[3,0] x", "float[3,7] y", {"w": W[:0], "c": C}, (values(3, 0),),
    ),
    "float64": (
        "y = MatMul(x, w)", "double[3,5] x", "double[3,7] y", {"w": W.astype("float64")},
        (values(3, 5, dtype="float64"),),
    ),
}  # fmt: skip


@needs_blas
@pytest.mark.parametrize("form", FORMS)
def test_a_product_is_what_the_built_in_compiler_computes(form: str) -> None:
    body, x, y, weights, inputs = FORMS[form]
    made = with_weights(body, x, y, weights)
    program = compiled(made, "cblas")
    assert len(functions(program)) == len(program.description.modules) == 1
    assert np.allclose(program(*inputs), compiled(made, "llvm")(*inputs), rtol=1e-5, atol=1e-5)


@needs_blas
def test_products_of_varying_extents_are_compiled_once() -> None:
    body = "a = MatMul(x, w) b = Add(a, c) h = Relu(b) y = MatMul(h, z)"
    made = with_weights(body, "float[n,s,5] x, float[n,7,s] z", "float[n,s,s] y", {"w": W, "c": C})
    program, expected = compiled(made, "cblas"), compiled(made, "llvm")
    assert [len(one) for one in functions(program)] == [2]
    for n, s in ((1, 1), (3, 4), (0, 2), (2, 9)):
        inputs = values(n, s, 5), values(n, 7, s)
        assert np.allclose(program(*inputs), expected(*inputs), rtol=1e-5, atol=1e-5)


@needs_blas
def test_products_of_what_is_broadcast_ask_for_the_extents_of_their_operands() -> None:
    made = with_weights(
        "a = Add(x, z) y = MatMul(a, w)", "float[p,a,5] x, float[q,a,5] z", "float[r,a,7] y", {"w": W}
    )  # fmt: skip
    program, expected = graft.compile(made, ["cblas", "llvm"], strict=True, cache=False), compiled(made, "llvm")
    for p, q, s in ((1, 3, 2), (3, 1, 4), (2, 2, 1), (1, 0, 3)):
        inputs = values(p, s, 5), values(q, s, 5)
        assert np.allclose(program(*inputs), expected(*inputs), rtol=1e-5, atol=1e-5)


@needs_blas
def test_what_is_not_a_number_goes_through_relu() -> None:
    made = with_weights("a = MatMul(x, w) y = Relu(a)", "float[1,2] x", "float[1,1] y", {"w": np.ones((2, 1), "f")})
    assert np.isnan(compiled(made, "cblas")(np.array([[np.nan, 1]], np.float32)))


@needs_blas
def test_it_runs_only_when_it_is_named() -> None:
    made = with_weights("y = MatMul(x, w)", "float[3,5] x", "float[3,7] y", {"w": W})
    program = graft.compile(made, cache=False)
    assert functions(program) == []


MAIN = """
int main(void) {
  const float x[15] = {1, 2, 3, 4, 5, -1, -2, -3, -4, -5}, w[35] = {[0] = 1, [8] = 2, [34] = 3}, c[7] = {[6] = 0.5f};
  float y[21];
  GraftContext context = {0};
  if (cblas_0_0(&context, x, w, c, y)) return 1;
  for (int i = 0; i < 21; i++) printf("%g ", (double)y[i]);
  return 0;
}
"""


@needs_blas
def test_a_project_calls_and_links_the_library_plainly(tmp_path: Path) -> None:
    body, x, y, weights, _ = FORMS["bias and relu"]
    (module,) = compiled(with_weights(body, x, y, weights), "cblas").description.modules
    source = module.source
    assert source is not None and source.libraries == ("-lopenblas",)
    headers = "".join(f"#include <{name}>\n" for name in (PRELUDE, *source.headers, "stdio.h"))
    (tmp_path / "main.c").write_text(f"#define GRAFT_KERNEL\n{headers}{source.text}{MAIN}")
    flags = ["-std=c11", "-Wall", "-Werror", "-DGRAFT_PROJECT", f"-I{INCLUDE}", "-o", str(tmp_path / "main")]
    subprocess.run(["cc", *flags, str(tmp_path / "main.c"), *source.libraries], check=True)
    said = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=True).stdout
    assert said == "1 4 0 0 0 0 15.5 0 0 0 0 0 0 0 0 0 0 0 0 0 0.5 "


REFUSED = {
    "y = MatMul(x, z)|float[3] x, float[3,4] z|float[4] y": ("rank", "'x' has 1 axes; CBLAS multiplies matrices"),
    "y = MatMul(x, z)|float[1,2,3] x, float[5,3,4] z|float[5,2,4] y": (
        "shape", "'x' and 'z' are broadcast to each other's matrices",
    ),
    "y = MatMul(x, z)|int32[2,3] x, int32[3,4] z|int32[2,4] y": (
        "dtype", "'x' is int32; CBLAS multiplies float32 and float64",
    ),
    "y = Gemm(x, z, c)|float[m,3] x, float[3,4] z, float[k,4] c|float[m,4] y": (
        "shape", "'c' may be repeated along an extent that is not known before a run",
    ),
    "y = Exp(x)|float[2,3] x|float[2,3] y": ("no-pattern", "CBLAS has no Exp"),
}  # fmt: skip


@needs_blas
@pytest.mark.parametrize("text", REFUSED)
def test_what_it_does_not_take_has_a_reason(text: str) -> None:
    plan = graft.plan(model(*text.split("|")), ["cblas", "reference"])
    (placement,) = plan.placements
    code, reason = REFUSED[text]
    assert dict(placement.reasons) == {"cblas": graft.Reject(code, reason)}


def test_the_note_of_the_list_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from graft.plugins.cblas import library

    monkeypatch.setattr(library, "NAME", "libopenblas.so.99")
    said: Any = library.missing()
    assert said == "OpenBLAS is not installed; apt-get install libopenblas-dev"
    assert library.version() == ""
