"""The page about the web: what it shows runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks, prepare


def test_the_probe_of_the_page_is_a_module_with_a_multiply_add() -> None:
    wasmtime = pytest.importorskip("wasmtime", reason="wasmtime is not installed")
    page = (ROOT / "docs" / "web.md").read_text(encoding="utf-8")
    probe = bytes(map(int, re.findall(r"\d+", page.partition("const probe = ")[2].partition(";")[0])))
    for has_it in (True, False):
        config = wasmtime.Config()
        config.wasm_relaxed_simd = has_it
        engine = wasmtime.Engine(config)
        if has_it:
            wasmtime.Module.validate(engine, probe)
        else:
            with pytest.raises(wasmtime.WasmtimeError):
                wasmtime.Module.validate(engine, probe)


def test_the_example_writes_the_files_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "web.md").read_text(encoding="utf-8")
    prepare(tmp_path, monkeypatch)
    (block,) = (one for one in blocks(page) if one.language == "python")
    exec(compile(block.text, "docs/web.md", "exec"), {})
    written = capsys.readouterr().out.split()
    assert written == ["model.wasm", "model.weights", "model.js", "model.d.ts", "index.html"]
    assert all(f"`{name}`" in page for name in written)
