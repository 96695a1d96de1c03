"""Whole models by blocks and threads compute what they compute on a processor: in the emulator, and behind a driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import graft
from benchmarks.data.symbolic_zoo import dims, with_symbols
from benchmarks.zoo import NAMES
from benchmarks.zoo import model as zoo_model
from graft.core.importer.load import load
from graft.core.shapes.sample_inputs import sample_inputs
from tests.plugins.c_source.reduced_models import reduced
from tests.plugins.cuda.fake_driver import Emulated, build

SMALL = (
    "digits",
    "tiny_autoencoder",
    "tiny_resnet8",
    "tiny_ds_cnn",
    "tiny_mobilenet_v1",
    "int8_digits",
    "int8_tiny_resnet8",
)
pytestmark = pytest.mark.filterwarnings("ignore")


def model(name: str) -> ir.Model:
    return reduced(name).clone() if name in NAMES else zoo_model(name)


def assert_near(name: str, ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> None:
    for key, expected in theirs.items():
        tolerance = 0 if name.startswith("int8") else 1e-5 * np.abs(expected).max()
        np.testing.assert_allclose(np.asarray(ours[key], np.float64), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", [*SMALL, *NAMES])
def test_a_model_computes_what_it_computes_on_a_processor(name: str) -> None:
    inputs = sample_inputs(model(name))
    theirs = graft.compile(model(name), ["llvm"]).run(inputs)
    ours = graft.compile(model(name), ["cuda_emulator"], cache=False, strict=True).run(inputs)
    assert_near(name, ours, theirs)


SYMBOLIC = ("distilbert", "lstm", "mobilenet_v2")


@pytest.mark.parametrize("name", SYMBOLIC)
def test_a_model_of_any_shape_computes_what_it_computes_on_a_processor(name: str) -> None:
    source = load(with_symbols(name, reduced(name)), dims=dims(name))
    ours = graft.compile(source.clone(), ["cuda_emulator"], cache=False, strict=True)
    theirs = graft.compile(source.clone(), ["llvm"])
    for numbers in (2, 1):
        inputs = sample_inputs(source, dims=dict.fromkeys(dims(name), numbers))
        assert_near(name, ours.run(inputs), theirs.run(inputs))


@pytest.fixture(scope="module")
def driver() -> Iterator[Path]:
    path = build()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAFT_CUDA_DRIVER", str(path))
        yield path


@pytest.mark.parametrize("name", [*SMALL, "lstm"])
def test_a_model_on_a_device_that_is_none_computes_what_it_computes_on_a_processor(name: str, driver: Path) -> None:
    inputs = sample_inputs(model(name))
    theirs = graft.compile(model(name), ["llvm"]).run(inputs)
    program = graft.compile(model(name), [Emulated(), "llvm"], cache=False, strict=True)
    assert program.devices == ("cuda",)
    for _ in range(2):  # as calls of the driver, then as a recorded graph
        assert_near(name, program.run(inputs), theirs)
