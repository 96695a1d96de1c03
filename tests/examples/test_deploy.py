"""The deployment examples, under sanitizers: the digits model is the same through every form that it is exported in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import graft
from graft.runtime.export.runtime_object import runtime_object
from graft.runtime.system.cache_directory import cache_directory

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "examples" / "digits" / "digits.onnx"
SANITIZED = "-g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all"
PROGRAMS = ("library", "library_cpp", "project_c", "project_cpp")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for tool in ("make", "cc", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    folder = tmp_path_factory.mktemp("deploy")
    command = f"GRAFT={sys.executable} -m graft"
    done = subprocess.run(
        ["make", "-C", ROOT / "examples" / "deploy", f"BUILD={folder}", command, f"CFLAGS={SANITIZED}"],
        capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    return np.random.default_rng(7).random((1, 1, 8, 8), np.float32)


@pytest.fixture(scope="module")
def expected(image: np.ndarray) -> np.ndarray:
    """What the built-in compiler gives, from an artifact or not."""
    logits: np.ndarray = graft.compile(str(MODEL), ["llvm"], threads=1)(image)
    return logits.reshape(-1)


def said(program: Path, *arguments: Path) -> tuple[str, list[float]]:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    first, *rows = done.stdout.splitlines()
    return first, [float(row.split()[1]) for row in rows]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_gives_what_python_gives(
    build: Path, tmp_path: Path, image: np.ndarray, expected: np.ndarray, program: str
) -> None:
    (tmp_path / "image").write_text(" ".join(map(repr, image.reshape(-1).tolist())), encoding="ascii")
    first, logits = said(build / program, tmp_path / "image")
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    assert first == f"digit {expected.argmax()}"


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_digit_of_the_example_is_a_nine(build: Path, program: str) -> None:
    assert said(build / program)[0] == "digit 9"


def test_python_loads_the_library(build: Path, image: np.ndarray, expected: np.ndarray) -> None:
    program = graft.runtime.load(build / "digits.so", threads=1)
    np.testing.assert_array_equal(program(image).reshape(-1), expected)


def test_the_exports_show_nothing_but_names_of_the_model(build: Path) -> None:
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    listed = subprocess.run(["nm", "-D", "--defined-only", build / "digits.so"], capture_output=True, text=True)
    names = [line.split()[-1] for line in listed.stdout.splitlines()]
    assert "graft_model_digits_run" in names
    assert all(name.startswith("graft_model_digits") for name in names)
    library = build / "project" / "build" / "libdigits.a"
    listed = subprocess.run(["nm", "-g", "--defined-only", library], capture_output=True, text=True)
    names = [line.split()[-1] for line in listed.stdout.splitlines() if " " in line]
    assert "digits_run" in names
    assert all(name.startswith("digits") or "asan" in name for name in names)


def test_a_wrong_tensor_is_an_error_that_cpp_throws(build: Path, tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(
        """
#include <cstdio>
#include <vector>
#include "graft/graft.hpp"
GRAFT_DECLARE_MODEL(digits)
template <class Call> void told(Call call) {
  try { call(); } catch (const graft::Error &error) { std::printf("%d %s\\n", error.code(), error.what()); }
}
int main() {
  graft::Program program(*graft_model_digits());
  std::vector<float> image(64), logits(10);
  told([&] { graft::Tensor(image, {1, 1, 8, 9}); });
  told([&] { program.run({}); });
  told([&] { program.run({graft::Tensor(image, {1, 64})}); });
  told([&] { program.run({graft::Tensor(image, {1, 1, 8, 8})})[0].values<int>(); });
  told([&] { graft::Program::open("nowhere.graft"); });
  program.run({graft::Tensor(image, {1, 1, 8, 8})}, {graft::Tensor(logits, {1, 10})});
  graft::Program moved = std::move(program);
  auto outputs = moved.run({graft::Tensor(image, {1, 1, 8, 8})});
  std::printf("%d %d\\n", outputs[0].values<float>()[3] == logits[3], (int)outputs[0].shape()[1]);
}
""",
        encoding="utf-8",
    )
    kept = cache_directory()
    assert kept is not None
    (tmp_path / "runtime.o").write_bytes(runtime_object(kept / "kernels"))
    include = f"-I{ROOT / 'runtime' / 'native' / 'include'}"
    command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", *SANITIZED.split()]
    linked = [build / "digits.so", tmp_path / "runtime.o", f"-Wl,-rpath,{build}", "-pthread", "-ldl", "-lm"]
    subprocess.run(
        [*command, include, tmp_path / "main.cpp", "-o", tmp_path / "main", *linked],
        check=True, timeout=120,
    )  # fmt: skip
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "4 a tensor has 64 elements, and its shape wants 72",
        "4 the number of inputs or outputs is not that of the program",
        "4 input 'image' must be float32[1,1,8,8], got float32[1,64]",
        "4 an output has another element type than the one it is read as",
        "6 cannot open artifact 'nowhere.graft': No such file or directory",
        "1 10",
    ]


@pytest.mark.slow
def test_resnet_50_is_the_same_from_every_form(tmp_path: Path) -> None:
    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_resnet50.onnx"
    program = graft.compile(str(path), ["llvm"])
    program.save(tmp_path / "m.graft")
    done = program.export_library(tmp_path / "m.so")
    kept = sum(array.nbytes for array in program.description.constants.values())
    assert done.bytes < 1.02 * (kept + sum(len(module.data) for module in program.description.modules))
    x = np.random.default_rng(0).random(program.inputs[0].static_shape, np.float32)
    for name in ("m.graft", "m.so"):
        np.testing.assert_array_equal(graft.runtime.load(tmp_path / name)(x), program(x))
    source = graft.compile(str(path), ["c_source"])
    np.testing.assert_allclose(source(x), program(x), rtol=1e-3, atol=1e-4)
    source.export_c_project(tmp_path / "project", {program.inputs[0].name: x})
    made = subprocess.run(
        ["make", "-C", tmp_path / "project", "check"], capture_output=True, text=True, timeout=1000, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr
