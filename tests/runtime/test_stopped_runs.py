"""Runs that end early: by a token that another thread cancels, or at a deadline."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from onnx import parser

import graft
from graft.errors import ArgumentError, CancelledError, DeadlineError, RunError
from graft.runtime.procedure import Call, Procedure
from graft.runtime.program import Program

from .programs import Function, call, describe, loader, tensor

X = np.array([1.0, 2.0], np.float32)


def chain(functions: dict[str, Function]) -> Program:
    """Return the functions one after another, each in a call of its own."""
    names = list(functions)
    inner = [tensor(f"t{place}", "float32", None, "dynamic") for place in range(len(names) - 1)]
    tensors = (tensor("x", "float32", (2,), "input", index=0), *inner, tensor("y", "float32", (2,), "output", index=0))
    calls = tuple(call(name, [place], [place + 1]) for place, name in enumerate(names))
    description = describe(Procedure("main", tensors, (0,), (len(names),), calls), names)
    return Program.from_description(description, threads=1, loaders=[loader(functions)])


def test_run_is_cancelled_from_another_thread() -> None:
    began, token = threading.Event(), graft.CancelToken()

    def wait(given: list[np.ndarray]) -> list[np.ndarray]:
        began.set()
        while not token.cancelled:
            time.sleep(0.001)
        return given

    def stop() -> None:
        began.wait()
        token.cancel()

    program = chain({"first": lambda given: given, "wait": wait, "last": lambda given: given})
    other = threading.Thread(target=stop)
    other.start()
    with pytest.raises(CancelledError) as caught:
        program(X, cancel=token)
    other.join()
    assert caught.value.message == "the run was cancelled before call 3 of 3, node 'node_last'"
    assert caught.value.node == "node_last"
    assert isinstance(caught.value, RunError)


def test_run_after_its_deadline_stops_before_the_next_call() -> None:
    program = chain({"slow": lambda given: [time.sleep(0.02), *given][1:], "last": lambda given: given})
    with pytest.raises(DeadlineError) as caught:
        program.run({"x": X}, deadline=0.01)
    assert caught.value.message == "the deadline of the run passed before call 2 of 2, node 'node_last'"
    np.testing.assert_array_equal(program(X, deadline=60), X)
    np.testing.assert_array_equal(program(X), X)


def test_token_ends_runs_that_begin_later_and_no_others() -> None:
    program, token = chain({"only": lambda given: given}), graft.CancelToken()
    assert not token.cancelled
    np.testing.assert_array_equal(program(X, cancel=token), X)
    token.cancel()
    with pytest.raises(CancelledError, match=r"^the run was cancelled before call 1 of 1, node 'node_only'$"):
        program(X, cancel=token)
    np.testing.assert_array_equal(program(X, cancel=graft.CancelToken()), X)


def test_loop_without_calls_is_stopped_between_its_iterations() -> None:
    body = Procedure(
        "body",
        (
            tensor("i", "int64", (), "input", index=0),
            tensor("more", "bool", (), "input", index=1),
            tensor("a", "float32", (2,), "input", index=2),
        ),
        (0, 1, 2),
        (1, 2),
        (),
    )
    main = Procedure(
        "main",
        (
            tensor("n", "int64", (), "input", index=0),
            tensor("x", "float32", (2,), "input", index=1),
            tensor("y", "float32", (2,), "output", index=0),
        ),
        (0, 1),
        (2,),
        (Call("loop", (0, -1, 1), (2,), bodies=(1,), arguments=((),), origin=("loop",)),),
    )
    program = Program.from_description(describe([main, body], ["f"]), threads=1, loaders=[loader({"f": lambda x: x})])
    np.testing.assert_array_equal(program(np.array(3), X), X)
    with pytest.raises(DeadlineError, match=r"^the deadline of the run passed in call 1 of 1, node 'loop'$"):
        program(np.array(2**62), X, deadline=0.01)


def test_bound_program_keeps_its_state_where_a_step_is_cancelled() -> None:
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 20]>
        step (float[1,past,2] old, float[1,new,2] x) => (float[1,all,2] next) {
            next = Concat<axis = 1>(old, x)
        }""")
    bound = graft.compile(model, ["llvm"], threads=1).bind({"old": "next"})
    row, token = np.ones((1, 1, 2), np.float32), graft.CancelToken()
    bound(row)
    token.cancel()
    with pytest.raises(CancelledError):
        bound(2 * row, cancel=token)
    with pytest.raises(DeadlineError):
        bound.run({"x": 2 * row}, deadline=0)
    assert bound.length == 1
    bound(3 * row)
    np.testing.assert_array_equal(bound.state["old"][0, :, 0], [1, 3])


def test_what_is_no_deadline_and_no_token_is_refused() -> None:
    program = chain({"only": lambda given: given})
    with pytest.raises(ArgumentError) as caught:
        program(X, deadline=-1)
    assert caught.value.message == "Program: deadline is int -1; give a number of seconds, at most a day"
    with pytest.raises(ArgumentError) as caught:
        program.run({"x": X}, cancel="now")  # type: ignore[arg-type]
    assert caught.value.message == "Program.run: cancel is str 'now'; give a graft.CancelToken"
