"""Symbols that calls bind: what a program finds out while it runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graft.errors import RunError
from graft.runtime.extents import Operation
from graft.runtime.loading import load
from graft.runtime.procedure import SymbolSpec
from graft.runtime.program import Program

from .programs import Function, call, loader, tensor
from .symbolic import FOUND, SEQ, ones, program


def nonzero(given: list[Any]) -> Any:
    return [np.flatnonzero(given[0]), np.ascontiguousarray(given[0][np.flatnonzero(given[0])])]


def compress() -> Program:
    """y = 2 * (what is not 0 in x) + 1, in two calls after the one that counts."""
    twice = Operation("mul", 2, FOUND)
    tensors = (
        tensor("x", "float32", [SEQ], "input", index=0),
        tensor("n", "int64", [FOUND], "dynamic"),
        tensor("v", "float32", [FOUND], "dynamic"),
        tensor("t", "float32", [FOUND], "arena"),
        tensor("size", "int64", [2], "extents", values=(FOUND, SEQ)),
        tensor("y", "float32", [twice], "output", index=0),
    )
    symbols = [SymbolSpec("seq", 0, None, 0, 0), SymbolSpec("found", 0, 8, 1, 0)]
    calls = [call("nonzero", [0], [1, 2]), call("double", [2], [3]), call("repeat", [3, 4], [5])]
    functions: dict[str, Function] = {
        "nonzero": nonzero,
        "double": lambda given: [2 * given[0]],
        "repeat": lambda given: [np.tile(given[0] + np.float32(given[1][0]), 2)],
    }
    return program(tensors, calls, symbols, functions)


def test_what_a_call_finds_out_is_bound_when_it_is_done():
    run = compress()
    assert run.outputs[0].shape == ("2 * found",)
    for given in ([1, 0, 2], [0, 0], [], [5], [1, 0, 2], [0, 3, 0, 4, 0, 5]):
        found = [2 * one + np.count_nonzero(given) for one in given if one]
        np.testing.assert_array_equal(run(np.array(given, np.float32)), found * 2)


def test_what_a_call_finds_out_must_be_in_its_range():
    run = compress()
    with pytest.raises(RunError) as caught:
        run(ones(9))
    assert str(caught.value) == (
        "node 'node_nonzero': function 'nonzero' of module 'm' (kind 'test'): output 'n' has 9 at axis 0, but "
        "dimension 'found' is at most 8; compile the model with a wider range for it"
    )
    assert run(ones(8)).shape == (16,)


def test_outputs_of_one_call_that_share_a_symbol_must_agree():
    tensors = (
        tensor("x", "float32", [SEQ], "input", index=0),
        tensor("n", "int64", [FOUND], "output", index=0),
        tensor("v", "float32", [FOUND], "output", index=1),
    )
    symbols = [SymbolSpec("seq", 0, None, 0, 0), SymbolSpec("found", 0, None, 1, 0)]
    functions: dict[str, Function] = {"f": lambda given: [np.flatnonzero(given[0]), given[0]]}
    run = program(tensors, [call("f", [0], [1, 2])], symbols, functions)
    n, v = run(ones(3))
    assert (n.shape, v.shape) == ((3,), (3,))
    with pytest.raises(
        RunError, match=r"output 'v' has 2 at axis 0, but dimension 'found' is 1 \(output 'n', axis 0\)$"
    ):
        run(np.array([0, 1], np.float32))


def test_an_output_of_another_rank_than_its_symbols_have_is_an_error():
    tensors = (tensor("x", "float32", [SEQ], "input", index=0), tensor("n", "float32", [FOUND, 2], "output", index=0))
    symbols = [SymbolSpec("seq", 0, None, 0, 0), SymbolSpec("found", 0, None, 1, 0)]
    run = program(tensors, [call("f", [0], [1])], symbols, {"f": lambda given: given})
    with pytest.raises(RunError, match=r"output 'n' cannot have 1 dimensions \[3\]$"):
        run(ones(3))


def test_an_artifact_keeps_its_symbols(tmp_path):
    run = compress()
    run.save(tmp_path / "a.graft")
    functions: dict[str, Function] = {
        "nonzero": nonzero,
        "double": lambda given: [2 * given[0]],
        "repeat": lambda given: [np.tile(given[0] + np.float32(given[1][0]), 2)],
    }
    again = load(tmp_path / "a.graft", threads=1, loaders=[loader(functions)])
    assert again.description.procedures == run.description.procedures
    assert list(again(np.array([1, 0, 2], np.float32))) == [4, 6, 4, 6]
