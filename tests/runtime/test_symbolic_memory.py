"""Memory of symbolic shapes: planned for each binding, by instance."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from graft.errors import RunError
from graft.runtime.extents import Operation
from graft.runtime.procedure import Call, SymbolSpec
from graft.runtime.program import Program

from .programs import call, tensor
from .symbolic import SEQ, ones, program


def chain(length: int = 6, *, in_place: bool = False) -> Program:
    """Return y = x + length through tensors of the arena."""
    middle = [tensor(f"t{i}", "float32", [SEQ, 4], "arena") for i in range(length - 1)]
    tensors = [tensor("x", "float32", [SEQ, 4], "input", index=0), *middle]
    tensors.append(tensor("y", "float32", [SEQ, 4], "output", index=0))
    allowed = (0,) if in_place else ()
    calls = [
        Call("call", (i,), (i + 1,), module=0, function="add", in_place=allowed if 0 < i < length else ())
        for i in range(length)
    ]
    return program(tensors, calls, [SymbolSpec("seq", 0, None, 0, 0)], {"add": lambda given: [given[0] + 1]})


@pytest.mark.parametrize("in_place", [False, True])
def test_memory_is_planned_for_each_shape(in_place):
    run = chain(in_place=in_place)
    for seq in (3, 1, 1000, 3, 0, 17, *range(20), 1000):
        np.testing.assert_array_equal(run(np.full((seq, 4), seq, np.float32)), np.full((seq, 4), seq + 6))


def test_views_of_what_has_symbols_are_all_of_it():
    flat = Operation("mul", 4, SEQ)
    tensors = (
        tensor("x", "float32", [SEQ, 4], "input", index=0),
        tensor("t", "float32", [SEQ, 4], "arena"),
        tensor("v", "float32", [flat], "view", of=1),
        tensor("y", "float32", [flat], "output", index=0),
    )
    calls = [call("add", [0], [1]), call("add", [2], [3])]
    symbols = [SymbolSpec("seq", 0, None, 0, 0)]
    run = program(tensors, calls, symbols, {"add": lambda given: [given[0] + 1]})
    for seq in (2, 5, 2):
        np.testing.assert_array_equal(run(ones(seq, 4)), np.full(4 * seq, 3.0))


def test_a_view_that_is_not_all_of_its_tensor_is_an_error():
    tensors = (
        tensor("x", "float32", [SEQ], "input", index=0),
        tensor("v", "float32", [Operation("floordiv", SEQ, 2), 2], "view", of=0),
        tensor("y", "float32", [Operation("floordiv", SEQ, 2), 2], "output", index=0),
    )
    run = program(tensors, [Call("copy", (1,), (2,))], [SymbolSpec("seq", 0, None, 0, 0)], {})
    assert run(ones(6)).shape == (3, 2)
    with pytest.raises(RunError, match=r"^tensor 'v' has 16 bytes, but 'x', which it is a view of, has 20$"):
        run(ones(5))


def test_python_functions_may_keep_what_they_are_given():
    kept: list[np.ndarray] = []

    def keep(given: list[Any]) -> Any:
        kept.extend(given)
        return [given[0] + 1]

    tensors = (
        tensor("x", "float32", [SEQ], "input", index=0),
        tensor("t", "float32", [SEQ], "arena"),
        tensor("y", "float32", [SEQ], "output", index=0),
    )
    run = program(
        tensors, [call("keep", [0], [1]), call("keep", [1], [2])], [SymbolSpec("seq", 0, None, 0, 0)], {"keep": keep}
    )
    for seq in (10, 1 << 20, 3):
        run(np.zeros(seq, np.float32))
    assert [float(one.sum()) for one in kept] == [0, 10, 0, 1 << 20, 0, 3]


def test_threads_run_one_program_with_different_shapes():
    run = chain()
    failures: list[object] = []

    def work(number: int) -> None:
        try:
            for turn in range(100):
                seq = (turn * 7 + number * 3) % 19
                np.testing.assert_array_equal(run(ones(seq, 4)), np.full((seq, 4), 7.0))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failures == []
