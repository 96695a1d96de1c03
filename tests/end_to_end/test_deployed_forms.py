"""One model through every form that it is deployed in: the same numbers, and the same as of ONNX's own evaluator."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

import graft
from benchmarks.zoo import model
from graft.core.shapes.sample_inputs import sample_inputs
from graft.errors import GraftError
from graft.runtime.export.c_check import Recorded
from graft.runtime.export.c_project import export_c_project

from . import test_wasm as web

MAIN = """
#include <stdio.h>
#include "graft/model.h"
GRAFT_DECLARE_MODEL(m)
static float input[INPUT], result[RESULT];
int main(void) {
  GraftProgram *program;
  GraftError error = {0};
  FILE *file = fopen("inputs", "rb");
  if (!file || fread(input, sizeof input, 1, file) != 1) return 1;
  if (graft_model_m_load(NULL, &program, &error)) return printf("%s\\n", error.message);
  GraftTensorInfo in = graft_model_m_input(program, 0), out = graft_model_m_output(program, 0);
  DLTensor x = {.data = input, .device = {kDLCPU, 0}, .ndim = in.ndim, .dtype = in.dtype, .shape = (int64_t *)in.shape};
  DLTensor y = {
      .data = result, .device = {kDLCPU, 0}, .ndim = out.ndim, .dtype = out.dtype, .shape = (int64_t *)out.shape};
  if (graft_model_m_run(program, &x, &y, &error)) return printf("%s\\n", error.message);
  graft_model_m_destroy(program);
  file = fopen("outputs", "wb");
  return !file || fwrite(result, sizeof result, 1, file) != 1 || fclose(file);
}
"""
Form = Callable[[ir.Model, np.ndarray, np.ndarray, Path], np.ndarray]


def compiled(network: ir.Model, *backends: str) -> graft.Program:
    return graft.compile(network.clone(), list(backends), threads=1)


def done(*command: object, folder: Path) -> None:
    result = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, timeout=580)
    assert result.returncode == 0, result.stdout + result.stderr


def artifact(network: ir.Model, x: np.ndarray, wanted: np.ndarray, folder: Path) -> np.ndarray:
    compiled(network, "llvm").save(folder / "m.graft")
    return np.asarray(graft.runtime.load(folder / "m.graft", threads=1)(x))


def library_from_python(network: ir.Model, x: np.ndarray, wanted: np.ndarray, folder: Path) -> np.ndarray:
    compiled(network, "llvm").export_library(folder / "m.so")
    return np.asarray(graft.runtime.load(folder / "m.so", threads=1)(x))


def library_from_c(network: ir.Model, x: np.ndarray, wanted: np.ndarray, folder: Path) -> np.ndarray:
    compiled(network, "llvm").export_library(folder / "m.so")
    (folder / "main.c").write_text(MAIN, encoding="utf-8")
    (folder / "inputs").write_bytes(x.tobytes())
    sizes = [f"-DINPUT={x.size}", f"-DRESULT={wanted.size}", f"-I{graft.runtime.include_dir()}"]
    done("cc", "-std=c11", *sizes, "main.c", "./m.so", "-Wl,-rpath,$ORIGIN", "-o", "main", folder=folder)
    done("./main", folder=folder)
    return np.frombuffer((folder / "outputs").read_bytes(), np.float32).reshape(wanted.shape)


def c_project(network: ir.Model, x: np.ndarray, wanted: np.ndarray, folder: Path) -> np.ndarray:
    """The check of the project compares with what is recorded: here the answer that is wanted."""
    description = compiled(network, "c_source").description
    export_c_project(description, folder / "m", Recorded([x], [wanted]), threads=2)
    done("make", "check", "CFLAGS=-O2 -march=native", folder=folder / "m")
    return wanted


def c_source(network: ir.Model, x: np.ndarray, wanted: np.ndarray, folder: Path) -> np.ndarray:
    return np.asarray(compiled(network, "c_source")(x))


def vendor_in_c(network: ir.Model, x: np.ndarray, wanted: np.ndarray, folder: Path) -> np.ndarray:
    backend = next(iter(graft.compiler.request.plugins().backends(["onednn_c"])))
    if (reason := backend.available()) is not None:
        pytest.skip(reason)
    program = compiled(network, "onednn_c", "llvm")
    assert "c_source" in [module.kind for module in program.description.modules]
    return np.asarray(program(x))


def in_node(network: ir.Model, x: np.ndarray, wanted: np.ndarray, folder: Path) -> np.ndarray:
    web.exported(network, folder)
    name = network.graph.inputs[0].name
    assert name is not None
    assert web.run(folder, {name: x}) == ""
    return np.frombuffer((folder / "outputs").read_bytes(), np.float32).reshape(wanted.shape)


FORMS: tuple[Form, ...] = (artifact, library_from_python, library_from_c, c_project, c_source, vendor_in_c, in_node)


@pytest.fixture(scope="module", params=["digits", pytest.param("light_resnet50", marks=pytest.mark.slow)])
def case(request: pytest.FixtureRequest) -> tuple[ir.Model, np.ndarray, np.ndarray]:
    """A network, an input, and what ONNX's evaluator makes of it."""
    network = model(request.param)
    ((name, x),) = sample_inputs(network).items()
    (wanted,) = ReferenceEvaluator(ir.to_proto(network)).run(None, {name: x})
    return network, x, wanted


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_a_model_gives_the_same_in_every_form(
    case: tuple[ir.Model, np.ndarray, np.ndarray], form: Form, tmp_path: Path
) -> None:
    for tool in ("cc", "make"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    network, x, wanted = case
    found = form(network, x, wanted, tmp_path)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the rows are those of x86-64")
@pytest.mark.parametrize("row", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_a_library_for_a_level_of_x86_64_says_what_it_needs(row: str, tmp_path: Path) -> None:
    network = model("digits")
    try:
        program = graft.compile(network.clone(), ["llvm"], target=row, threads=1)
    except GraftError as error:
        pytest.skip(str(error))
    program.export_library(tmp_path / "m.so")
    (x,) = sample_inputs(network).values()
    loaded = graft.runtime.load(tmp_path / "m.so", threads=1)
    (target,) = loaded.description.targets
    assert ("avx512f" in target["features"], "avx2" in target["features"]) == (row == "x86-64-v4", row != "x86-64-v2")
    np.testing.assert_allclose(loaded(x), compiled(network, "llvm")(x), rtol=1e-4, atol=1e-4)
