"""Kernels on a device that is there: what the emulator has shown, again, and with compute-sanitizer where installed.

pytest -m gpu tests/plugins/cuda/test_on_device.py
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import graft
from graft.errors import PluginError
from graft.plugins.cuda.cublas import library
from graft.plugins.cuda.module import device_fault
from graft.plugins.cuda.source import nvrtc
from tests.plugins.cuda.graphs import graph, node
from tests.plugins.cuda.test_strategies import FLOAT_CASES, PRECISE, RANDOM, attention, convolution, given, product

ROOT = Path(__file__).parents[3]


def missing() -> str:
    try:
        return device_fault()
    except PluginError as error:
        return error.message


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(missing() != "", reason=missing())]
needs_sanitizer = pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="no compute-sanitizer")
needs_cublas = pytest.mark.skipif(library.library() is None, reason=library.MISSING)
BACKENDS = [
    "cuda",
    pytest.param("cuda_source", marks=pytest.mark.skipif(nvrtc.library() is None, reason=nvrtc.MISSING)),
]


def error(model: onnx.ModelProto, feeds: dict[str, np.ndarray], backend: str = "cuda", **requested: str) -> float:
    program = graft.compile(model, [backend], cache=False, strict=True, **requested)
    (theirs,) = graft.compile(model, ["reference"]).run(dict(feeds)).values()
    worst = 0.0
    for _ in range(3):  # launched, recorded, replayed
        (ours,) = program.run(dict(feeds)).values()
        difference = np.abs(np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)).max()
        worst = max(worst, float(difference / np.abs(np.asarray(theirs, np.float64)).max()))
    return worst


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", FLOAT_CASES)
def test_a_kernel_computes_on_the_device_what_the_reference_does(name: str, backend: str) -> None:
    _, model, sizes = FLOAT_CASES[name]
    assert error(model, given(model, **sizes), backend) < 5e-6


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("precision", PRECISE)
@pytest.mark.parametrize("kind", ["product", "convolution", "attention"])
def test_tensor_instructions_round_as_the_emulator_says(kind: str, precision: str, backend: str) -> None:
    models = {"product": product(100, 64, 72), "convolution": convolution([1, 16, 9, 9], [24, 16, 3, 3]),
              "attention": attention(70, 130, 64, masked=True)}  # fmt: skip
    assert error(models[kind], given(models[kind]), backend, precision=precision) < 2 * PRECISE[precision][1]


def test_products_of_bytes_are_exact_on_the_device() -> None:
    weights = RANDOM.integers(-127, 127, (96, 64)).astype(np.int8)
    model = graph([node("MatMulInteger", "x w")], {"x": ("uint8", [70, 96])}, {"w": weights})
    assert error(model, given(model)) == 0


def test_the_device_and_the_emulator_give_the_same_of_a_network() -> None:
    nodes = [node("Conv", "x w", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "b"), node("GlobalAveragePool", "b")]
    weights = {"w": RANDOM.standard_normal((24, 8, 3, 3)).astype(np.float32)}
    model = graph(nodes, {"x": ("float32", [2, 8, 20, 20])}, weights)
    feeds = given(model)
    (there,), (here,) = (
        graft.compile(model, [one], cache=False).run(feeds).values() for one in ("cuda", "cuda_emulator")
    )
    np.testing.assert_allclose(there, here, rtol=1e-5, atol=1e-6)


@needs_cublas
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_library_computes_what_the_kernels_do(dtype: str) -> None:
    model = product(130, 64, 72, dtype)
    assert error(model, given(model), "cublas") < (1e-5 if dtype == "float32" else 3e-3)


SCRIPT = """
import sys
import pytest
chosen = ["-m", "gpu", "-k", "kernel_computes and cuda and not source"]
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *chosen, "tests/plugins/cuda/test_on_device.py"]))
"""


@needs_sanitizer
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck"])
def test_compute_sanitizer_finds_nothing(tool: str) -> None:
    command = ["compute-sanitizer", f"--tool={tool}", "--error-exitcode=9", sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stdout[-4000:]
