"""`graft.verify` and `graft.bench`: what they report, and what they say to bad input."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graft
from graft.errors import GraftError, InputError, PluginError
from tests.compiler.models import Vendor, feeds, model

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def wrong(region: Any) -> Any:
    """Compile a region of one Relu to one that is off by 1."""
    from graft.plugins.reference.backend import ReferenceBackend

    module = ReferenceBackend().compile(region, None)  # type: ignore[arg-type]
    broken = onnx.load_model_from_string(module.data)
    (node,) = broken.graph.node
    node.op_type = "Sign"
    data = broken.SerializeToString()
    return graft.Module(module.name, module.kind, module.functions, data, module.constants, "reference")


@pytest.mark.parametrize("against", ["reference", "onnxruntime"])
def test_a_right_program_is_verified(against: str) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    report = graft.verify(model(), ["llvm"], against=against, threads=1)
    assert report.ok
    assert [row.name for row in report.outputs] == ["y"]
    assert report.outputs[0].difference.max_abs < 1e-5
    assert json.loads(json.dumps(report.to_json()))["ok"] is True


def test_errors_are_told_apart_as_isolated_and_accumulated() -> None:
    report = graft.verify(model(), [Vendor("Relu", compile_=wrong), "llvm"], per_region=True, threads=1)
    assert not report.ok
    rows = {row.output: row for row in report.regions}
    assert not rows["r"].isolated.ok
    assert not rows["r"].accumulated.ok
    assert rows["r"].backend == "vendor"
    assert rows["h"].isolated.ok
    assert rows["h"].accumulated.ok
    assert rows["y"].isolated.ok
    assert not rows["y"].accumulated.ok
    assert report.first_bad is not None
    assert (report.first_bad.region, report.first_bad.backend, report.first_bad.nodes) == ("vendor_0", "vendor", ("r",))
    assert (report.first_bad.output, report.first_bad.alone) == ("r", True)
    assert json.loads(json.dumps(report.to_json()))["first_bad"]["nodes"] == ["r"]


def test_a_region_that_is_wrong_inside_the_program_only_is_named() -> None:
    class Forgetful(graft.JsonBackend):
        """Wrong in the first call, which is that of the whole program."""

        name = "forgetful"
        calls = 0

        @graft.supports("Relu")
        def single(self, node: Any) -> bool:
            return True

        def load(self, graph: Any, constants: Any) -> Any:
            def run(given: Any) -> Any:
                Forgetful.calls += 1
                return [np.maximum(given[0], 0) + np.float32(Forgetful.calls == 1)]

            return run

    proto = model("h = MatMul(x, w)\n r = Relu(h)\n n = Neg(r)\n y = Exp(n)")
    program = graft.compile(proto, "llvm", threads=1)
    report = graft.verify(proto, [Forgetful(), "llvm"], program=program, per_region=True, threads=1)
    assert report.first_bad is not None
    assert (report.first_bad.nodes, report.first_bad.output, report.first_bad.alone) == (("r",), "r", False)
    assert str(report.first_bad).startswith("region 'forgetful_0' of backend 'forgetful' (nodes r), output 'r': ")
    assert str(report.first_bad).endswith(", inside the program only")
    assert not report.ok
    accumulated = {row.output: row.accumulated.ok for row in report.regions}
    assert accumulated == {"h": True, "r": False, "y": False}


def test_a_region_is_verified_alone_where_its_inputs_do_not_tell_its_symbols() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[batch, 8] x) => (float[batch, 8] y)
      <int64[2] fours = {-1, 4}> {
      halves = Reshape (x, fours) r = Relu (halves) shape = Shape (x) rows = Reshape (r, shape) y = Softmax (rows) }"""
    report = graft.verify(onnx.parser.parse_model(text), [Vendor("Relu"), "llvm"], per_region=True, dims={"batch": 3})
    assert report.ok
    report = graft.verify(onnx.parser.parse_model(text), [Vendor("Relu"), "llvm"], per_region=True)
    assert report.ok
    assert {row.backend for row in report.regions} == {"vendor", "llvm"}


def test_each_region_of_the_digits_model_is_right() -> None:
    reason = graft.compiler.request.plugins().backends(["onednn"])[0].available()
    if reason is not None:
        pytest.skip(reason)
    report = graft.verify(str(DIGITS), ["onednn", "llvm"], per_region=True, threads=1)
    assert report.ok
    assert "onednn" in {row.backend for row in report.regions}
    assert all(row.isolated.ok and row.accumulated.ok for row in report.regions)


def test_a_program_from_an_artifact_is_verified(tmp_path: Path) -> None:
    graft.compile(model(), ["llvm"], threads=1).save(tmp_path / "m.graft")
    program = graft.runtime.load(tmp_path / "m.graft", threads=1)
    assert graft.verify(model(), program=program).ok
    other = model("h = MatMul(x, w)\n r = Neg(h)\n y = Neg(r)")
    assert not graft.verify(other, program=program).ok


def test_wrong_questions_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GraftError) as caught:
        graft.verify(model(), ["llvm"], against="tflite")
    assert (
        caught.value.message == "cannot verify against 'tflite'; choose one of reference, onnxruntime, vendor-simulator"
    )
    with pytest.raises(InputError) as wrong_name:
        graft.verify(model(), ["llvm"], inputs={"z": np.zeros(1)}, threads=1)
    assert wrong_name.value.message == "no input 'z'; the program takes 'x', 'w'"
    with pytest.raises(InputError):
        graft.bench(model(), ["llvm"], inputs={"x": feeds(model())["x"]}, threads=1, seconds=0.01)
    with pytest.raises(GraftError) as peer:
        graft.bench(model(), ["llvm"], compare=["tflite"], threads=1, seconds=0.01)
    assert (
        peer.value.message == "cannot compare with 'tflite'; choose among onnxruntime, openvino, mnn, torch, iree, tvm"
    )
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for call in (
        lambda: graft.verify(model(), ["llvm"], against="onnxruntime", threads=1),
        lambda: graft.bench(model(), ["llvm"], compare=["onnxruntime"], threads=1, seconds=0.01),
    ):
        with pytest.raises(GraftError) as missing:
            call()
        assert missing.value.message == "onnxruntime is not installed; pip install 'graft-compiler[onnxruntime]'"


def test_a_benchmark_has_a_row_for_each() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    report = graft.bench(model(), ["llvm"], compare=["onnxruntime"], threads=1, seconds=0.05, warmup=0.01)
    assert [row.name for row in report.rows] == ["graft", "onnxruntime"]
    assert report.rows[0].ratio == 1.0
    for row in report.rows:
        assert row.rounds >= 5
        assert 0 < row.min_ms <= row.median_ms <= row.p90_ms <= row.p99_ms
    assert json.loads(json.dumps(report.to_json()))["threads"] == 1


def test_a_backend_that_fails_is_an_error_of_strict_verification() -> None:
    def fail(region: object) -> object:
        raise OSError("no license")

    assert graft.verify(model(), [Vendor("Relu", compile_=fail), "llvm"], threads=1).ok
    with pytest.raises(PluginError):
        graft.verify(model(), [Vendor("Relu", compile_=fail), "llvm"], threads=1, strict=True)
