"""The forms of one program beside its artifact: which have the same bits, and what a C project takes.

    python -m benchmarks.deployment.forms [MODEL ...]
    python -m benchmarks.deployment.forms --seconds 20      a layer of BERT-base as a C project, and in process

Artifact, library and two threads are those of `llvm`; the check of a C project compares with `c_source` in process.
WebAssembly needs Node.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter

import numpy as np
import onnx_ir as ir

import graft
from benchmarks.deployment.web import transformer_block
from benchmarks.zoo import model
from graft.core.shapes.sample_inputs import sample_inputs

MODELS = (
    "digits", "tiny_ds_cnn", "tiny_autoencoder", "tiny_resnet8", "int8_digits", "int8_tiny_ds_cnn",
    "int8_tiny_autoencoder", "int8_tiny_resnet8", "lstm",
)  # fmt: skip
SCRIPT = """
import { readFileSync, writeFileSync } from "node:fs";
import { load } from "./model.js";
const feeds = {}, model = await load(), types = { float32: Float32Array, int64: BigInt64Array, int8: Int8Array };
for (const [name, type] of JSON.parse(process.argv[2])) {
  const bytes = readFileSync(name + ".input");
  feeds[name] = new types[type](bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}
const found = await model.run(feeds);
for (const { name } of model.outputs) writeFileSync(name + ".output", new Uint8Array(found[name].buffer,
  found[name].byteOffset, found[name].byteLength));
"""
Arrays = Mapping[str, np.ndarray]


def in_node(network: ir.Model, feeds: Arrays, wanted: Arrays, folder: Path) -> dict[str, np.ndarray]:
    """Return what a model computes as WebAssembly; ``wanted`` says the types and shapes of its outputs."""
    graft.export_wasm(network.clone(), folder)
    for name, array in feeds.items():
        (folder / f"{name}.input").write_bytes(array.tobytes())
    (folder / "run.mjs").write_text(SCRIPT, encoding="utf-8")
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    types = json.dumps([(name, array.dtype.name) for name, array in feeds.items()])
    subprocess.run(["node", "run.mjs", types], cwd=folder, check=True)
    read: Callable[[str, np.ndarray], np.ndarray] = lambda name, like: np.frombuffer(  # noqa: E731 - said once
        (folder / f"{name}.output").read_bytes(), like.dtype
    ).reshape(like.shape)
    return {name: read(name, array) for name, array in wanted.items()}


def difference(found: Arrays, wanted: Arrays) -> float:
    """Return the largest difference, as a part of the largest value of its output; 0 for the same bits."""
    if all(found[name].tobytes() == array.tobytes() for name, array in wanted.items()):
        return 0.0
    pairs = [(found[name].astype(np.float64), array.astype(np.float64)) for name, array in wanted.items()]
    return max(float(np.abs(one - other).max() / max(np.abs(other).max(), 1e-30)) for one, other in pairs)


def row(name: str, folder: Path) -> dict[str, float]:
    """Return by form how far one model is from its artifact."""
    network = model(name)
    feeds = sample_inputs(network)
    program = graft.compile(network.clone(), ["llvm"], threads=1)
    wanted = program.run(feeds)
    program.save(folder / "m.graft")
    program.export_library(folder / "m.so")
    text = graft.compile(network.clone(), ["c_source"], threads=1)
    text.export_c_project(folder / "c", dict(feeds), name="m")
    checked = subprocess.run(["make", "-C", folder / "c", "check"], capture_output=True, text=True)
    found = {
        "artifact": graft.runtime.load(folder / "m.graft").run(feeds),
        "library": graft.runtime.load(folder / "m.so").run(feeds),
        "two threads": graft.compile(network.clone(), ["llvm"], threads=2).run(feeds),
        "c_source": text.run(feeds),
        "WebAssembly": in_node(network, feeds, wanted, folder / "web"),
    }
    apart = {form: difference(outputs, wanted) for form, outputs in found.items()}
    return apart | {"C project, of c_source": 0.0 if "as recorded" in checked.stdout else float("nan")}


def layer(seconds: float, folder: Path) -> tuple[list[float], list[float]]:
    """Return the seconds of the runs of a layer in process and as a C project, in turns, whose bits are the same."""
    program = graft.compile(transformer_block(), ["c_source"], threads=1)
    (of,) = program.inputs
    x = np.sin(np.arange(np.prod([int(one) for one in of.shape or ()]), dtype=np.float32)).reshape(1, 128, 768)
    program.export_c_project(folder, {of.name: x}, name="layer")
    subprocess.run(["make", "--silent", "-C", folder, "CFLAGS=-O3 -fPIC"], check=True)
    command = "cc -shared -Wl,--whole-archive build/liblayer.a -Wl,--no-whole-archive -o layer.so -lm"
    subprocess.run(command.split(), cwd=folder, check=True)
    library, y = ctypes.CDLL(str(folder / "layer.so")), np.empty_like(x)
    run = lambda: library.layer_run(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data))  # noqa: E731
    run()
    assert np.array_equal(program(x), y), "the project has other bits"
    inside, alone, end = list[float](), list[float](), monotonic() + seconds
    while monotonic() < end:
        for times, once in ((inside, lambda: program(x)), (alone, run)):
            begin = perf_counter()
            once()
            times.append(perf_counter() - begin)
    return inside, alone


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--seconds", type=float, help="Time a layer for so long instead.")
    options = parser.parse_args(arguments)
    with TemporaryDirectory() as top:
        if options.seconds is not None:
            inside, alone = map(statistics.median, layer(options.seconds, Path(top)))
            print(f"in process {1e3 * inside:.2f} ms, C project {1e3 * alone:.2f} ms, ratio {alone / inside:.2f}")
            return
        for name in options.models:
            (Path(top) / name).mkdir()
            apart = row(name, Path(top) / name)
            print(name, *(f"{form}: {far:.1e}" if far else f"{form}: same" for form, far in apart.items()), sep=" | ")


if __name__ == "__main__":
    main()
