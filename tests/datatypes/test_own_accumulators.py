"""Sums of formats of one's own in wider types: expressions, a shared library, and what is missing said at once."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from graft.core.tensor_ir.scalar_math import Value
from graft.datatypes import create_lower_func, via
from graft.datatypes.conversion import convert
from graft.datatypes.shipped import DATATYPES
from graft.errors import DatatypeError
from tests.datatypes.networks import model_of, posit_library, run
from tests.datatypes.proofs.running import all_codes, format_of, in_numpy

PRODUCT = [helper.make_node("MatMul", ["x", "w"], ["y"])]
ACCUMULATORS = ["float32", "float64", "custom[posit]32"]


def product(x: np.ndarray, w: np.ndarray, dtype: str, accumulate: str) -> np.ndarray:
    shapes = {"x": list(x.shape)}, {"y": [x.shape[0], w.shape[1]]}
    return run(convert(model_of(PRODUCT, *shapes, {"w": w}), dtype, accumulate=accumulate), x)


def register_casts(name: str) -> str:
    """Register a truncated bfloat16 that has nothing but its casts."""
    if name not in DATATYPES:
        DATATYPES.register(name, widths=(16,))
        shorten = lambda x: (Value(x).bits("uint32") >> 16).cast("uint16")  # noqa: E731
        lengthen = lambda x: (Value(x).cast("uint32") << 16).bits("float32")  # noqa: E731
        DATATYPES.register_op(shorten, "Cast", "llvm", name, "float32")
        DATATYPES.register_op(lengthen, "Cast", "llvm", "float32", name)
    return f"custom[{name}]16"


@pytest.mark.parametrize("accumulate", ACCUMULATORS)
def test_a_format_of_expressions_sums_in_a_wider_type(accumulate: str) -> None:
    dtype = register_casts("castsonly")
    random = np.random.default_rng(1)
    x, w = random.integers(-9, 9, (5, 20)).astype(np.float32), random.integers(-9, 9, (20, 7)).astype(np.float32)
    exact = ((x @ w).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    np.testing.assert_array_equal(product(x, w, dtype, accumulate), exact)


@pytest.mark.parametrize("accumulate", ACCUMULATORS)
def test_a_shared_library_sums_in_a_wider_type(accumulate: str, tmp_path: Path) -> None:
    name = "libraryposit" + "".join(filter(str.isalnum, accumulate))
    library = posit_library(tmp_path)
    DATATYPES.register(name, widths=(16,))
    DATATYPES.register_op(create_lower_func({(32, 16): "posit16_from_float"}, library), "Cast", "llvm", name, "float32")
    DATATYPES.register_op(create_lower_func({(16, 32): "posit16_to_float"}, library), "Cast", "llvm", "float32", name)
    random = np.random.default_rng(2)
    x, w = (random.normal(0, 1, shape).astype(np.float32) for shape in ((5, 20), (20, 7)))
    expected = product(x, w, "custom[posit]16", accumulate)
    np.testing.assert_array_equal(product(x, w, f"custom[{name}]16", accumulate), expected)


def test_an_own_format_is_the_accumulator_of_a_shipped_one() -> None:
    dtype = register_casts("accumulatorbf")
    for operation in ("Add", "Mul"):
        DATATYPES.register_op(via("float32"), operation, "llvm", "accumulatorbf")
    x, w = np.array([[1, 2, 3]], np.float32), np.ones((3, 1), np.float32)
    np.testing.assert_array_equal(product(x, w, "custom[posit]8", dtype), [[6.0]])


def test_a_format_without_the_casts_is_refused_when_it_is_converted() -> None:
    if "castless" not in DATATYPES:
        DATATYPES.register("castless", widths=(16,))
    shapes = {"x": [1, 2]}, {"y": [1, 1]}
    with pytest.raises(DatatypeError) as caught:
        convert(model_of(PRODUCT, *shapes, {"w": np.ones((2, 1))}), "custom[posit]8", accumulate="custom[castless]16")
    assert "Cast from custom[castless]16 to float32" in caught.value.missing
    assert "Add of custom[castless]16" in caught.value.missing


def test_square_roots_of_logarithms_round_ties_to_even() -> None:
    format = format_of("custom[lns]16")
    codes = all_codes(format)
    code = codes[(codes >> 15 == 0) & (codes != 1 << 14)]
    logarithm = (code.astype(np.int64) << 49) >> 49
    expected = np.array([round(Fraction(int(one), 2)) for one in logarithm]) & 0x7FFF
    np.testing.assert_array_equal(format.to_bits(in_numpy(format, "Sqrt", code)), expected)
    np.testing.assert_array_equal(format.to_bits(in_numpy(format, "Rsqrt", code)), -expected.astype(np.int64) & 0x7FFF)
