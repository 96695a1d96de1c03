"""Extents that an operator demands to agree, and do not: every backend refuses the call before a kernel runs.

Inputs end at pages that nobody may read (`guarded`): a kernel that runs nevertheless ends the process, or answers,
which fails a test too. Sizes that agree are drawn as well, and must be right. Texts come packed in bytes, whose axes
the runtime does not see: the node itself compares them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import pytest

import graft
from graft.errors import InputError, RunError, UnsupportedError

from .cases import CASES, RARE, Case, joined
from .guarded import Guarded

BACKENDS = {
    "default": None,
    "llvm": ["llvm", "irregular", "reference"],
    "c_source": ["c_source", "irregular", "reference"],
    "onednn": ["onednn", "reference"],
    "reference": ["irregular", "reference"],
    "loaded": None,
}
UNANSWERED = {"Col2Im", "GRU-lengths", "GatherElements", "MaxRoiPool", "NonMaxSuppression"}
"""What onnx.reference cannot compute: fewer indices than there is data, lengths of sequences, ..."""


def _program(model: onnx.ModelProto, backend: str, folder: Path) -> graft.Program:
    try:
        program = graft.compile(model, BACKENDS[backend])
    except UnsupportedError as error:
        pytest.skip(error.message)
    if backend == "loaded":
        program.save(folder / "program.graft")
        program = graft.runtime.load(folder / "program.graft")
    return program


def _check(case: Case, program: graft.Program, seed: int, valid: int, violated: int) -> None:
    """Run a program for sizes that agree, and for some of which one pair does not."""
    generator = np.random.default_rng(seed)
    reference = None if case.name in UNANSWERED else onnx.reference.ReferenceEvaluator(case.model)
    for number in range(valid + violated):
        memory = Guarded()
        sizes, tie = case.violated(generator) if number < violated else (case.valid(generator), "")
        arrays = case.arrays(sizes, generator)
        given = {name: memory.copy(array) for name, array in arrays.items()}
        if tie:
            with pytest.raises(RunError if "string" in case.inputs else InputError) as caught:
                program.run(given)
            said = caught.value.message
            assert any(words in said for words in ("must be", "is wanted", "but dimension", "be broadcast")), (
                sizes,
                tie,
                said,
            )
        elif reference is not None:
            wanted = reference.run(None, arrays)
            for one, (name, found) in zip(wanted, program.run(given).items(), strict=True):
                assert found.shape == one.shape, (sizes, name)
                if one.dtype.hasobject:
                    np.testing.assert_array_equal(found, one, err_msg=f"{sizes} {name}")
                else:
                    np.testing.assert_allclose(found, one, rtol=1e-4, atol=1e-4, err_msg=f"{sizes} {name}")


@pytest.mark.parametrize("number", range(0, len(CASES), 2), ids=[case.name for case in CASES[::2]])
def test_what_disagrees_is_refused(number: int, tmp_path: Path) -> None:
    case = CASES[number]
    backend = [*BACKENDS][number // 2 % len(BACKENDS)]
    _check(case, _program(case.model, backend, tmp_path), number, valid=2, violated=10)


@pytest.mark.conformance
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", [*CASES, *RARE], ids=lambda case: case.name)
def test_what_disagrees_is_refused_by_every_backend(case: Case, backend: str, tmp_path: Path) -> None:
    _check(case, _program(case.model, backend, tmp_path), 1, valid=5, violated=30)


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(60))
def test_one_equation_of_several_nodes_is_enough(seed: int, tmp_path: Path) -> None:
    generator = np.random.default_rng(seed)
    chosen = [CASES[int(one)] for one in generator.integers(0, len(CASES), int(generator.integers(2, 5)))]
    case = joined([one for one in chosen if one.name not in UNANSWERED] or [CASES[0]])
    backend = [*BACKENDS][seed % len(BACKENDS)]
    _check(case, _program(case.model, backend, tmp_path), seed, valid=3, violated=20)
