"""`graft.verify(against="vendor-simulator")`: layers in a made-up vendor's simulator."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graft
from graft.cli.main import main
from graft.errors import GraftError, VerifyError
from tests.compiler.models import model

QUANTISED = """<ir_version: 10, opset_import: ["" : 21]> g (int8[2,50] x) => (int8[2,50] y)
<float s = {0.5}, int8 z = {0}> {
  a = DequantizeLinear(x, s, z) b = Neg(a) c = QuantizeLinear(b, s, z)
  d = DequantizeLinear(c, s, z) e = Abs(d) y = QuantizeLinear(e, s, z)
}"""


class Npu(graft.JsonBackend):
    """Takes layers of floats; its simulator is right but for ``error``, its device is off by ``device``."""

    name = "npu"

    def __init__(self, error: float = 0.0, device: float = 0.0, fault: str = "") -> None:
        self._error, self._device, self._fault = np.float32(error), np.float32(device), fault

    @graft.supports("Relu", "Neg")
    def single(self, node: Any) -> bool:
        return True

    def load(self, graph: Any, constants: Any) -> Any:
        kernels = {"Relu": lambda x: np.maximum(x, 0), "Neg": np.negative}
        return lambda inputs: graph.run(
            inputs, constants, lambda node, arrays: [kernels[node.name](*arrays) + self._device]
        )

    def device_fault(self) -> str:
        return self._fault

    def simulated(self, module: Any, inputs: Any) -> Any:
        (node,) = json.loads(module.data)["nodes"][-1:]
        return [(np.maximum(inputs[0], 0) if node["name"] == "Relu" else -inputs[0]) + self._error]


BODY = "a = Relu(x)\n b = Neg(a)\n y = Relu(b)"


def layers(backend: Any, **options: Any) -> Any:
    proto = model(BODY, "float[2,3] x", "float[2,3] y")
    return graft.verify(proto, [backend, "llvm"], against="vendor-simulator", threads=1, **options)


def test_every_layer_is_a_row_with_the_simulator_beside_model_and_program() -> None:
    report = layers(Npu())
    assert report.ok
    assert [(row.nodes, row.output) for row in report.layers] == [(("a",), "a"), (("b",), "b"), (("y",), "y")]
    assert len({row.region for row in report.layers}) == 3
    assert {row.program.max_abs for row in report.layers} == {0.0}
    assert json.loads(json.dumps(report.to_json()))["layers"][0]["nodes"] == ["a"]


def test_a_wrong_simulator_and_a_wrong_device_are_told_apart() -> None:
    wrong = layers(Npu(error=0.25))
    assert not wrong.ok
    assert [(row.simulated.max_abs, row.program.max_abs) for row in wrong.layers] == [pytest.approx((0.25, 0.25))] * 3
    broken = layers(Npu(device=0.25))
    assert [(row.simulated.max_abs, row.program.max_abs) for row in broken.layers] == [pytest.approx((0.0, 0.25))] * 3


def test_a_layer_needs_no_device() -> None:
    report = layers(Npu(fault="no driver"))
    assert report.ok
    assert {row.program for row in report.layers} == {None}


def test_a_program_that_runs_by_the_simulator_is_held_against_the_model_alone() -> None:
    class Simulated(Npu):
        simulates = True

    report = layers(Simulated(device=0.25))
    assert [row.simulated.max_abs for row in report.layers] == pytest.approx([0.25] * 3)
    assert {row.program for row in report.layers} == {None}
    assert not report.ok


class Integers(graft.Backend):
    """Takes whole layers of integers; its simulator is a step too high wherever ``where`` says so."""

    name = "integers"
    quantized = True

    def __init__(self, step: int = 1) -> None:
        self._step = step
        self._kinds: dict[str, str] = {}

    @property
    def patterns(self) -> Any:
        from graft.patterns import Composite, is_op, wildcard

        layer = is_op("QuantizeLinear")(is_op("Neg", "Abs")(is_op("DequantizeLinear")(wildcard(), ...)), ...)
        return (Composite("integers.layer", layer),)

    def compile(self, region: Any, options: Any) -> Any:
        from graft.plugins.reference.backend import ReferenceBackend

        self._kinds[region.name] = next(one.op_type for one in region.opened(region.nodes()[0]) if one.dtype != "int8")
        made = ReferenceBackend().compile(region, options)
        return replace(made, plugin="reference")

    def simulated(self, module: Any, inputs: Any) -> Any:
        x = inputs[0].astype(int)
        made = np.clip(np.abs(x) if self._kinds[module.name] == "Abs" else -x, -128, 127)
        return [(made + np.where(np.arange(x.size).reshape(x.shape) < 3, self._step, 0)).astype(np.int8)]


def test_differences_of_integers_are_counted_in_steps() -> None:
    proto, given = onnx.parser.parse_model(QUANTISED), {"x": np.arange(-50, 50, dtype=np.int8).reshape(2, 50)}
    report = graft.verify(proto, [Integers(), "llvm"], against="vendor-simulator", inputs=given, threads=1)
    assert [dict(row.simulated.steps) for row in report.layers] == [{0: 97, 1: 3}] * 2
    assert report.ok  # a step is allowed, if nothing else is said
    assert not graft.verify(
        proto, [Integers(), "llvm"], against="vendor-simulator", inputs=given, threads=1, steps=0
    ).ok
    assert not graft.verify(proto, [Integers(2), "llvm"], against="vendor-simulator", inputs=given, threads=1).ok


def test_what_has_no_simulator_is_told() -> None:
    with pytest.raises(VerifyError) as caught:
        layers("reference")
    assert caught.value.message == (
        "no layer is of a backend with a simulator (backends of the layers: reference); name one with -b, or verify "
        "against 'reference'"
    )
    with pytest.raises(GraftError) as anew:
        layers(Npu(), per_region=True)
    assert anew.value.message == "vendor-simulator compiles each layer anew; leave out program and per_region"


def test_a_simulator_that_gives_too_little_is_told() -> None:
    class Empty(Npu):
        def simulated(self, module: Any, inputs: Any) -> Any:
            return []

    with pytest.raises(VerifyError) as caught:
        layers(Empty())
    assert caught.value.message == (
        "backend 'npu': its simulator gives 0 arrays for region 'npu_0', which has 1 outputs"
    )


def test_the_command_prints_layers_and_a_histogram(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(onnx.parser.parse_model(QUANTISED), tmp_path / "m.onnx")
    plugin = tmp_path / "plugin.py"
    plugin.write_text("from tests.measure.test_vendor_simulators import Integers as I\n\n\nclass Mine(I):\n    pass\n")
    command = ["verify", str(tmp_path / "m.onnx"), "-b", "integers,llvm", "--plugin", str(plugin), "--against",
               "vendor-simulator"]  # fmt: skip

    def run(*more: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as caught:
            main([*command, *more])
        printed = capsys.readouterr()
        return int(str(caught.value.code or 0)), printed.out + printed.err

    code, printed = run()
    lines = [line.split() for line in printed.splitlines()]
    assert code == 0
    assert lines[0] == ["OUTPUT", "OF", "LAYER", "BACKEND", "MAX", "ABS", "LAST", "BIT", "MORE", "PROGRAM", "ABS",
                        "WITHIN"]  # fmt: skip
    assert lines[1] == ["c", "integers", "1", "3", "0", "1", "yes"]
    assert lines[4][:3] == ["STEPS", "ELEMENTS", "SHARE"]
    assert [line[:2] for line in lines[5:7]] == [["0", "194"], ["+1", "6"]]
    assert run("--steps", "0")[0] == 4
    code, printed = run("--per-region")
    assert code != 0
    assert "vendor-simulator compiles each layer anew" in printed
