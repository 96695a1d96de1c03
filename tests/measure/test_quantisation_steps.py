"""Verification in steps of quantisation: which values have steps, and what is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from graft.cli.main import main
from graft.measure.quantisation_steps import in_steps, steps_of

QUANTISED = onnx.parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 21]> g (float[2,3] x) => (float[3,2] y, int8[2,3] q, float[2,3] z)
    <float scale = {0.5}, int8 zero = {3}>
    {
        q = QuantizeLinear(x, scale, zero)
        d = DequantizeLinear(q, scale, zero)
        y = Transpose(d)
        z = Relu(x)
    }"""
)


def test_integers_and_what_is_dequantised_have_a_step() -> None:
    model = ir.from_proto(onnx.shape_inference.infer_shapes(QUANTISED))
    assert steps_of(model.graph.outputs) == {"y": 0.5, "q": 1.0}


def test_elements_are_counted_by_the_steps_between_them() -> None:
    left, right = np.float32([0, 0.5, 1.5, -0.5]), np.float32([0, 0, 0, 0])
    assert in_steps(left, right, 0.5) == {-1: 1, 0: 1, 1: 1, 3: 1}
    assert in_steps(np.uint8([255, 0]), np.uint8([0, 255]), 1.0) == {-255: 1, 255: 1}


class OneStepOff(graft.JsonBackend):
    """A backend that rounds up what others round to the nearest."""

    name = "one_step_off"

    @graft.supports("QuantizeLinear")
    def any(self, node: Any) -> bool:
        return True

    def load(self, graph: Any, constants: Any) -> Any:
        return lambda inputs: [(np.ceil(inputs[0] / np.float32(0.5)) + 3).astype(np.int8)]


FEEDS = {"x": np.float32([[0, 0.5, 0.6], [1, 1.1, 1.2]])}


def test_a_step_is_within_one_step_and_not_within_none() -> None:
    report = graft.verify(QUANTISED, [OneStepOff(), "llvm"], inputs=FEEDS, steps=1, per_region=True)
    assert report.ok
    found = {row.name: dict(row.difference.steps) for row in report.outputs}
    assert found == {"y": {0: 3, 1: 3}, "q": {0: 3, 1: 3}, "z": {}}
    (row,) = [one for one in report.regions if one.backend == "one_step_off"]
    assert dict(row.isolated.steps) == {0: 3, 1: 3}
    assert not graft.verify(QUANTISED, [OneStepOff(), "llvm"], inputs=FEEDS, steps=0).ok
    assert not graft.verify(QUANTISED, [OneStepOff(), "llvm"], inputs=FEEDS).ok


def test_the_command_line_counts_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "quantised.onnx"
    onnx.save(QUANTISED, path)
    with pytest.raises(SystemExit) as ended:
        main(["verify", str(path), "-b", "llvm", "--steps", "1"])
    printed = capsys.readouterr().out
    assert ended.value.code == 0, printed
    assert "steps of q: 0: 6\n" in printed
    assert "agrees with reference (rtol 0.001, atol 0.0001, 1 steps of quantised values)" in printed


def test_steps_are_a_whole_number() -> None:
    with pytest.raises(graft.GraftError, match="steps"):
        graft.verify(QUANTISED, ["llvm"], steps="one")  # type: ignore[arg-type]
