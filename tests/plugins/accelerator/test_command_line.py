"""What the command line tells of a program: after its compilation, in a page, and as instructions."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import onnx
import pytest

from graft.cli.main import main
from graft.plugins.accelerator.assembly import assemble
from graft.plugins.accelerator.proof.prove import prove
from tests.end_to_end.quantized import Quantized

FACTS = {
    "cycles", "units", "utilization", "sram_bytes", "dram_bytes", "dram_reserved", "port_cycles", "layers",
    "padding_waste", "roofline", "instructions", "configuration", "gemm_steps", "alu_steps",
}  # fmt: skip


def model() -> onnx.ModelProto:
    """A convolution on the device, and a Softmax that is not."""
    layer = Quantized(3)
    x = layer.dequantize(layer.input(1, 20, 8, 8, dtype="int8"), 0.25, 3, "int8")
    w, _ = layer.weights(24, 20, 3, 3, axis=None, scale=0.125)
    y = layer.quantize(layer.add("Conv", x, w), 64.0, 3, "int8")
    return layer.model(layer.add("Softmax", layer.dequantize(y, 64.0, 3, "int8")), "float32")


def call(*words: object) -> str:
    """What a command that succeeds prints."""
    with redirect_stdout(StringIO()) as printed, pytest.raises(SystemExit) as caught:
        main([str(word) for word in words])
    assert not caught.value.code, printed.getvalue()
    return printed.getvalue()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, its artifact, and what was printed of it as JSON."""
    folder = tmp_path_factory.mktemp("command_line")
    onnx.save(model(), folder / "m.onnx")
    words = ("compile", folder / "m.onnx", "-b", "accelerator,reference", "-o", folder / "m.graft")
    (folder / "told.json").write_text(call(*words, "--json"))
    return folder


def test_a_compilation_tells_all_that_an_architect_asks(place: Path) -> None:
    told = json.loads((place / "told.json").read_text())
    (facts,) = told["modules"].values()
    assert set(facts) == FACTS
    assert set(facts["units"]) == {"load", "gemm", "alu", "store"}
    (layer,) = facts["layers"]
    assert 0 < layer["padding_waste"] == facts["padding_waste"] < 1
    assert layer["cycles"] < layer["cycles_one_buffer"] <= facts["roofline"]["not_hidden"]
    assert facts["roofline"]["hidden"] == facts["cycles"]


def test_a_compilation_tells_what_runs_where_and_why(place: Path) -> None:
    told = json.loads((place / "told.json").read_text())["operators"]
    assert told["placed"] == {"accelerator": 4, "reference": 2}
    (refused,) = (one for one in told["refused"] if one["operators"] == {"Softmax": 1})
    assert (refused["backend"], refused["code"], refused["reason"]) == (
        "accelerator", "no-pattern", "no instruction computes Softmax",
    )  # fmt: skip


def test_the_text_has_every_part_too(place: Path) -> None:
    text = call("compile", place / "m.onnx", "-b", "accelerator,reference", "-o", place / "again.graft")
    for part in ("cycles, ", "roofline: ", "DRAM: ", "SRAM: ", "UNIT ", "LAYER ", "PADDING", "ONE BUFFER"):
        assert part in text
    assert "\noperators: accelerator 4, reference 2\n" in text
    assert "no instruction computes Softmax" in text


def test_the_page_has_every_part_too(place: Path) -> None:
    call("report", place / "m.graft", "-o", place / "m.html")
    page = (place / "m.html").read_text()
    for part in ("roofline: ", "DRAM: ", "SRAM: ", "<th>unit</th>", "<th>padding</th>", "<th>one buffer</th>"):
        assert part in page
    assert "no instruction computes Softmax" in page


def test_the_instructions_in_an_artifact_are_a_program_again(place: Path) -> None:
    modules = json.loads(call("inspect", place / "m.graft", "--disassemble", "--json"))["modules"]
    (text,) = modules.values()
    prove(assemble(text))
    assert text in call("inspect", place / "m.graft", "--disassemble")
