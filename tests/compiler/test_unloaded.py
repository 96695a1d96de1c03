"""A program for a device that is not here is compiled and saved, and says what is missing where it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import graft
from graft.errors import ArtifactError, UnsupportedError
from graft.plugins.cuda.module import device_fault
from graft.plugins.cuda.source.nvrtc import version

MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 22]> g (float[2, 8] x) => (float[2, 8] y) { y = Relu (x) }'
)


class Card(graft.JsonBackend):
    """A backend whose engine starts on a card, which is not here."""

    name = "card"
    fault = "no card in any slot"

    @graft.supports("Relu")
    def relu(self, node: Any) -> bool:
        return True

    def device_fault(self) -> str:
        return self.fault

    def load(self, graph: Any, constants: Any) -> Any:
        raise OSError("no card in any slot")


class Broken(Card):
    """A backend whose engine does not start, though its device is here."""

    name = "broken"
    fault = ""


def test_a_program_for_a_device_that_is_missing_tells_its_shapes_and_can_be_saved(tmp_path) -> None:
    program = graft.compile(MODEL, [Card()])
    assert [str(one) for one in (*program.inputs, *program.outputs)] == ["float32[2,8]", "float32[2,8]"]
    program.save(tmp_path / "f.graft")
    assert (tmp_path / "f.graft").stat().st_size > 1000


def test_running_it_says_what_is_missing() -> None:
    program = graft.compile(MODEL, [Card()])
    with pytest.raises(ArtifactError) as caught:
        program.run({"x": np.zeros((2, 8), np.float32)})
    said = caught.value.message
    assert said.startswith("the program is compiled, and cannot run here: ")
    assert "no card in any slot" in said
    assert said.endswith("; save it, and load it where the device is")


def test_a_module_that_is_broken_is_an_error_where_no_other_backend_takes_its_region() -> None:
    with pytest.raises(UnsupportedError, match="no backend takes Relu"):
        graft.compile(MODEL, [Broken()])


def test_where_another_backend_takes_the_region_the_program_runs() -> None:
    program = graft.compile(MODEL, [Card(), "llvm"])
    x = np.full((2, 8), -1, np.float32)
    np.testing.assert_array_equal(program(x), np.zeros_like(x))


def test_a_region_that_cannot_be_loaded_takes_no_other_away() -> None:
    """Kernels of ``irregular`` count the arguments of their calls, when each region is tried by itself, too."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 22]> g (float[2, 8] x) => (float[2, 8] y, int64[2, n] z) '
        "{ y = Relu (x) z = NonZero (x) }"
    )
    plan = graft.Plan.of(graft.compile(model, [Broken(), "irregular", "llvm", "reference"]))
    assert [(row.op_type, row.backend) for row in plan.placements] == [("Relu", "llvm"), ("NonZero", "irregular")]


@pytest.mark.parametrize("backend", ["cuda", "cuda_source"])
def test_cuda_compiles_without_a_driver_and_loading_names_the_device(backend: str, tmp_path) -> None:
    if not device_fault():
        pytest.skip("an NVIDIA driver is here, or that of a test before")
    if backend == "cuda_source" and "not installed" in version():
        pytest.skip("NVRTC is not installed")
    program = graft.compile(MODEL, [backend])
    program.save(tmp_path / "f.graft")
    with pytest.raises(ArtifactError) as caught:
        graft.runtime.load(tmp_path / "f.graft")
    assert caught.value.message == (
        f"device 'cuda' cannot be used: {device_fault()}; the program computes on 'cuda', and no region is compiled "
        "anew for another memory; install what its modules need, or compile the model again for this machine"
    )
