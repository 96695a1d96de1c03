"""Whole models in C compute what they compute with LLVM."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx_ir as ir
import pytest

import graft
from benchmarks.zoo import NAMES
from benchmarks.zoo import model as zoo_model
from graft.core.shapes.sample_inputs import sample_inputs
from tests.plugins.c_source.reduced_models import reduced

ROUNDED = ("digits:custom[posit]16", "int8_digits")
BFLOAT16 = 2.0**-7
"""What two ways to add and to keep numbers of 8 bits differ by, against the largest."""


@cache
def model(name: str) -> ir.Model:
    if name in NAMES:
        return reduced(name)
    name, _, dtype = name.partition(":")
    source = zoo_model(name)
    return graft.datatypes.convert(source.clone(), dtype) if dtype else source


def results(name: str, backend: str, precision: str = "float32") -> list[np.ndarray]:
    program = graft.compile(model(name).clone(), [backend], threads=2, strict=True, precision=precision)
    return list(program.run(sample_inputs(model(name))).values())


def assert_near(ours: list[np.ndarray], theirs: list[np.ndarray], tolerance: float) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert np.std(other) > 0, "a constant output proves nothing"
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max())


@pytest.mark.parametrize("name", ROUNDED)
def test_numbers_that_are_rounded_one_by_one_are_those_of_llvm(name: str) -> None:
    for ours, theirs in zip(results(name, "c_source"), results(name, "llvm"), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", ["digits", *NAMES])
def test_a_model_computes_what_it_computes_with_llvm(name: str) -> None:
    assert_near(results(name, "c_source"), results(name, "llvm"), 1e-5)


@pytest.mark.parametrize("name", ["digits", "lstm", "mobilenet_v2", "distilbert"])
def test_products_in_bfloat16_are_those_of_llvm(name: str) -> None:
    ours, exact = results(name, "c_source", "bf16"), results(name, "llvm")
    assert_near(ours, results(name, "llvm", "bf16"), BFLOAT16)
    assert max(np.abs(one - other).max() / np.abs(other).max() for one, other in zip(ours, exact, strict=True)) > 1e-4
