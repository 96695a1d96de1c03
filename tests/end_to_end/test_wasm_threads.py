"""Modules for the web with threads: workers of Node and of a browser take part, and the answers are the same."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import onnx.parser
import pytest

import graft
from tests.report.webdriver import browser

BLOCK = """<ir_version: 10, opset_import: ["" : 20]>
g (float[SEQ, 64] x, float[64, 512] w) => (float[SEQ, SEQ] p) {
  a = MatMul(x, w)
  b = Transpose<perm = [1, 0]>(a)
  s = MatMul(a, b)
  p = Softmax<axis = -1>(s)
}"""
RUN = """
const [one, many] = await Promise.all([import("./one/model.js"), import("./many/model.js")]);
const filled = (count) => Float32Array.from({ length: count }, (_, at) => Math.sin(at) / 8);
export async function compared(sizes, threads) {
  const plain = await one.load(), model = await many.load(threads ? { threads } : {});
  let most = 0;
  for (let round = 0; round < 20; round++) {
    for (const size of sizes) {
      const feeds = { x: filled(size * 64), w: filled(64 * 512) };
      const [wanted, found] = [plain, model].map((it) => it.runSync(feeds).p).map((it) => it.data ?? it);
      if (found.length !== size * size) throw new Error(`${found.length} elements`);
      found.forEach((value, at) => { most = Math.max(most, Math.abs(value - wanted[at])); });
    }
  }
  const { threads: count } = model;
  model.close();
  return { most, count };
}
"""


def export(folder: Path, extent: str) -> None:
    model = onnx.parser.parse_model(BLOCK.replace("SEQ", extent))
    for name, target in (("one", "wasm32+simd128"), ("many", "wasm32+threads")):
        files = [path.name for path in graft.export_wasm(model, folder / name, target=target)]
        assert ("model.worker.js" in files) == (name == "many")
    (folder / "compared.js").write_text(RUN)
    (folder / "package.json").write_text('{"type": "module"}')


@pytest.mark.parametrize(
    ("extent", "sizes"), [pytest.param("96", [96], marks=pytest.mark.slow), ("seq", [32, 200, 96])]
)
def test_workers_of_node_compute_what_one_thread_does(tmp_path: Path, extent: str, sizes: list[int]) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    export(tmp_path, extent)
    run = 'const { compared } = await import("./compared.js"); console.log(JSON.stringify(await compared(%s, 2)));'
    (tmp_path / "run.mjs").write_text(run % json.dumps(sizes))
    done = subprocess.run(["node", "run.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["most"] < 1e-6
    assert found["count"] in (1, 2)


def test_an_index_out_of_range_is_found_by_whichever_thread_has_it(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    text = """<ir_version: 11, opset_import: ["" : 21]>
    g (float[50, 512] x, int64[400] i) => (float[400, 512] y) { [pick] y = Gather(x, i) }"""
    graft.export_wasm(onnx.parser.parse_model(text), tmp_path, target="wasm32+threads")
    run = """const { load } = await import("./model.js"); const model = await load({ threads: 2 });
    const feeds = { x: new Float32Array(50 * 512).fill(1), i: new BigInt64Array(400) };
    for (const [place, index] of [[0, 49n], [399, 77n], [399, 3n], [0, -51n]]) {
      feeds.i[place] = index;
      try { console.log(model.runSync(feeds).y.length); } catch (error) { console.log(error.message); }
    }"""
    (tmp_path / "run.mjs").write_text(run)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    done = subprocess.run(["node", "run.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    said = "'pick': index {} is out of range: axis 0 has extent 50, so that -50 to 49 are legal"
    assert done.stdout.splitlines() == ["204800", said.format(77), "204800", said.format(-51)]


def test_a_model_that_was_closed_says_so(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    export(tmp_path, "96")
    run = """const { load } = await import("./many/model.js"); const model = await load(); model.close();
    try { model.runSync({}); } catch (error) { console.log(error.message); }"""
    (tmp_path / "run.mjs").write_text(run)
    done = subprocess.run(["node", "run.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("the model does not run any more (it was closed); load it again\n", "")


class _Handler(SimpleHTTPRequestHandler):
    is_isolated = True

    def end_headers(self) -> None:
        if self.is_isolated:
            self.send_header("Cross-Origin-Opener-Policy", "same-origin")
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _Open(_Handler):
    is_isolated = False


@contextmanager
def served(folder: Path, handler: type[_Handler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/index.html"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


PAGE = """<!doctype html><p id="found">waiting</p><script type="module">
const say = (text) => { document.querySelector("#found").textContent = text; };
try {
  const { compared } = await import("./compared.js");
  const processors = navigator.hardwareConcurrency, isolated = crossOriginIsolated;
  say(JSON.stringify({ ...await compared([96]), isolated, processors }));
} catch (error) {
  say(JSON.stringify(String(error)));
}
</script>"""


def test_a_page_uses_workers_where_it_is_isolated_and_one_thread_elsewhere(tmp_path: Path) -> None:
    export(tmp_path, "96")
    (tmp_path / "index.html").write_text(PAGE, encoding="utf-8")
    with browser() as window:
        for handler in (_Handler, _Open):
            with served(tmp_path, handler) as address:
                window.visit(address)
                for _ in range(300):
                    if window.text("#found") != "waiting":
                        break
                    time.sleep(0.1)
                found = json.loads(window.text("#found"))
            assert isinstance(found, dict), found
            assert found["isolated"] == handler.is_isolated
            assert found["most"] < 1e-6
            assert found["count"] == (min(8, found["processors"]) if handler.is_isolated else 1)
