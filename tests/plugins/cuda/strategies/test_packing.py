"""Constant factors packed when a model is compiled: rounded, and with their terms in one piece."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

import graft
from tests.plugins.cuda.graphs import graph, node, ran

RANDOM = np.random.default_rng(3)


def weights(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def product(terms: int = 64, columns: int = 72) -> tuple[onnx.ModelProto, np.ndarray]:
    own = weights(terms, columns)
    return graph([node("MatMul", "x w")], {"x": ("float32", [40, terms])}, {"w": own}), own


def constants(model: onnx.ModelProto, **requested: str) -> list[np.ndarray]:
    program = graft.compile(model, ["cuda_emulator"], cache=False, strict=True, **requested)  # type: ignore[arg-type]
    return list(program.description.constants.values())


def test_weights_that_are_rounded_are_rounded_once() -> None:
    model, own = product()
    (packed,) = constants(model, precision="bf16")
    np.testing.assert_array_equal(packed.view(ml_dtypes.bfloat16), own.T.astype(ml_dtypes.bfloat16))
    assert ran(model, {"x": weights(40, 64)}, precision="bf16").error < 2.0**-7


def test_weights_of_a_convolution_have_all_terms_of_a_channel_in_one_piece() -> None:
    own = weights(24, 16, 3, 3)
    model = graph([node("Conv", "x w", pads=[1, 1, 1, 1])], {"x": ("float32", [1, 16, 9, 9])}, {"w": own})
    (packed,) = constants(model, precision="fp16")
    np.testing.assert_array_equal(packed, own.reshape(24, 144).astype(np.float16))
    assert ran(model, {"x": weights(1, 16, 9, 9)}, precision="fp16").error < 2.0**-9


def test_weights_of_bytes_are_transposed_and_then_copied_in_stages() -> None:
    own = RANDOM.integers(-127, 127, (128, 72)).astype(np.int8)
    model = graph([node("MatMulInteger", "x w")], {"x": ("int8", [70, 128])}, {"w": own})
    (packed,) = constants(model)
    np.testing.assert_array_equal(packed, own.T)
    found = ran(model, {"x": RANDOM.integers(-128, 127, (70, 128)).astype(np.int8)})
    np.testing.assert_array_equal(found.ours, found.theirs)
    assert found.schedules[0]["stages"] > 1


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_weights_that_are_used_as_they_are_stay(dtype: str) -> None:
    own = weights(64, 72).astype(dtype)
    (kept,) = constants(graph([node("MatMul", "x w")], {"x": (dtype, [40, 64])}, {"w": own}))
    np.testing.assert_array_equal(kept.reshape(own.shape), own)


def test_a_constant_that_is_read_elsewhere_too_stays() -> None:
    own = weights(64, 64)
    nodes = [node("MatMul", "x w", "a"), node("Add", "a w")]
    model = graph(nodes, {"x": ("float32", [64, 64])}, {"w": own})
    assert [one.dtype for one in constants(model, precision="bf16")] == [np.float32]
    assert ran(model, {"x": weights(64, 64)}, precision="bf16").error < 2.0**-7
