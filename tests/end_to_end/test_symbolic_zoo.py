"""The models of the suite with symbolic batch and length: any binding gives what ONNX Runtime computes of the model."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

import graft
from benchmarks.data.symbolic_zoo import BATCH, LENGTH, dims, with_symbols
from graft.core.importer.load import load
from graft.core.shapes.sample_inputs import sample_inputs
from tests.plugins.c_source.reduced_models import reduced

onnxruntime = pytest.importorskip("onnxruntime")
NAMES = (
    "bert_base", "distilbert", "gpt2", "vit_base", "whisper_tiny_encoder", "swin_tiny", "llama", "llama_opset23",
    "lstm", "light_squeezenet", "light_shufflenet", "mobilenet_v2",
)  # fmt: skip
FAST = {("distilbert", None), ("lstm", None), ("light_squeezenet", None), ("mobilenet_v2", "llvm")}
"""Models and backends (None: all) of which compiling takes a few seconds."""


def cases() -> Iterator[object]:
    for name in NAMES:
        for backend in (None, "llvm"):
            marks = () if (name, backend) in FAST else pytest.mark.slow
            yield pytest.param(name, backend, marks=marks, id=f"{name}-{backend or 'all'}")


def bindings(name: str) -> list[dict[str, int]]:
    """Return the symbols' values of three calls, the greatest length among them."""
    draw = random.Random(name)
    longest = dims(name)[LENGTH][1] if name in _WITH_LENGTH else 0
    lengths = [longest, 1, draw.randint(2, max(2, longest - 1))]
    batches = draw.sample(range(1, 4), 3)
    return [
        {BATCH: batch} | ({LENGTH: length} if longest else {}) for batch, length in zip(batches, lengths, strict=True)
    ]


_WITH_LENGTH = frozenset(name for name in NAMES if LENGTH in dims(name))


@pytest.mark.parametrize(("name", "backend"), [*cases()])
def test_any_binding_of_the_symbols_gives_what_the_model_gives(name: str, backend: str | None) -> None:
    proto = with_symbols(name, reduced(name))
    loaded = load(proto, dims=dims(name))
    backends = None if backend is None else [backend, "reference"]
    program = graft.compile(loaded, backends, threads=2, cache=False, tuned=False)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for binding in bindings(name):
        feeds = sample_inputs(loaded, dims=binding)
        results = program.run(feeds)
        for output, expected in zip(program.outputs, session.run(None, feeds), strict=True):
            scale = max(1.0, float(np.abs(expected).max()))
            np.testing.assert_allclose(
                results[output.name], expected, rtol=1e-4, atol=1e-5 * scale, err_msg=f"{binding}"
            )


WHOLE = (
    "bert_base", "light_shufflenet", "mobilenet_v2",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("gpt2", "llama", "swin_tiny", "vit_base")),
)  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_a_compiler_takes_the_whole_of_a_model_of_any_shape(name: str) -> None:
    plan = graft.plan(load(with_symbols(name, reduced(name)), dims=dims(name)), ["llvm", "reference"])
    assert {placement.backend for placement in plan.placements} <= {"llvm", "runtime"}
