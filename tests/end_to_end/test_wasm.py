"""Programs for the web give the answers of this machine: run in Node, and by the page in a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import graft
from benchmarks.zoo import model
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.core.model.sample_inputs import sample_inputs
from graft.runtime.export.wasm import export_wasm

from .emulators import TEXTS, network_of

RUN = """
import { readFileSync, writeFileSync } from "node:fs";
const { load } = await import(process.argv[2]);
const model = await load();
const data = readFileSync("inputs");
let at = 0;
const feeds = {};
for (const [name, kind, bytes] of JSON.parse(process.argv[3])) {
  feeds[name] = new globalThis[kind](data.buffer.slice(data.byteOffset + at, data.byteOffset + at + bytes));
  at += bytes;
}
try {
  const results = await model.run(feeds);
  writeFileSync("outputs", Buffer.concat(model.outputs.map(({ name }) => Buffer.from(results[name].buffer))));
} catch (error) {
  console.log(error.message);
}
"""
ARRAYS = {"float32": "Float32Array", "int64": "BigInt64Array"}


def exported(network: ir.Model, folder: Path, target: str = "wasm32+simd128", **options: object) -> list[Path]:
    request = Request(["llvm"], target=target, strict=True, threads=1, **options)
    return export_wasm(compile_model(network, request).description, folder)


def run(folder: Path, feeds: dict[str, np.ndarray]) -> str:
    """Run an exported model in Node on some inputs; return what was printed."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    (folder / "inputs").write_bytes(b"".join(array.tobytes() for array in feeds.values()))
    (folder / "run.mjs").write_text(RUN)
    (folder / "package.json").write_text('{"type": "module"}')
    rows = [(name, ARRAYS[array.dtype.name], array.nbytes) for name, array in feeds.items()]
    command = ["node", "run.mjs", "./model.js", json.dumps(rows)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def check(folder: Path, network: ir.Model, tolerance: float = 1e-4, **options: object) -> None:
    feeds = sample_inputs(network)
    exported(network, folder, **options)
    assert run(folder, feeds) == ""
    data = (folder / "outputs").read_bytes()
    for name, array in graft.compile(network, ["llvm"], strict=True).run(feeds).items():
        found, data = np.frombuffer(data[: array.nbytes], array.dtype).reshape(array.shape), data[array.nbytes :]
        exact = array.dtype.kind in "biu"
        wide = array.dtype if exact else np.float64
        limits = {"rtol": 0, "atol": 0} if exact else {"rtol": tolerance, "atol": tolerance * np.nanmax(np.abs(array))}
        np.testing.assert_allclose(found.astype(wide), array.astype(wide), **limits, err_msg=name)
    assert data == b""


@pytest.mark.parametrize(
    "name",
    [
        *TEXTS,
        "cnn",
        "transformer",
        "digits",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("mobilenet_v2", "lstm")),
    ],
)
def test_a_module_gives_the_answers_of_this_machine(tmp_path: Path, name: str) -> None:
    check(tmp_path, model(name) if name == "mobilenet_v2" else network_of(name))


@pytest.mark.parametrize("name", ["functions", "products"])
def test_a_module_without_vectors_gives_the_same_answers(tmp_path: Path, name: str) -> None:
    check(tmp_path, network_of(name), target="wasm32")


def test_a_quantised_network_is_the_same_to_the_bit_but_for_ties(tmp_path: Path) -> None:
    check(tmp_path, model("int8_digits"), 1e-3)
