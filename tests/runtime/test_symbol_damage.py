"""Artifacts with symbols whose manifest is damaged or hostile: refused by name, and nothing crashes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graft.errors import ArtifactError
from graft.runtime.artifact import save
from graft.runtime.extents import Operation
from graft.runtime.loading import load
from graft.runtime.procedure import Call, SymbolSpec

from .artifacts import LOADER, changed, load_mutations
from .programs import call, describe, tensor
from .symbolic import FOUND, SEQ, procedure


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An artifact of y = f(f(x, x), x), where f is a product, of any length."""
    tensors = (
        tensor("x", "float32", [SEQ], "input", index=0),
        tensor("t", "float32", [SEQ], "arena"),
        tensor("e", "int64", [1], "extents", values=(Operation("mul", 2, SEQ),)),
        tensor("d", "float32", [FOUND], "dynamic"),
        tensor("y", "float32", [FOUND], "output", index=0),
        tensor("size", "int64", [1], "output", index=1),
    )
    calls = (
        Call("call", (0, 0), (1,), module=0, function="f", in_place=(0,)),
        call("f", [1, 0], [3]),
        Call("copy", (3,), (4,)),
        Call("copy", (2,), (5,)),
    )
    symbols = (SymbolSpec("seq", 0, 99, 0, 0), SymbolSpec("found", 0, None, 3, 0))
    file = tmp_path / "a.graft"
    save(describe(procedure("main", tensors, calls, symbols), ["f"]), file)
    return file


def test_the_artifact_runs(path: Path) -> None:
    y, size = load(path, threads=1, loaders=[LOADER])(np.array([2, 3], np.float32))
    assert (list(y), list(size)) == ([8, 27], [4])


def at(*keys: str | int, value: Any) -> Callable[[Any], None]:
    def change(facts: Any) -> None:
        place = facts["procedures"][0]
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (at("symbols", 0, "name", value=7), "the name of a symbol is not a text"),
        (at("symbols", 0, "name", value="found"), "two symbols are named 'found'"),
        (at("symbols", 0, "high", value=-1), "symbol 0: 'high' is -1, not between 0 and 4611686018427387904"),
        (at("symbols", 0, "high", value="9"), "symbol 0: 'high' is not an integer"),
        (at("symbols", 0, "low", value=None), "symbol 0: 'low' is not an integer"),
        (at("symbols", 0, "axis", value=1), "symbol 'seq' is not axis 1 of tensor 'x'"),
        (at("symbols", 1, "tensor", value=4), "call 1: tensor 'd' is written before its shape is known"),
        (at("symbols", value=[]), "'s0' is neither a number nor an earlier symbol or extent"),
        (at("symbols", value=3), "is damaged: its manifest lacks a field, or has one of another kind"),
        (at("extents", 0, value=["mul", "e0", 2]), "'e0' is neither a number nor an earlier symbol or extent"),
        (at("extents", 0, value=["div", "s0", 2]), "entry 0 of 'extents' is no operation on two extents"),
        (at("bounds", value=3), "is damaged: its manifest lacks a field, or has one of another kind"),
        (at("bounds", value=[{"extent": "s0", "low": 0, "high": 1}]), "entry 0 of 'bounds' is of no operation"),
        (at("bounds", value=[{"extent": "e9", "low": 0, "high": 1}]), "'e9' is neither a number nor an earlier"),
        (at("bounds", value=[{"extent": "e0", "low": 2, "high": 1}]), "'high' is 1, not between 2 and"),
        (at("bounds", value=[{"extent": "e0", "low": -1, "high": 1}]), "'low' is -1, not between 0 and"),
        (at("tensors", 2, "values", value=["s0", 1]), "2 'values' are not the elements of an int64 or int32 tensor"),
        (at("tensors", 2, "dtype", value="float32"), "1 'values' are not the elements of an int64 or int32 tensor"),
    ],
)
def test_a_hostile_manifest_is_refused(path: Path, change: Callable[[Any], None], expected: str) -> None:
    path.write_bytes(changed(path.read_bytes(), change))
    with pytest.raises(ArtifactError) as caught:
        load(path, threads=1, loaders=[LOADER])
    assert expected in str(caught.value)


@pytest.mark.parametrize("seed", range(2))
def test_a_mutated_manifest_never_crashes_the_loader(path: Path, seed: int) -> None:
    assert load_mutations(path, seed) == ("done True\n", 0)
