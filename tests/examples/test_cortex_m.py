"""The models of MLPerf Tiny on an emulated Cortex-M4."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from benchmarks.cortex_m import cmsis_nn, training
from benchmarks.cortex_m.tiny import code_sizes, measured, missing
from benchmarks.zoo import TINY
from graft.cli.main import main

SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("tiny_ds_cnn", "tiny_resnet8", "tiny_mobilenet_v1")]


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize("name", ["tiny_autoencoder", *SLOW])
def test_a_board_gives_what_the_host_gives_with_little_code_beyond_kernels(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    found = measured(name, tmp_path)
    assert found.passed
    assert found.rest < 4096
    assert 0 < found.stack < 4096
    assert found.instructions > 100_000


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_board_trains_a_layer_to_what_the_host_gives(tmp_path: Path) -> None:
    found, changing = training.measured(tmp_path, **training.PARTS["last layer"])
    assert found.passed
    assert changing == 2 * 4 * (10 * 64 + 10) + 4 * 96
    assert found.arena < 16384


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.skipif(cmsis_nn.VARIABLE not in os.environ, reason=f"{cmsis_nn.VARIABLE} names no checkout of CMSIS-NN")
@pytest.mark.parametrize("name", TINY)
def test_a_network_takes_no_more_instructions_than_the_calls_of_cmsis_nn(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    for part in ("theirs", "own"):
        (tmp_path / part).mkdir()
    library = Path(os.environ[cmsis_nn.VARIABLE])
    theirs = cmsis_nn.instructions(name, library, tmp_path / "theirs")
    assert measured(name, tmp_path / "own").instructions <= sum(theirs)


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_report_has_the_instructions_of_each_kernel_and_a_budget_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digits = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"

    def exported(budget: int) -> str:
        given = ["export", digits, "-o", tmp_path / "m", "--target", "thumbv7em", "--profile", "bare-metal"]
        with pytest.raises(SystemExit) as caught:
            main([str(one) for one in (*given, "--report", tmp_path / "m.json", "--instructions", budget)])
        return f"{caught.value.code or 0} {capsys.readouterr()}"

    assert exported(1_000_000).startswith("1 ") and not (tmp_path / "m").exists()
    assert exported(10_000_000).startswith("0 ")
    facts = json.loads((tmp_path / "m.json").read_text())
    kernels = [one["instructions"] for one in facts["kernels"]]
    assert min(kernels) > 0 and 0.95 < sum(kernels) / facts["work"]["instructions"] <= 1
    assert facts["work"]["operations"] == 975_828
    assert facts["memory"]["arena"] == 12_288  # tensors alone: patches of images are copied a panel at a time


def test_the_sizes_in_a_linker_map_are_of_what_the_linker_kept() -> None:
    text = """
Discarded input sections

 .text          0x00000000       0x10 a/startup.o
Linker script and memory map

 .text.run      0x00000044       0x20 a/model.o
 .text.a_name_that_is_long
                0x00000064        0x4 a/model.o
 .bss.arena     0x20000000      0x400 a/model.o
 .text          0x00000068        0x8 /lib/libc_nano.a(memcpy.o)
"""
    assert code_sizes(text) == {"model.o": 0x24, "memcpy.o": 8}
