"""ONNX's own suite, by the interface that it asks of a backend: with default backends, and with `llvm` alone.

What does not pass stands in a ledger with its reason; a case of the ledger that passes fails its test, unless the
machine decides how it is rounded.
"""

from __future__ import annotations

import contextlib
import zlib

import pytest

import graft.onnx_backend
from benchmarks.onnx_suite import Case, all_cases, check
from graft.errors import GraftError

from .ledger import failures

WAYS = {"default": None, "llvm": ["llvm"]}
ROUNDED = "rounded"
"""How reasons begin of cases that miss by how results are rounded, which instructions of a machine decide."""
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
        may_pass = failures(way)[name].startswith(ROUNDED)
        with contextlib.suppress(AssertionError) if may_pass else pytest.raises((GraftError, AssertionError)):
            _run(all_cases()[name], way)
        return
    _run(all_cases()[name], way)


@pytest.mark.parametrize("way", WAYS)
def test_the_ledger_names_cases_of_the_suite(way: str) -> None:
    assert failures(way).keys() <= all_cases().keys()
    assert all(failures(way).values())
