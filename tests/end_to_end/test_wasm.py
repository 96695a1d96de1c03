"""Programs for the web give the answers of this machine: run in Node, and by the page of digits in a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

import graft
from benchmarks.zoo import model
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.core.shapes.sample_inputs import sample_inputs
from graft.errors import ArtifactError, CompileError
from graft.runtime.export.wasm import export_wasm
from tests.report.webdriver import Browser, browser
from tests.runtime.export.test_c_control import CHOICE, GROWS, NESTED, SCAN, TEXT

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
ARRAYS = {"float32": "Float32Array", "int64": "BigInt64Array", "int32": "Int32Array", "bool": "Uint8Array"}
GATHER = """<ir_version: 11, opset_import: ["" : 21]>
g (float[5, 3] x, int64[2] i) => (float[2, 3] y) { [pick] y = Gather(x, i) }"""
RING = [(0.5 + 0.2 * np.sin(turn), 0.5 - 0.35 * np.cos(turn)) for turn in np.linspace(0, 2 * np.pi, 17)]
DRAWN = {0: [RING], 1: [[(0.42, 0.25), (0.5, 0.15), (0.5, 0.5), (0.5, 0.85)]]}
"""Digits as strokes through points of the board."""


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
    compare(folder, network, sample_inputs(network), tolerance, **options)


def compare(
    folder: Path, network: ir.Model, feeds: dict[str, np.ndarray], tolerance: float = 1e-4, **options: object
) -> None:
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


def parsed(text: str) -> ir.Model:
    return graft.load(onnx.parser.parse_model(TEXT + text.replace("[n,", "[3,")))


@pytest.mark.parametrize("chosen", [True, False])
def test_a_branch_is_chosen_when_the_module_runs(tmp_path: Path, chosen: bool) -> None:
    network = parsed(CHOICE)
    compare(tmp_path, network, sample_inputs(network) | {"c": np.array(chosen)})


def test_a_scan_goes_along_any_axis_both_ways(tmp_path: Path) -> None:
    check(tmp_path, parsed(SCAN.replace("float[6,4] back) {", "float[6,4] back) <int64[1] axis = {0}> {")))


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_branches_inside_a_loop_are_chosen_in_each_round(tmp_path: Path, trips: int) -> None:
    network = parsed(NESTED)
    compare(tmp_path, network, sample_inputs(network) | {"trip": np.array(trips)})


STACKS = """(float[4] x, bool go, int64 most) => (float[4] y, float[3,4] rows) <int64 trips = {3}> {
  y, rows = Loop (trips, go, x) <body = b (int64 i, bool c, float[4] p) => (bool d, float[4] q, float[4] r) {
    f = Cast <to = 1> (i) q = Add(p, f) r = Mul(q, q) d = Less(i, most) }> }"""


def test_a_loop_stacks_slices_and_one_that_ends_too_early_is_an_error(tmp_path: Path) -> None:
    network = parsed(STACKS)
    feeds = {"x": np.arange(4, dtype=np.float32), "go": np.array(True), "most": np.array(9)}
    compare(tmp_path, network, feeds)
    assert run(tmp_path, feeds | {"most": np.array(0)}) == "a loop makes another number of slices than its output has\n"


def test_shapes_that_a_loop_finds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        exported(graft.load(onnx.parser.parse_model(TEXT + GROWS)), tmp_path)
    assert caught.value.message == (
        "the program cannot be one WebAssembly module: dimension 'k' is known only when 'rows' is computed; only "
        "shapes that follow from those of inputs have a place; export a C project, whose caller has room for "
        "slices that a loop counts, or a library"
    )


@pytest.mark.parametrize("name", ["functions", "products"])
def test_a_module_without_vectors_gives_the_same_answers(tmp_path: Path, name: str) -> None:
    check(tmp_path, network_of(name), target="wasm32")


def test_a_quantised_network_is_the_same_to_the_bit_but_for_ties(tmp_path: Path) -> None:
    check(tmp_path, model("int8_digits"), 1e-3)


def test_an_index_out_of_range_is_an_error_with_its_node(tmp_path: Path) -> None:
    exported(graft.load(onnx.parser.parse_model(GATHER)), tmp_path)
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    assert run(tmp_path, {"x": x, "i": np.array([4, -5], np.int64)}) == ""
    assert (np.frombuffer((tmp_path / "outputs").read_bytes(), np.float32) == x[[4, 0]].reshape(-1)).all()
    assert run(tmp_path, {"x": x, "i": np.array([0, 5], np.int64)}) == (
        "'pick': index 5 is out of range: axis 0 has extent 5, so that -5 to 4 are legal\n"
    )


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"x": np.zeros((5, 3), np.float32)}, "input 'i' is int64[2]: give a BigInt64Array of 2, not nothing"),
        (
            {"x": np.zeros(4, np.float32), "i": np.zeros(2, np.int64)},
            "input 'x' is float32[5,3]: give a Float32Array of 15, not Float32Array of 4",
        ),
        (
            {"x": np.zeros((5, 3), np.float32), "i": np.zeros(2, np.int32)},
            "input 'i' is int64[2]: give a BigInt64Array of 2, not Int32Array of 2",
        ),
        ({"z": np.zeros(1, np.float32)}, "no input 'z'; the model takes 'x', 'i'"),
    ],
)
def test_a_wrong_input_is_refused_with_what_is_wanted(
    tmp_path: Path, feeds: dict[str, np.ndarray], message: str
) -> None:
    exported(graft.load(onnx.parser.parse_model(GATHER)), tmp_path)
    assert run(tmp_path, feeds) == f"{message}\n"


def test_weights_of_another_export_are_refused(tmp_path: Path) -> None:
    exported(network_of("digits"), tmp_path)
    data = bytearray((tmp_path / "model.weights").read_bytes())
    data[40] ^= 1
    (tmp_path / "model.weights").write_bytes(data)
    program = "const { load } = await import('./model.js'); await load().catch((error) => console.log(error.message));"
    (tmp_path / "run.mjs").write_text(program)
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    done = subprocess.run(["node", "run.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    size = len(data)
    assert done.stdout == (
        f"the weights are not those of this module: {size} bytes of {size}, another header; export both again\n"
    )


def test_the_same_model_gives_the_same_files(tmp_path: Path) -> None:
    first, second = (graft.export_wasm(network_of("digits"), tmp_path / name) for name in "ab")
    assert [one.read_bytes() for one in first] == [one.read_bytes() for one in second]
    assert [one.name for one in first] == ["model.wasm", "model.weights", "model.js", "model.d.ts", "index.html"]


def test_types_name_inputs_and_outputs(tmp_path: Path) -> None:
    graft.export_wasm(onnx.parser.parse_model(GATHER), tmp_path, name="pick")
    text = (tmp_path / "pick.d.ts").read_text(encoding="utf-8")
    assert '  /** int64[2] */\n  "i": BigInt64Array;' in text
    assert '  /** float32[2, 3] */\n  "y": Float32Array;' in text


def test_a_program_for_this_machine_is_no_module(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"^the program was compiled for x86_64, not for wasm32; compile it with"):
        graft.export_wasm(network_of("digits"), tmp_path, target="x86-64-v3")


def test_a_program_for_the_web_is_not_loaded_here() -> None:
    with pytest.raises(ArtifactError) as error:
        graft.compile(network_of("digits"), ["llvm"], target="wasm32+simd128")
    assert str(error.value) == (
        "the program was compiled for wasm32, where no runtime is that could load it; export it instead, as "
        "graft.export_wasm does"
    )


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Browser]:
    """The page of the digits model, served as on the web."""
    graft.export_wasm(network_of("digits"), tmp_path)
    with browser() as window:
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            window.visit(f"http://127.0.0.1:{server.server_port}/index.html")
            for _ in range(100):
                if window.text("#status") != "loading …":
                    break
                time.sleep(0.1)
            yield window
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_the_page_knows_the_digit_that_is_drawn(page: Browser) -> None:
    assert page.text("#status") == "ready"
    box = page.run("const b = document.querySelector('#board').getBoundingClientRect(); return [b.x, b.y, b.width]")
    x, y, size = box
    for digit, strokes in DRAWN.items():
        page.click("#clear")
        for stroke in strokes:
            points = [(round(x + size * across), round(y + size * down)) for across, down in stroke]
            moves = [{"type": "pointerMove", "duration": 20, "x": a, "y": b} for a, b in points]
            page.pointer(moves[0], {"type": "pointerDown", "button": 0}, *moves[1:], {"type": "pointerUp", "button": 0})
        assert page.text("#status").startswith(f"{digit}, in "), page.text("#status")
        assert page.run("return document.querySelector('li.best').dataset.digit") == str(digit)
        shares = page.run("return [...document.querySelectorAll('#bars i')].map((one) => parseFloat(one.style.width))")
        assert shares[digit] == max(shares)
        assert sum(shares) == pytest.approx(100, abs=0.1)
