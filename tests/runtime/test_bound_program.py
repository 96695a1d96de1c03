"""Programs that keep state: caches in one memory, outputs handed over, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graft.errors import InputError, RunError
from graft.runtime.extents import Operation, Symbol
from graft.runtime.procedure import Call, SymbolSpec
from graft.runtime.program import Program

from .programs import Function, call, tensor
from .symbolic import program

BATCH, PAST, NEW = (Symbol(name) for name in ("batch", "past", "new"))
TOTAL = Operation("add", PAST, NEW)


def decoder(function: Function = lambda arrays: [arrays[0].sum(axis=(1, 2))]) -> Program:
    """Return ``present = past behind which are the rows, sums = f(present)``."""
    tensors = (
        tensor("rows", "float32", [BATCH, NEW, 2], "input", index=0),
        tensor("past", "float32", [BATCH, PAST, 2], "input", index=1),
        tensor("sums", "float32", [BATCH], "output", index=0),
        tensor("present", "float32", [BATCH, TOTAL, 2], "output", index=1),
    )
    calls = (Call("append", (1, 0), (3,), axis=1), call("f", [3], [2]))
    symbols = (SymbolSpec("batch", 0, None, 0, 0), SymbolSpec("new", 0, None, 0, 1), SymbolSpec("past", 0, 999, 1, 1))
    return program(tensors, calls, symbols, {"f": function})


def recurrent() -> Program:
    """Return ``next = state + x``, whose state does not grow."""
    tensors = (
        tensor("x", "float32", [BATCH], "input", index=0),
        tensor("state", "float32", [BATCH], "input", index=1),
        tensor("next", "float32", [BATCH], "output", index=0),
        tensor("doubled", "float32", [BATCH], "output", index=1),
    )
    calls = (call("add", [0, 1], [2]), call("double", [2], [3]))
    functions: dict[str, Function] = {"add": lambda two: [two[0] + two[1]], "double": lambda one: [2 * one[0]]}
    return program(tensors, calls, (SymbolSpec("batch", 0, None, 0, 0),), functions)


def rows(count: int, start: float = 0, batch: int = 2) -> np.ndarray:
    return np.arange(start, start + batch * count * 2, dtype=np.float32).reshape(batch, count, 2)


def test_steps_give_what_plain_calls_give():
    plain, past = decoder(), np.zeros((2, 0, 2), np.float32)
    bound = plain.bind()
    for count in (3, 1, 0, 2, 100, 1):
        sums, past = plain(rows(count, count), past)
        np.testing.assert_array_equal(bound(rows(count, count)), sums)
        np.testing.assert_array_equal(bound.state["past"], past)
    assert bound.length == 107


def test_a_step_writes_new_rows_alone():
    bound = decoder().bind(capacity=6)
    bound(rows(2))
    buffer = bound.state["past"].base
    assert isinstance(buffer, np.ndarray)
    place = buffer.ctypes.data
    buffer[:, :2] = -1  # what it had is not read from elsewhere, nor written
    buffer[:, 5] = -2
    bound(rows(3, 50))
    assert bound.state["past"].ctypes.data == place
    np.testing.assert_array_equal(buffer[:, :2], np.full((2, 2, 2), -1))
    np.testing.assert_array_equal(buffer[:, 2:5], rows(3, 50))
    np.testing.assert_array_equal(buffer[:, 5], np.full((2, 2), -2))


def test_a_cache_longer_than_its_capacity_is_refused_and_the_state_stays():
    bound = decoder().bind(capacity=3)
    bound(rows(2))
    expected = "cache 'past' would have 4 rows, but its capacity is 3; bind the program with a larger one, or reset it"
    for _ in range(2):
        with pytest.raises(InputError) as caught:
            bound(rows(2))
        assert str(caught.value) == expected
        assert bound.length == 2
    np.testing.assert_array_equal(bound(rows(1, 9)), [1 + 2 + 3 + 9 + 10, 4 + 5 + 6 + 7 + 11 + 12])


def test_a_copied_cache_has_a_capacity_too():
    plain = decoder()
    metadata = {"caches": [{"input": "past", "output": "present", "axis": 1, "copied": "why not"}]}
    plain.description = type(plain.description)(plain.description.procedures, (), {}, metadata=metadata)
    bound = plain.bind({"past": "present"}, capacity=2)
    bound(rows(2))
    with pytest.raises(InputError, match="cache 'past' would have 3 rows, but its capacity is 2"):
        bound(rows(1))
    assert bound.length == 2


def test_without_a_capacity_the_memory_doubles():
    bound = decoder().bind()
    bound(rows(1))
    first = bound.state["past"].base
    bound(rows(64))
    second = bound.state["past"].base
    assert first is not None
    assert second is not None
    assert (first.shape, second.shape) == ((2, 64, 2), (2, 128, 2))
    np.testing.assert_array_equal(bound.state["past"][:, :1], rows(1))


def test_a_failed_call_leaves_the_state():
    def function(arrays: list[Any]) -> Any:
        if arrays[0].shape[1] == 4:
            raise ValueError("four")
        return [arrays[0].sum(axis=(1, 2))]

    bound = decoder(function).bind()
    bound(rows(3))
    before = bound.state["past"].copy()
    with pytest.raises(RunError, match="four"):
        bound(rows(1, 50))
    with pytest.raises(InputError, match="dimension 'batch' is"):
        bound(rows(1, batch=3))
    np.testing.assert_array_equal(bound.state["past"], before)
    assert bound(rows(2)).shape == (2,)


def test_reset_begins_anew_with_another_batch():
    bound = decoder().bind(capacity=4)
    bound(rows(3))
    bound.reset()
    assert (bound.length, bound.state) == (0, {})
    np.testing.assert_array_equal(bound(rows(1, batch=3)), [1, 5, 9])


def test_programs_bound_twice_are_independent():
    plain = decoder()
    one, other = plain.bind(), plain.bind()
    one(rows(3))
    assert (one.length, other.length) == (3, 0)


def test_a_state_that_does_not_grow_begins_with_zeros_and_is_handed_over():
    bound = recurrent().bind({"state": "next"})
    assert ([one.name for one in bound.inputs], [one.name for one in bound.outputs]) == (["x"], ["doubled"])
    np.testing.assert_array_equal(bound(np.ones(2, np.float32)), [2, 2])
    np.testing.assert_array_equal(bound.run({"x": np.ones(2, np.float32)})["doubled"], [4, 4])
    np.testing.assert_array_equal(bound.state["state"], [2, 2])
    assert bound.length == 0


def test_the_state_is_shown_read_only():
    bound = decoder().bind()
    bound(rows(1))
    assert not bound.state["past"].flags.writeable
    assert repr(bound) == "<BoundProgram of 1 inputs, length 1 (present -> past)>"


def test_a_plain_call_takes_rows_of_a_buffer():
    buffer = np.full((2, 9, 2), 7, np.float32)
    sums, present = decoder()(rows(1), buffer[:, :2])
    np.testing.assert_array_equal(present, np.concatenate([buffer[:, :2], rows(1)], axis=1))
    np.testing.assert_array_equal(sums, present.sum(axis=(1, 2)))


@pytest.mark.parametrize(
    ("pairs", "capacity", "expected"),
    [
        (None, None, "the program grows no cache; name the inputs and outputs to bind, as in "
         "bind({'state': 'next_state'})"),
        ({"stat": "next"}, None, "no input 'stat'; there is 'x', 'state'; did you mean 'state'?"),
        ({"state": "nxt"}, None, "no output 'nxt'; there is 'next', 'doubled'; did you mean 'next'?"),
        ({"state": "next", "x": "next"}, None, "output 'next' is bound to two inputs"),
        ({"state": "next"}, 5, "nothing that is bound grows, so it has no capacity; leave the capacity out"),
    ],
)  # fmt: skip
def test_wrong_pairs_are_refused(pairs, capacity, expected):
    with pytest.raises(InputError) as caught:
        recurrent().bind(pairs, capacity)
    assert str(caught.value) == expected


def test_pairs_that_do_not_fit_are_refused():
    with pytest.raises(InputError) as caught:
        decoder().bind({"past": "sums"})
    assert str(caught.value) == "output 'sums' cannot be the next input 'past': their ranks differ or are unknown"
    with pytest.raises(InputError) as caught:
        decoder().bind({"past": "present", "rows": "sums"})
    assert "output 'sums' cannot be the next input 'rows'" in str(caught.value)


def test_a_call_is_checked_like_that_of_a_program():
    bound = decoder().bind()
    with pytest.raises(InputError) as caught:
        bound(rows(1), rows(1))
    assert str(caught.value) == "the bound program takes 1 inputs ('rows'), got 2"
    with pytest.raises(InputError) as caught:
        bound.run({"past": rows(1)})
    assert str(caught.value) == "no input 'past'; the program takes 'rows'"


def test_a_dimension_that_nothing_tells_is_named():
    tensors = (
        tensor("past", "float32", [BATCH, PAST], "input", index=0),
        tensor("rows", "float32", [1, NEW], "input", index=1),
        tensor("present", "float32", [BATCH, TOTAL], "output", index=0),
    )
    symbols = (SymbolSpec("batch", 0, None, 0, 0), SymbolSpec("past", 0, 9, 0, 1), SymbolSpec("new", 0, 9, 1, 1))
    bound = program(tensors, (Call("append", (0, 1), (2,), axis=1),), symbols, {}).bind()
    with pytest.raises(InputError) as caught:
        bound(np.ones((1, 1), np.float32))
    assert str(caught.value) == (
        "axis 0 of 'past' is batch, and no other input tells 'batch' in the first call; compile the model with a "
        "number for it"
    )
