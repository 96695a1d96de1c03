"""ONNX's own suite, by the interface that it asks of a backend: with default backends, and with `llvm` alone.

What does not pass stands in a ledger with its reason; a case of the ledger that passes fails its test.
"""

from __future__ import annotations

import zlib

import numpy as np
import pytest

import graft.onnx_backend
from benchmarks.data.exact_results import EXACT
from benchmarks.data.onnx_suite import Case, all_cases, check
from graft.errors import GraftError

from .ledger import failures

WAYS = {"default": None, "llvm": ["llvm"]}
EVERY_NTH = 40
"""The share of the suite that runs in every test run, the same cases always; all of it is ``make test-conformance``."""


def _parameters() -> list[object]:
    pairs = [(name, way) for name in all_cases() for way in WAYS]
    return [
        pytest.param(
            *pair,
            id="-".join(pair),
            marks=[] if zlib.crc32("-".join(pair).encode()) % EVERY_NTH == 0 else pytest.mark.conformance,
        )
        for pair in pairs
        if all_cases()[pair[0]].kind != "real" or pair[1] == "default"
    ]


def _run(case: Case, way: str) -> None:
    model = case.model
    prepared = graft.onnx_backend.prepare(model, backends=WAYS[way], threads=1)
    check(case, prepared.run, case.data(model))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "way"), _parameters())
def test_a_case_of_onnx_gives_what_onnx_expects(name: str, way: str) -> None:
    if name in failures(way):
        with pytest.raises((GraftError, AssertionError)):
            _run(all_cases()[name], way)
        return
    _run(all_cases()[name], way)


@pytest.mark.parametrize("way", WAYS)
def test_the_ledger_names_cases_of_the_suite(way: str) -> None:
    assert failures(way).keys() <= all_cases().keys()
    assert all(failures(way).values())


@pytest.mark.parametrize("name", EXACT)
def test_expected_outputs_that_exact_results_replace_are_themselves_off_by_about_the_tolerance(name: str) -> None:
    case = all_cases()[name]
    ((inputs, (expected,)),) = case.data(case.model)
    exact = EXACT[name](inputs).astype(np.float64)
    largest = np.max(np.abs(expected - exact) / (case.atol + case.rtol * np.abs(exact)))
    assert largest > 0.5
    assert np.allclose(expected, exact, rtol=2 * case.rtol, atol=2e-6)
