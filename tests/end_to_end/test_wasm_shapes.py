"""Modules for the web whose shapes vary: one module computes any shape within its ranges, as this machine does."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import graft
from examples.decoders.models import Config, llama
from tests.runtime.export.test_c_control import CHOICE, NESTED, TEXT

RUN = """
import { readFileSync, writeFileSync } from "node:fs";
const { load } = await import("./model.js");
const model = await load();
const data = readFileSync("inputs"), parts = [], said = [];
let at = 0;
for (const rows of JSON.parse(readFileSync("feeds.json"))) {
  const feeds = {};
  for (const [name, kind, bytes, shape] of rows) {
    const array = new globalThis[kind](data.buffer.slice(data.byteOffset + at, data.byteOffset + at + bytes));
    feeds[name] = shape ? { data: array, shape } : array;
    at += bytes;
  }
  try {
    const results = await model.run(feeds);
    said.push(model.outputs.map(({ name }) => results[name].shape ?? null));
    for (const { name } of model.outputs) parts.push(Buffer.from((results[name].data ?? results[name]).buffer));
  } catch (error) {
    said.push(error.message);
  }
}
writeFileSync("outputs", Buffer.concat(parts));
console.log(JSON.stringify(said));
"""
ARRAYS = {"float32": "Float32Array", "int64": "BigInt64Array", "int32": "Int32Array", "bool": "Uint8Array"}
BLOCK = """<ir_version: 10, opset_import: ["" : 20]>
g (float[batch, seq, 8] x, float[8, 8] w) => (float[batch, seq, 8] y, float[batch, 8] m) <int64[1] middle = {1}> {
  a = MatMul(x, w)
  b = Transpose<perm = [0, 2, 1]>(a)
  s = MatMul(x, b)
  p = Softmax<axis = -1>(s)
  o = MatMul(p, a)
  z = Concat<axis = 1>(o, x)
  r = Relu(z)
  m = ReduceSum<keepdims = 0>(r, middle)
  shape = Shape<start = 1, end = 2>(x)
  count = Cast<to = 1>(shape)
  y = Div(o, count)
}"""
ROWS = """<ir_version: 10, opset_import: ["" : 20]>
g (float[n, 4] x, float[n, 4] y) => (float[n, 4] z) { z = Add(x, y) }"""

Feeds = Mapping[str, np.ndarray]


def said(folder: Path, feeds: Sequence[Feeds], bare: bool = False) -> list[object]:
    """Run an exported model in Node on one set of inputs after another; return shapes or messages."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    rows = [
        [(k, ARRAYS[a.dtype.name], a.nbytes, *([] if bare else [a.shape])) for k, a in one.items()] for one in feeds
    ]
    (folder / "feeds.json").write_text(json.dumps(rows))
    (folder / "inputs").write_bytes(b"".join(array.tobytes() for one in feeds for array in one.values()))
    (folder / "run.mjs").write_text(RUN)
    (folder / "package.json").write_text('{"type": "module"}')
    done = subprocess.run(["node", "run.mjs"], cwd=folder, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return list(json.loads(done.stdout))


def check(folder: Path, model: onnx.ModelProto, feeds: Sequence[Feeds], **options: object) -> None:
    """Compare each result with that of this machine."""
    graft.export_wasm(model, folder, **options)  # type: ignore[arg-type]  # as the test has them
    program = graft.compile(model, ["llvm"], strict=True, threads=1, **options)  # type: ignore[call-overload]
    shapes = said(folder, feeds)
    data = (folder / "outputs").read_bytes()
    for number, one in enumerate(feeds):
        results = program.run(one)
        told = shapes[number]
        assert isinstance(told, list), told
        for (name, array), shape in zip(results.items(), told, strict=True):
            found, data = np.frombuffer(data[: array.nbytes], array.dtype), data[array.nbytes :]
            assert shape in (None, list(array.shape))
            np.testing.assert_allclose(found.reshape(array.shape), array, rtol=1e-4, atol=1e-4, err_msg=name)
    assert data == b""


def block_feeds(*sizes: tuple[int, int]) -> list[Feeds]:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((8, 8), np.float32)
    return [{"x": rng.standard_normal((batch, seq, 8), np.float32), "w": w} for batch, seq in sizes]


@pytest.mark.parametrize("options", [{}, {"dims": {"batch": (1, 4), "seq": (1, 64)}, "memory": "maximum"}])
def test_one_module_computes_small_large_and_small_shapes_again(tmp_path: Path, options: dict[str, object]) -> None:
    feeds = block_feeds((1, 3), (4, 64), (4, 64), (2, 17), (1, 3))
    check(tmp_path, onnx.parser.parse_model(BLOCK), feeds, **options)


SCAN_OPEN = """(float[n,4] x, float[n,t,4] xs) => (float[n,4] y, float[n,t,4] rows, float[t,n,4] back)
    <int64[1] axis = {1}> {
  y, rows, back = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
      scan_output_axes = [1, 0], scan_output_directions = [0, 1],
      body = b (float[n,4] s, float[n,4] v) => (float[n,4] u, float[n,4] r, float[n,4] m) {
        m = Mul(s, v) e = Add(v, m) r = Softmax(e) k = ReduceSum(r, axis) u = Add(k, m) }> (x, xs) }"""
"""Slices backwards, one output along another axis, one written backwards."""


@pytest.mark.parametrize("options", [{}, {"dims": {"n": (1, 40), "t": (0, 9)}, "memory": "maximum"}])
def test_a_scan_goes_over_any_number_of_slices_of_any_rows(tmp_path: Path, options: dict[str, object]) -> None:
    rng = np.random.default_rng(3)

    def feeds(n: int, t: int) -> Feeds:
        return {"x": rng.standard_normal((n, 4), np.float32), "xs": rng.standard_normal((n, t, 4), np.float32)}

    check(tmp_path, onnx.parser.parse_model(TEXT + SCAN_OPEN), [feeds(2, 3), feeds(33, 8), feeds(1, 1)], **options)


@pytest.mark.parametrize("options", [{}, {"dims": {"n": (1, 40)}, "memory": "maximum"}])
@pytest.mark.parametrize("text", [CHOICE, NESTED])
def test_branches_and_loops_take_any_rows(tmp_path: Path, text: str, options: dict[str, object]) -> None:
    rng, feeds = np.random.default_rng(4), list[Feeds]()
    for n, other in ((2, 0), (33, 1), (1, 4), (5, 2)):
        scalar = {"c": np.array(other % 2 == 0)} if text == CHOICE else {"trip": np.array(other)}
        shapes = {"x": (n, 4), "w": (4, 4)}
        feeds.append({name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()} | scalar)
    check(tmp_path, onnx.parser.parse_model(TEXT + text), feeds, **options)


def test_memory_grows_with_the_shapes(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(ROWS)
    x = np.arange(4 * 100_000, dtype=np.float32).reshape(-1, 4)
    check(tmp_path, model, [{"x": x[:3], "y": x[3:6]}, {"x": x, "y": x}, {"x": x[:0], "y": x[:0]}])


@pytest.mark.slow
def test_a_decoder_carries_its_caches_from_step_to_step(tmp_path: Path) -> None:
    model = llama(Config(layers=1, width=32, heads=4, kv_heads=2, inner=48, vocabulary=30, positions=64))
    rng = np.random.default_rng(0)
    feeds = [
        {
            "ids": rng.integers(0, 30, (2, count)),
            **{f"past_{one}0": rng.standard_normal((2, 2, past, 8), np.float32) for one in "kv"},
        }
        for count, past in ((5, 0), (1, 5), (1, 6))
    ]
    check(tmp_path, model, feeds)


def test_an_array_alone_has_the_one_shape_that_its_length_leaves_open(tmp_path: Path) -> None:
    graft.export_wasm(onnx.parser.parse_model(ROWS), tmp_path)
    x = np.ones((5, 4), np.float32)
    assert said(tmp_path, [{"x": x, "y": x}], bare=True) == [[[5, 4]]]
    text = (tmp_path / "model.d.ts").read_text(encoding="utf-8")
    assert '  /** float32[n, 4] */\n  "x": Float32Array | { data: Float32Array; shape: readonly number[] };' in text
    assert '  /** float32[n, 4] */\n  "z": { data: Float32Array; shape: number[] };' in text


def test_extents_that_disagree_are_refused(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[n, k] x, float[j, 2] w) => (float[?, 4] y) <float[3, 2] c = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}> {
      a = MatMul(x, w) y = Concat<axis = 1>(a, c) }"""
    graft.export_wasm(onnx.parser.parse_model(text), tmp_path)

    def rows(n: int, k: int, j: int) -> Feeds:
        return {"x": np.ones((n, k), np.float32), "w": np.ones((j, 2), np.float32)}

    assert said(tmp_path, [rows(3, 4, 4), rows(2, 4, 4), rows(3, 4, 5), rows(3, 1, 1)]) == [
        [None],
        "Concat (node 'y'): axis 0 of 'a' is 2 and axis 0 of 'c' is 3; they must be equal",
        "MatMul (node 'a'): axis 0 of 'w' is 5 and axis 1 of 'x' is 4; they must be equal",
        [None],
    ]


def test_shapes_that_do_not_fit_are_refused_and_the_next_run_works(tmp_path: Path) -> None:
    graft.export_wasm(onnx.parser.parse_model(ROWS), tmp_path, dims={"n": (2, 6)})

    def rows(x: int, y: int) -> Feeds:
        return {"x": np.ones((x, 4), np.float32), "y": np.ones((y, 4), np.float32)}

    wide = {"x": np.ones((4, 5), np.float32), "y": np.ones((4, 4), np.float32)}
    assert said(tmp_path, [rows(3, 3), rows(7, 7), rows(1, 1), rows(3, 4), wide, rows(4, 4)]) == [
        [[3, 4]],
        "input 'x' has 7 at axis 0, but dimension 'n' is at most 6",
        "input 'x' has 1 at axis 0, but dimension 'n' is at least 2",
        "input 'y' has 4 at axis 0, but dimension 'n' is 3 (input 'x', axis 0)",
        "input 'x' is float32[n,4]: give a Float32Array, or { data, shape } with a Float32Array and 2 numbers, not 20 "
        "elements of shape [4,5]",
        [[4, 4]],
    ]
