"""Programs for another architecture, run by its emulator where there is one and a C compiler for it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

import graft
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.core.shapes.sample_inputs import sample_inputs
from graft.runtime.artifact import save

from .test_switches import source

ROOT = Path(__file__).parents[2]
FUNCTIONS = (
    "Exp", "Log", "Tanh", "Sigmoid", "Erf", "Sin", "Cos", "Tan", "Atan", "Sqrt", "Gelu", "Softplus", "Floor", "Round",
)  # fmt: skip
TEXTS = {
    "functions": "g (float[3, 37] x) => (float[3, 518] y) { "
    + " ".join(f"v{number} = {name}(x)" for number, name in enumerate(FUNCTIONS))
    + f" y = Concat<axis = 1>({', '.join(f'v{number}' for number in range(len(FUNCTIONS)))}) }}",
    "rows": """g (float[21, 53] x, float[53] s) => (float[21, 53] y, float[53] m, int64[21] best) <int64[1] a = {0}> {
        n = LayerNormalization(x, s)
        y = Softmax(n)
        m = ReduceMax<keepdims = 0>(y, a)
        best = ArgMax<axis = 1, keepdims = 0>(y) }""",
    "products": """g (float[2, 19, 35] x, float[35, 67] w, float[67] c, float[2, 67, 9] z) => (float[2, 19, 9] y) {
        p = MatMul(x, w)
        q = Add(p, c)
        r = Relu(q)
        y = MatMul(r, z) }""",
    "convolutions": """g (float[1, 3, 29, 30] x, float[16, 3, 5, 5] a, float[16, 1, 3, 3] b, float[24, 16, 1, 1] c,
        float[24, 6, 3, 3] d) => (float[1, 24, 8, 8] y) {
        v = Conv<strides = [2, 2], pads = [2, 2, 2, 2]>(x, a)
        w = Clip(v)
        s = Conv<group = 16, pads = [1, 1, 1, 1]>(w, b)
        t = Conv(s, c)
        u = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(t)
        y = Conv<group = 4, pads = [1, 1, 1, 1]>(u, d) }""",
    "numbers": """g (int64[40] i, float[40] x)
        => (int64[40] j, float16[40] h, bfloat16[40] b, uint8[40] u, bool[40] g) {
        j = Mul(i, i)
        h = Cast<to = 10>(x)
        b = Cast<to = 16>(x)
        k = Abs(i)
        u = Cast<to = 2>(k)
        z = Sub(x, x)
        g = Greater(x, z) }""",
}


@dataclass(frozen=True, slots=True)
class Emulated:
    """An architecture as Debian calls it, and the row of machines that programs for it are compiled for."""

    arch: str
    target: str
    exchange: Path
    """The program that runs an artifact on raw bytes."""
    cpu: str = ""
    """The processor that is emulated; the emulator's usual one if left out."""

    def run(
        self, folder: Path, network: ir.Model, feeds: Mapping[str, np.ndarray], like: Mapping[str, np.ndarray],
        **options: Any,
    ) -> dict[str, np.ndarray]:  # fmt: skip
        """Compile, run under the emulator, and return the outputs, of the types and shapes of ``like``."""
        request = Request(["llvm"], target=self.target, strict=True, **options)
        save(compile_model(network, request).description, folder / "m.graft")
        (folder / "inputs").write_bytes(b"".join(feeds[one.name or ""].tobytes() for one in network.graph.inputs))
        files = [folder / "m.graft", folder / "inputs", folder / "outputs"]
        emulator = [f"qemu-{self.arch}", *(["-cpu", self.cpu] if self.cpu else [])]
        command = [*emulator, self.exchange, *files, str(options.get("threads", 1))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if "decode_save_opc: Assertion" in done.stderr:  # of two changes of the rounding mode in one instruction
            pytest.skip("this emulator fails at vfcvt.rtz, as QEMU 7.2 does; a newer one is wanted")
        assert (done.returncode, done.stderr) == (0, ""), f"exit {done.returncode}: {done.stderr}"
        data, results = files[-1].read_bytes(), {}
        for name, array in like.items():
            part, data = data[: array.nbytes], data[array.nbytes :]
            results[name] = np.frombuffer(part, array.dtype).reshape(array.shape)
        assert data == b""
        return results

    def check(self, folder: Path, network: ir.Model, tolerance: float = 1e-4, **options: Any) -> None:
        """Compare with what this machine computes."""
        feeds = sample_inputs(network)
        wanted = graft.compile(network, ["llvm"], strict=True, **options).run(feeds)
        found = self.run(folder, network, feeds, wanted, **options)
        for name, array in wanted.items():
            exact = array.dtype.kind in "biu"
            wide = array.dtype if exact else np.float64
            limits = (
                {"rtol": 0, "atol": 0} if exact else {"rtol": tolerance, "atol": tolerance * np.nanmax(np.abs(array))}
            )
            np.testing.assert_allclose(found[name].astype(wide), array.astype(wide), **limits, err_msg=name)


def emulated(arch: str, target: str, build: Path, cpu: str = "") -> Emulated:
    """Build what runs an artifact; skip, naming what is missing, where that cannot be."""
    compiler = f"{arch}-linux-gnu-gcc"
    for tool in ("make", compiler, f"qemu-{arch}"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    native = ROOT / "runtime" / "native"
    command = ["make", "-C", native, f"BUILD={build}", f"CC={compiler}", f"AR={arch}-linux-gnu-ar"]
    subprocess.run([*command, build / "libgraft_runtime.a"], check=True, capture_output=True, timeout=300)
    options = [
        "-std=c11",
        "-static",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{native / 'include'}",
        "-o",
        build / "exchange",
    ]
    sources = [Path(__file__).with_name("exchange.c"), build / "libgraft_runtime.a", "-pthread", "-lm"]
    subprocess.run([compiler, *options, *sources], check=True, capture_output=True, timeout=300)
    return Emulated(arch, target, build / "exchange", cpu)


def network_of(name: str) -> ir.Model:
    if name not in TEXTS:
        return source(name)
    proto = onnx.parser.parse_model(f'<ir_version: 11, opset_import: ["" : 21]> {TEXTS[name]}')
    return graft.load(proto)
