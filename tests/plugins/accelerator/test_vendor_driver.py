"""A vendor's driver as a shared library: a network runs through it, and whatever is wrong with it is told."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import graft
from tests.plugins.accelerator.test_backend import X, small_network

ROOT = Path(__file__).resolve().parents[3]
NATIVE = ROOT / "plugins" / "accelerator" / "native"
SIMULATOR = [str(NATIVE / f"{name}.c") for name in ("machine", "execute", "functional", "cycles", "simulated")]
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="cc is not installed")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vendor") / "small.graft"
    graft.compile(small_network(), ["accelerator", "reference"], strict=True).save(path)
    return path


@pytest.fixture
def loaded(artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Builds the driver with macros, and loads the artifact for it."""

    def load(*macros: str) -> tuple[graft.Program, ctypes.CDLL]:
        library = tmp_path / "vendor.so"
        sources = [str(Path(__file__).with_name("vendor_driver.c")), *(SIMULATOR if "-DSIMULATED" in macros else [])]
        includes = [f"-I{NATIVE}", f"-I{ROOT / 'runtime/native/include'}"]
        flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-ffp-contract=off", "-shared", "-fPIC", *macros, *includes]
        subprocess.run(["cc", *flags, *sources, "-o", str(library), "-lm"], check=True, timeout=120)
        monkeypatch.setenv("GRAFT_ACCELERATOR_DEVICE", str(library))
        return graft.runtime.load(artifact, strict=True), ctypes.CDLL(str(library))

    return load


def test_a_network_runs_on_the_vendors_device(loaded) -> None:
    program, library = loaded("-DSIMULATED")
    expected = ReferenceEvaluator(small_network()).run(None, {"input": X})[0]
    for _ in range(2):
        np.testing.assert_array_equal(program(X), expected)
    assert ctypes.c_int64.in_dll(library, "vendor_runs").value == 2
    opened = ctypes.c_int64.in_dll(library, "vendor_opened")
    assert opened.value == 1
    del program
    assert opened.value == 0


@pytest.mark.parametrize(
    ("macros", "text"),
    [
        (["-DNO_ENTRY"], "GRAFT_ACCELERATOR_DEVICE: '.*/vendor.so' exports no 'graft_accelerator_driver'"),
        (["-DNO_DRIVER"], "GRAFT_ACCELERATOR_DEVICE: '.*/vendor.so' gives no driver"),
        (["-DVERSION=7"], "the device's driver has version 7, and version 2 is needed; build it anew"),
        (["-DNO_RUN"], "the device's driver lacks its name, 'open', 'run' or 'close'"),
        (
            ["-DOPEN_FAILS"],
            "device 'vendor': [0-9]+ bytes of instructions, [0-9]+ of DRAM: no board is plugged in",
        ),
        (["-DNO_MEMORY"], "device 'vendor' gives no memory"),
        (
            ["-DOTHER_SIZES"],
            "the program is for another configuration: 'input_bytes' is 32768, and device 'vendor' has 65536",
        ),
    ],
)
def test_a_driver_that_cannot_be_used_is_refused_at_load(loaded, macros: list[str], text: str) -> None:
    with pytest.raises(graft.GraftError, match=text):
        loaded(*macros)


@pytest.mark.parametrize(("letter", "text"), [("'x'", "x" * 60), ("0", "it failed without a message")])
def test_a_run_that_fails_says_what_the_device_said(loaded, letter: str, text: str) -> None:
    program, _ = loaded(f"-DLETTER={letter}")
    with pytest.raises(graft.GraftError, match=f"device 'vendor': {text}"):
        program(X)


def test_a_library_that_is_not_there_is_named(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFT_ACCELERATOR_DEVICE", "/none/vendor.so")
    with pytest.raises(graft.GraftError, match=re.escape("'/none/vendor.so' cannot be opened: ")):
        graft.runtime.load(artifact, strict=True)
