"""Models as WebAssembly modules beside onnxruntime-web, in turns in one process of Node: SIMD and one thread for both.

Between them runs a loop of nothing but multiply-adds in registers: what the engine has at most on this processor.
onnxruntime-web is installed from npm into a temporary folder, or found in the ``node_modules`` of ``--peer``. Run:
python -m benchmarks.deployment.web [MODEL ...]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx.helper
import onnx.numpy_helper
import onnx_ir as ir

import graft
from benchmarks.zoo import model
from graft.compiler.api import compile_model
from graft.compiler.exporting import WEB, for_the_web
from graft.compiler.request import Request
from graft.report.sign_off import operations
from graft.runtime.export import wasm_binary as binary
from graft.runtime.export.wasm import export_wasm

PEER = "onnxruntime-web@1.30.0"
PEER_FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
"""What a page loads of it to run on the processor."""
BLOCK = "transformer_block"
MODELS = ("digits", "mobilenet_v2", BLOCK)
TOKENS, WIDTH, HEADS, INNER = 128, 768, 12, 3072
SUMS, ROUNDS = 12, 4_000_000
"""Of the loop: sums, which with two operands are what the engine's 15 registers of an x86-64 hold, and iterations."""
SCRIPT = """
import { readFileSync } from "node:fs";
const [ours, peer, file, seconds, rounds] = process.argv.slice(2);
const { load } = await import(ours);
const ort = await import(peer);
ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";
let begin = performance.now();
const model = await load();
const loads = [performance.now() - begin];
begin = performance.now();
const session = await ort.InferenceSession.create(readFileSync(file), { executionProviders: ["wasm"] });
loads.push(performance.now() - begin);
const feeds = {}, tensors = {};
for (const { name, shape } of model.inputs) {
  const data = Float32Array.from({ length: shape.reduce((all, one) => all * one, 1) }, (_, at) => Math.sin(at));
  feeds[name] = data;
  tensors[name] = new ort.Tensor("float32", data, shape);
}
const loop = (await WebAssembly.instantiate(readFileSync("loop.wasm"))).instance.exports.run;
const times = [[], [], []];
const timed = async (row, run) => {
  const start = performance.now(), result = await run();
  times[row].push(performance.now() - start);
  return result;
};
let error = 0;
for (begin = performance.now(); performance.now() - begin < 1000 * seconds || times[0].length < 5;) {
  const found = await timed(0, () => model.run(feeds)), wanted = await timed(1, () => session.run(tensors));
  await timed(2, () => loop(rounds));
  for (const { name } of model.outputs) {
    const most = wanted[name].data.reduce((all, one) => Math.max(all, Math.abs(one)), 0);
    const apart = found[name].reduce((all, one, at) => Math.max(all, Math.abs(one - wanted[name].data[at])), 0);
    error = Math.max(error, apart / most);
  }
}
console.log(JSON.stringify({ loads, times, error }));
"""


