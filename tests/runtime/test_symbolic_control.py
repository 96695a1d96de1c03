"""Bodies of control flow with symbols of their own."""

from __future__ import annotations

import numpy as np
import pytest

from graft.errors import RunError
from graft.runtime.procedure import Call, SymbolSpec
from graft.runtime.program import Program

from .programs import Function, call, tensor
from .symbolic import BATCH, FOUND, NEXT, PAST, SEQ, ones, procedure, program


def growing_loop() -> Program:
    """Return a loop whose state grows by one element each time, from x, and whose slices are [seq] of x."""
    body = procedure(
        "body",
        (
            tensor("i", "int64", [], "input", index=0),
            tensor("c", "bool", [], "input", index=1),
            tensor("state", "float32", [SEQ], "input", index=2),
            tensor("x", "float32", [PAST], "input", index=3),
            tensor("on", "bool", [], "output", index=0),
            tensor("t", "float32", [NEXT], "arena"),
            tensor("longer", "float32", [NEXT], "output", index=1),
            tensor("slice", "float32", [PAST], "output", index=2),
        ),
        (
            Call("copy", (1,), (4,)),
            call("longer", [2, 0], [5]),
            call("same", [5], [6]),
            call("scale", [3, 0], [7]),
        ),
        (SymbolSpec("seq", 0, None, 2, 0), SymbolSpec("past", 0, None, 3, 0)),
    )
    tensors = (
        tensor("x", "float32", [PAST], "input", index=0),
        tensor("n", "int64", [], "input", index=1),
        tensor("y", "float32", [FOUND], "output", index=0),
        tensor("stack", "float32", [SEQ, PAST], "output", index=1),
    )
    symbols = [SymbolSpec("past", 0, None, 0, 0), SymbolSpec("found", 0, None, 2, 0), SymbolSpec("seq", 0, None, 3, 0)]
    loop = Call("loop", (1, -1, 0), (2, 3), bodies=(1,), arguments=((0,),), origin=("loop",))
    functions: dict[str, Function] = {
        "longer": lambda given: [np.append(given[0], given[1]).astype(np.float32)],
        "same": lambda given: given,
        "scale": lambda given: [given[0] * np.float32(given[1])],
    }
    return program(tensors, [loop], symbols, functions, [body])


def test_a_loop_may_have_states_that_grow():
    run = growing_loop()
    for length, trips in ((2, 3), (1, 0), (5, 40), (0, 2), (2, 3)):
        x = np.full(length, 7, np.float32)
        y, stack = run(x, np.array(trips, np.int64))
        np.testing.assert_array_equal(y, [*x, *range(trips)])
        np.testing.assert_array_equal(stack, np.arange(trips)[:, None] * x[None, :])
        assert stack.shape == (trips, length)


def test_a_body_must_make_the_shape_that_its_caller_expects():
    body = procedure(
        "body",
        (tensor("a", "float32", [BATCH], "input", index=0), tensor("b", "float32", [BATCH], "output", index=0)),
        (Call("copy", (0,), (1,)),),
        (SymbolSpec("batch", 0, 6, 0, 0),),
    )
    tensors = (
        tensor("x", "float32", [SEQ], "input", index=0),
        tensor("z", "float32", [PAST], "input", index=1),
        tensor("c", "bool", [], "input", index=2),
        tensor("y", "float32", [SEQ], "output", index=0),
    )
    symbols = [SymbolSpec("seq", 0, None, 0, 0), SymbolSpec("past", 0, None, 1, 0)]
    choose = Call("if", (2,), (3,), bodies=(1, 1), arguments=((0,), (1,)), origin=("choose",))
    run = program(tensors, [choose], symbols, {}, [body])
    np.testing.assert_array_equal(run(ones(3), 2 * ones(3), np.array(False)), 2 * ones(3))
    with pytest.raises(RunError, match=r"^node 'choose': output 'b' has shape \[4\] where \[3\] is expected$"):
        run(ones(3), ones(4), np.array(False))
    with pytest.raises(
        RunError, match=r"^node 'choose': input 'a' has 7 at axis 0, but dimension 'batch' is at most 6;"
    ):
        run(ones(3), ones(7), np.array(False))
    assert run(ones(3), ones(4), np.array(True)).shape == (3,)


def test_a_scan_may_go_over_any_length():
    body = procedure(
        "body",
        (
            tensor("sum", "float32", [BATCH], "input", index=0),
            tensor("row", "float32", [BATCH], "input", index=1),
            tensor("next", "float32", [BATCH], "output", index=0),
            tensor("copy", "float32", [BATCH], "output", index=1),
        ),
        (call("add", [0, 1], [2]), Call("copy", (2,), (3,))),
        (SymbolSpec("batch", 0, None, 0, 0),),
    )
    tensors = (
        tensor("s", "float32", [BATCH], "input", index=0),
        tensor("x", "float32", [BATCH, SEQ], "input", index=1),
        tensor("last", "float32", [BATCH], "output", index=0),
        tensor("all", "float32", [BATCH, SEQ], "output", index=1),
    )
    attributes = {
        "scan_inputs": 1, "input_axes": [1], "input_directions": [0], "output_axes": [1], "output_directions": [1]
    }  # fmt: skip
    scan = Call("scan", (0, 1), (2, 3), bodies=(1,), arguments=((),), attributes=attributes)
    symbols = [SymbolSpec("batch", 0, None, 0, 0), SymbolSpec("seq", 0, None, 1, 1)]
    run = program(tensors, [scan], symbols, {"add": lambda given: [given[0] + given[1]]}, [body])
    for batch, seq in ((2, 3), (4, 1), (1, 0), (0, 2), (2, 3)):
        x = np.arange(batch * seq, dtype=np.float32).reshape(batch, seq)
        last, every = run(ones(batch), x)
        np.testing.assert_array_equal(every, 1 + np.cumsum(x, axis=1)[:, ::-1])
        np.testing.assert_array_equal(last, 1 + x.sum(axis=1))
