"""Variants of the entry: the first that fits runs, is profiled and named in errors, and survives an artifact."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graft.errors import ArtifactError, InputError, RunError
from graft.runtime.artifact import read, save
from graft.runtime.loading import load
from graft.runtime.procedure import Procedure, ProgramDescription, SymbolSpec
from graft.runtime.program import Program

from .artifacts import changed
from .programs import call, describe, loader, tensor
from .symbolic import SEQ, ones, procedure


def fails(arguments: list[np.ndarray]) -> np.ndarray:
    raise ValueError("not today")


FUNCTIONS = {"once": lambda x: x[0], "thrice": lambda x: 3 * x[0], "fails": fails}
LOADER = loader(FUNCTIONS)


def entry(name: str, extent: object, function: str, symbols: tuple[SymbolSpec, ...] = ()) -> Procedure:
    tensors = [tensor(one, "float32", [extent], storage, index=0) for one, storage in (("x", "input"), ("y", "output"))]  # type: ignore[list-item]
    return procedure(name, tensors, [call(function, [0], [1])], symbols)


def description() -> ProgramDescription:
    procedures = (
        entry("main", SEQ, "once", (SymbolSpec("seq", 1, 9, 0, 0),)),
        entry("main[seq=3]", 3, "thrice"),
        entry("main[seq=4]", 4, "fails"),
    )
    return replace(describe(procedures, list(FUNCTIONS)), variants=(1, 2))


@pytest.fixture
def program() -> Program:
    return Program.from_description(description(), threads=1, loaders=[LOADER])


def test_the_variant_that_fits_runs_and_the_entry_elsewhere(program: Program) -> None:
    assert [list(program(ones(length))) for length in (2, 3, 1, 3)] == [[1, 1], [3, 3, 3], [1], [3, 3, 3]]


def test_inputs_are_those_of_the_entry(program: Program) -> None:
    assert program.inputs[0].shape == ("seq",)
    with pytest.raises(InputError, match=r"^input 'x' must be float32\[seq\], got float32\[3,1\]"):
        program(ones(3, 1))


def test_a_profile_is_of_the_procedure_that_ran(program: Program) -> None:
    assert [program.profile(ones(length))[0][1] for length in (2, 3)] == ["once", "thrice"]
    ran, times = program.timed(ones(3))
    assert (ran.name, len(times)) == ("main[seq=3]", 1)


def test_an_error_names_the_call_of_the_variant(program: Program) -> None:
    with pytest.raises(RunError, match=r"^node 'node_fails': function 'fails' of module 'm'"):
        program(ones(4))


def test_threads_have_variants_of_their_own(program: Program) -> None:
    def run(length: int) -> set[float]:
        return {float(value) for _ in range(200) for value in program(ones(length))}

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, (2, 3, 5, 3))) == [{1.0}, {3.0}, {1.0}, {3.0}]


def test_an_artifact_keeps_variants(tmp_path: Path) -> None:
    save(description(), tmp_path / "a.graft")
    assert read(tmp_path / "a.graft").variants == (1, 2)
    assert list(load(tmp_path / "a.graft", threads=1, loaders=[LOADER])(ones(3))) == [3, 3, 3]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([0], "^damaged manifest: entry 0 of 'variants' is not an integer between 1 and 2$"),
        (["1"], "^damaged manifest: entry 0 of 'variants' is not an integer between 1 and 2$"),
        (7, "is damaged: its manifest lacks a field, or has one of another kind"),
    ],
)
def test_a_hostile_list_is_refused(tmp_path: Path, value: object, expected: str) -> None:
    save(description(), tmp_path / "a.graft")
    data = changed((tmp_path / "a.graft").read_bytes(), lambda facts: facts.update(variants=value))
    (tmp_path / "b.graft").write_bytes(data)
    with pytest.raises(ArtifactError, match=expected):
        load(tmp_path / "b.graft", threads=1, loaders=[LOADER])


def test_a_variant_of_other_shapes_is_refused() -> None:
    wrong = replace(description(), procedures=(*description().procedures[:2], entry("main[seq=10]", 10, "once")))
    expected = "damaged manifest: variant in procedure 2: input 'x' is float32\\[10\\], which is no float32\\[seq\\]"
    with pytest.raises(ArtifactError, match=f"^{expected}$"):
        Program.from_description(wrong, threads=1, loaders=[LOADER])