def transformer_block(seed: int = 0) -> onnx.ModelProto:
    """Return one layer of BERT-base for 128 tokens: attention of 12 heads, then two products with Gelu between."""
    rng = np.random.default_rng(seed)
    constants: dict[str, np.ndarray] = {}
    for name, shape in {
        **dict.fromkeys(("wq", "wk", "wv", "wo"), (WIDTH, WIDTH)),
        **{"w1": (WIDTH, INNER), "w2": (INNER, WIDTH), "b1": (INNER,)},
        **dict.fromkeys(("bq", "bk", "bv", "bo", "b2", "s1", "c1", "s2", "c2"), (WIDTH,)),
    }.items():
        constants[name] = (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
    constants["heads"] = np.array([1, TOKENS, HEADS, WIDTH // HEADS], np.int64)
    constants["whole"] = np.array([1, TOKENS, WIDTH], np.int64)
    constants["scale"] = np.array(1 / np.sqrt(WIDTH // HEADS), np.float32)
    lines = []
    for one, order in (("q", "0, 2, 1, 3"), ("k", "0, 2, 3, 1"), ("v", "0, 2, 1, 3")):
        lines += [
            f"{one}0 = MatMul(x, w{one})", f"{one}1 = Add({one}0, b{one})", f"{one}2 = Reshape({one}1, heads)",
            f"{one} = Transpose<perm = [{order}]>({one}2)",
        ]  # fmt: skip
    lines += [
        "s0 = MatMul(q, k)", "s = Mul(s0, scale)", "p = Softmax<axis = -1>(s)", "a0 = MatMul(p, v)",
        "a1 = Transpose<perm = [0, 2, 1, 3]>(a0)", "a2 = Reshape(a1, whole)", "a3 = MatMul(a2, wo)", "a4 = Add(a3, bo)",
        "a5 = Add(a4, x)", "a = LayerNormalization(a5, s1, c1)", "f0 = MatMul(a, w1)", "f1 = Add(f0, b1)",
        "f = Gelu(f1)", "g0 = MatMul(f, w2)", "g1 = Add(g0, b2)", "g2 = Add(g1, a)",
        "y = LayerNormalization(g2, s2, c2)",
    ]  # fmt: skip
    shape = f"float[1, {TOKENS}, {WIDTH}]"
    text = f"g ({shape} x) => ({shape} y) {{ {' '.join(lines)} }}"
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {text}')
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items())
    return proto


def products(seed: int = 0) -> onnx.ModelProto:
    """Return the products with weights of such a layer, one behind the other with nothing between."""
    rng = np.random.default_rng(seed)
    shapes = [*[(WIDTH, WIDTH)] * 4, (WIDTH, INNER), (INNER, WIDTH)]
    lines = [f"t{at + 1} = MatMul(t{at}, w{at})" for at in range(len(shapes))]
    text = f"g (float[1, {TOKENS}, {WIDTH}] t0) => (float[1, {TOKENS}, {WIDTH}] t{len(shapes)}) {{ {' '.join(lines)} }}"
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {text}')
    for at, shape in enumerate(shapes):
        weights = (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, f"w{at}"))
    return proto


def loop(is_fused: bool) -> bytes:
    """Return a module whose ``run(rounds)`` does in each round one multiply-add of four floats to each of the sums."""
    get: Callable[[int], bytes] = lambda local: b"\x20" + binary.unsigned(local)  # noqa: E731 - said once
    put: Callable[[int], bytes] = lambda local: b"\x21" + binary.unsigned(local)  # noqa: E731
    simd: Callable[[int], bytes] = lambda number: b"\xfd" + binary.unsigned(number)  # noqa: E731
    add, multiply, fused, constant, first_lane = simd(0xE4), simd(0xE6), simd(0x105), simd(0x0C), simd(0x1F) + b"\0"
    factor, term, sums = SUMS + 1, SUMS + 2, range(1, SUMS + 1)
    last = get(term) + fused if is_fused else multiply + get(term) + add
    round_ = b"".join(get(one) + get(factor) + last + put(one) for one in sums)
    body = b"".join((
        *(constant + np.full(4, value, "<f4").tobytes() + put(at) for at, value in ((factor, 0.5), (term, 1.0))),
        b"\x03\x40", round_, get(0), binary.address(1), b"\x6b\x22\0\x0d\0\x0b",  # until the count is 0
        get(1), *(get(one) + add for one in sums[1:]), first_lane, b"\x0b",
    ))  # fmt: skip
    code = binary.vector([binary.unsigned(SUMS + 2) + b"\x7b"]) + body
    return binary.HEADER + b"".join((
        binary.section(binary.TYPES, binary.vector([bytes((binary.FUNCTION, 1, binary.I32, 1, 0x7D))])),
        binary.section(binary.FUNCTIONS, binary.vector([b"\0"])),
        binary.section(binary.EXPORTS, binary.vector([binary.name("run") + b"\0\0"])),
        binary.section(binary.CODE, binary.vector([binary.unsigned(len(code)) + code])),
    ))  # fmt: skip


def install(folder: Path) -> Path:
    """Install the peer in a folder and return that of its files."""
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", folder, PEER], check=True)
    return folder / "node_modules" / "onnxruntime-web" / "dist"


def measured(
    name: str, folder: Path, peer: Path, seconds: float, target: str = WEB, flags: Sequence[str] = ()
) -> dict[str, float]:
    """Return load, first and best milliseconds of both, the largest error, bytes without weights, Gflop/s at most."""
    made = {BLOCK: transformer_block, "products": products}.get(name)
    network = graft.load(made()) if made else model(name)
    description = compile_model(network.clone(), for_the_web(Request(["llvm"], target=target, strict=True))).description
    files = export_wasm(description, folder)
    ir.save(network, folder / "model.onnx")
    (folder / "loop.wasm").write_bytes(loop("relaxed-simd" in target))
    (folder / "run.mjs").write_text(SCRIPT, encoding="utf-8")
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    command = [
        "node",
        *flags,
        "run.mjs",
        "./model.js",
        str((peer / PEER_FILES[0]).resolve()),
        "model.onnx",
        str(seconds),
        str(ROUNDS),
    ]
    done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    own, other, bare = found["times"]
    size = sum(one.stat().st_size for one in files if one.suffix in (".wasm", ".js"))
    return {
        "load": found["loads"][0], "first": own[0], "best": min(own), "middle": float(np.median(own)),
        "peer load": found["loads"][1], "peer first": other[0], "peer best": min(other),
        "peer middle": float(np.median(other)), "error": found["error"], "bytes": size,
        "rate": (operations(description) or 0) / min(own) / 1e6, "limit": 8 * SUMS * ROUNDS / min(bare) / 1e6,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--peer", type=Path, help="A folder in which npm has installed onnxruntime-web.")
    parser.add_argument("--seconds", type=float, default=15.0, help="For each model.")
    parser.add_argument("--target", default=WEB, help="The row of machines that models are compiled for.")
    parser.add_argument(
        "--node", action="append", default=[], metavar="FLAG",
        help="Of Node; 20 has multiply-adds only with --experimental-wasm-relaxed-simd.",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as top:
        peer = (
            install(Path(top)) if options.peer is None else options.peer / "node_modules" / "onnxruntime-web" / "dist"
        )
        size = sum((peer / one).stat().st_size for one in PEER_FILES)
        print(f"{'milliseconds':18}{'load':>8}{'first':>8}{'best':>8}{'median':>8}{'bytes':>11}{'error':>9}")
        for name in options.models:
            folder = Path(top) / name
            row = measured(name, folder, peer, options.seconds, options.target, options.node)
            own = "".join(f"{row[key]:8.2f}" for key in ("load", "first", "best", "middle"))
            other = "".join(f"{row[f'peer {key}']:8.2f}" for key in ("load", "first", "best", "middle"))
            print(f"{name:18}{own}{row['bytes']:11.0f}{row['error']:9.1e}")
            print(f"{'  onnxruntime-web':18}{other}{size:11}")
            best, middle = row["best"] / row["peer best"], row["middle"] / row["peer middle"]
            print(f"{'  ratio':18}{'':16}{best:8.2f}{middle:8.2f}{100 * row['bytes'] / size:10.2f}%")
            print(
                f"  {row['rate']:.1f} of at most {row['limit']:.1f} Gflop/s: {row['rate'] / row['limit']:.0%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
