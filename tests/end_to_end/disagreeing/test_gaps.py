"""Kernels that leave the values of the arena: gaps between these are poisoned, and compared behind the last call."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import onnx
import pytest

import graft
from graft.compiler.api import program_of

from .gaps import run_with_gaps, with_gaps

SIZES = [(7, 48), *(pytest.param((n, k), marks=pytest.mark.slow) for n, k in ((16, 16), (1, 33)))]
TEXT = """<ir_version: 10, opset_import: ["" : 22]>
g (float[n, 32] x, float[32, k] w, float[k, 16] v) => (float[n, 16] y) {
  a = MatMul(x, w) b = Softmax(a) c = Concat<axis = 0>(b, b) d = MatMul(c, v) e = Slice(d, zero, half)
  y = Relu(e) }"""


def chain(n: int) -> onnx.ModelProto:
    """Return products with moves between them, whose halves are of n rows."""
    model = onnx.parser.parse_model(TEXT)
    for name, value in (("zero", 0), ("half", n)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([value], np.int64), name))
    return model


def inputs(n: int, k: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        name: generator.standard_normal(shape).astype(np.float32)
        for name, shape in (("x", (n, 32)), ("w", (32, k)), ("v", (k, 16)))
    }


@pytest.mark.parametrize(
    ("backend", "memory"),
    [
        ("llvm", "binding"),
        ("c_source", "maximum"),
        pytest.param("llvm", "maximum", marks=pytest.mark.slow),
        pytest.param("c_source", "binding", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("sizes", SIZES)
def test_kernels_stay_within_the_values_of_the_arena(
    backend: str, memory: Literal["binding", "maximum"], sizes: tuple[int, int]
) -> None:
    n, k = sizes
    dims = {"n": n, "k": k} if memory == "binding" else {"n": (1, n), "k": (1, k)}
    program = graft.compile(chain(n), [backend], threads=1, dims=dims, memory=memory)
    given = inputs(n, k)
    found = run_with_gaps(with_gaps(program), given)
    for name, wanted in program.run(given).items():
        np.testing.assert_array_equal(found[name], wanted)


def test_a_kernel_that_writes_past_its_value_is_found() -> None:
    program = graft.compile(chain(16), ["llvm"], threads=1, dims={"n": 16, "k": 16})
    entry = program.description.procedures[0]
    number = next(place for place, tensor in enumerate(entry.tensors) if tensor.storage == "arena")
    tensor = entry.tensors[number]
    assert tensor.shape is not None
    smaller = replace(tensor, shape=(1, *tensor.shape[1:]))  # the kernel goes on to write them all
    tensors = (*entry.tensors[:number], smaller, *entry.tensors[number + 1 :])
    wrong = replace(program.description, procedures=(replace(entry, tensors=tensors),))
    with pytest.raises(AssertionError, match="byte 0 of gap_1 was written"):
        run_with_gaps(with_gaps(program_of(wrong, 1)), inputs(16, 16))
