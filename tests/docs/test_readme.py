"""README.md: every Python block and every shell block runs, in order, as written."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest

import graft
from graft.compiler.request import plugins
from tests.docs.blocks import ROOT, blocks, execute, prepare, shell

PAGE = (ROOT / "README.md").read_text(encoding="utf-8")
MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[2,3] x) => (float[2,4] y) <float[3,4] w = {-1, 2, 3, 4, 5, -6, 7, 8, 9, 10, -11, 12}>
{ t = MatMul(x, w)  y = Relu(t) }
"""


def test_the_blocks_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    missing = plugins().backends(["onednn"])[0].available()
    if missing is not None:
        pytest.skip(missing)
    prepare(tmp_path, monkeypatch)
    names: dict[str, object] = {"__name__": "readme"}
    ran = []
    for block in blocks(PAGE):
        if block.language == "python":
            execute(block, "README.md", names)
        elif block.language == "sh" and not block.text.startswith("make "):
            shell(block.text)
        else:
            continue
        ran.append(block.language)
    assert ran.count("python") >= 4
    assert ran.count("sh") >= 2
    for name in ("digits.graft", "digits.html", "plan.json", "plan.html", "results/logits.npy"):
        assert (tmp_path / name).stat().st_size > 0
    assert np.asarray(names["logits"]).shape == (1, 10)


def test_the_plugin_of_the_page_works_as_it_stands() -> None:
    block = next(block for block in blocks(PAGE) if "class Npu" in block.text)
    names: dict[str, object] = {"__name__": "readme"}
    execute(block, "README.md", names)
    npu = names["Npu"]
    assert isinstance(npu, type)
    model = onnx.parser.parse_model(MODEL)
    program = graft.compile(model, [npu()])
    x = np.arange(6, dtype=np.float32).reshape(2, 3) - 3
    weights = onnx.numpy_helper.to_array(model.graph.initializer[0])
    np.testing.assert_allclose(program(x), np.maximum(x @ weights, 0))


def test_the_targets_of_make_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = [line for block in blocks(PAGE) for line in block.text.splitlines() if line.startswith("make ")]
    assert len(lines) == 2
    for line in lines:
        assert f"\n{line.split()[1]}:" in makefile


def test_the_entry_point_is_of_the_group_that_is_looked_for() -> None:
    from graft.plugins.hooks import PROJECT

    block = next(block for block in blocks(PAGE) if block.language == "toml")
    assert list(tomllib.loads(block.text)["project"]["entry-points"]) == [PROJECT]
