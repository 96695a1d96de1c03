"""`graft grad`: what is written, and what is said."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner

from graft.cli.common import State
from graft.cli.main import cli
from graft.errors import ModelError

TEXT = """<ir_version: 10, opset_import: ["" : 22]> net (float[n,2] x) => (float[n,3] y)
    <float[2,3] w = {1, 2, 3, 4, 5, 6}, float[3] b = {0, 0, 0}> { h = MatMul (x, w) y = Add (h, b) }"""


def written(folder: Path) -> Path:
    path = folder / "net.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    return path


def run(*arguments: object) -> str:
    result = CliRunner().invoke(cli, ["grad", *map(str, arguments)], obj=State(), catch_exceptions=False)
    return result.output


def test_a_loss_is_added_and_differentiated(tmp_path: Path) -> None:
    output = tmp_path / "out.onnx"
    said = run(written(tmp_path), "--loss", "cross-entropy", "-o", output)
    assert said == f"wrote {output}: y, loss, w_grad, b_grad\n"
    model = onnx.load(output)
    onnx.checker.check_model(model, full_check=True)
    assert [one.name for one in model.graph.input] == ["x", "target"]


def test_what_is_kept_and_what_is_zero_is_said_in_json(tmp_path: Path) -> None:
    found = json.loads(run(
        written(tmp_path), "--loss", "mse", "--wrt", "w", "--wrt", "target", "--keep", "loss", "--json",
        "-o", tmp_path / "o.onnx",
    ))  # fmt: skip
    assert found["outputs"] == ["loss", "w_grad", "target_grad"]
    assert found["notes"] == []


def test_what_is_computed_again_is_said_and_a_budget_that_cannot_be_met_fails(tmp_path: Path) -> None:
    output = tmp_path / "o.onnx"
    said = run(written(tmp_path), "--loss", "mse", "--shape", "x=512,2", "--recompute", "min-cut", "-o", output)
    assert said.startswith("recompute: ") and "bytes between kernels" in said
    with pytest.raises(ModelError, match=r"a budget of 7 bytes cannot be met: .* take 192 bytes at least"):
        run(tmp_path / "net.onnx", "--loss", "mse", "--recompute", "7", "-o", output)
