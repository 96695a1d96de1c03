"""Shapes with symbols: bound to what comes, evaluated and checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from graft.errors import ArtifactError, InputError, RunError
from graft.runtime.extents import Extent, Operation
from graft.runtime.procedure import Call, ExtentBound, SymbolSpec
from graft.runtime.program import Program

from .programs import Function, call, tensor
from .symbolic import BATCH, DOUBLE, PAST, SEQ, ones, program


def attention(functions: dict[str, Function] | None = None) -> Program:
    """y[batch, seq + past] of ids[batch, seq] and cache[batch, past]: both after one another."""
    total = Operation("add", SEQ, PAST)
    tensors = (
        tensor("ids", "float32", [BATCH, SEQ], "input", index=0),
        tensor("cache", "float32", [BATCH, PAST], "input", index=1),
        tensor("mask", "float32", [BATCH, total], "input", index=2),
        tensor("y", "float32", [BATCH, total], "output", index=0),
    )
    symbols = (SymbolSpec("batch", 1, None, 0, 0), SymbolSpec("seq", 1, 512, 0, 1), SymbolSpec("past", 0, None, 1, 1))
    join = {"join": lambda given: [np.concatenate(given[:2], axis=1) * given[2]]}
    return program(tensors, [call("join", [0, 1, 2], [3])], symbols, functions or join)


# ---- Binding ----


def test_a_sum_has_bounds_of_its_own():
    total = Operation("add", SEQ, PAST)
    tensors = (
        tensor("x", "float32", [SEQ], "input", index=0),
        tensor("cache", "float32", [PAST], "input", index=1),
        tensor("y", "float32", [SEQ], "output", index=0),
    )
    symbols = [SymbolSpec("seq", 0, None, 0, 0), SymbolSpec("past", 0, None, 1, 0)]
    run = program(tensors, [Call("copy", (0,), (2,))], symbols, {}, bounds=[ExtentBound(total, 2, 8)])
    assert run(ones(1), ones(7)).shape == (1,)
    for seq, past, limit in ((2, 7, "most 8"), (1, 0, "least 2")):
        with pytest.raises(InputError) as caught:
            run(ones(seq), ones(past))
        assert caught.value.message == (
            f"'seq + past' is {seq + past} (seq = {seq}, past = {past}), but it is at {limit} in this model, or in "
            "what it was compiled for"
        )
    assert run(ones(7), ones(1)).shape == (7,)


def test_every_shape_runs():
    run = attention()
    for batch, seq, past in ((1, 1, 0), (2, 3, 4), (2, 3, 5), (7, 512, 1), (1, 1, 0)):
        y = run(ones(batch, seq), 2 * ones(batch, past), ones(batch, seq + past))
        assert y.shape == (batch, seq + past)
        assert y.sum() == batch * (seq + 2 * past)


def test_extents_are_shown_as_text():
    run = attention()
    assert [one.shape for one in run.inputs] == [("batch", "seq"), ("batch", "past"), ("batch", "seq + past")]
    assert str(run.outputs[0]) == "float32[batch,seq + past]"
    nested = Operation("floordiv", Operation("sub", DOUBLE, Operation("min", SEQ, 7)), Operation("mod", 9, SEQ))
    tensors = (tensor("x", "float32", [SEQ, nested], "input", index=0),)
    run = program(tensors, [], [SymbolSpec("seq", 0, None, 0, 0)], {})
    assert run.inputs[0].shape == ("seq", str(nested)) == ("seq", "((2 * seq) - min(seq, 7)) // (9 % seq)")


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            ([2, 600], [2, 4], [2, 604]),
            "input 'ids' has 600 at axis 1, but dimension 'seq' is at most 512; compile the model with a wider "
            "range for it",
        ),
        (
            ([0, 1], [0, 4], [0, 5]),
            "input 'ids' has 0 at axis 0, but dimension 'batch' is at least 1; compile the model with a wider "
            "range for it",
        ),
        (([2, 3], [1, 4], [2, 7]), "input 'cache' has 1 at axis 0, but dimension 'batch' is 2 (input 'ids', axis 0)"),
        (([2, 3], [2, 4], [2, 8]), "input 'mask' has 8 at axis 1, but 'seq + past' is 7 (seq = 3, past = 4)"),
        (([2, 3, 1], [2, 4], [2, 7]), "input 'ids' must be float32[batch,seq], got float32[2,3,1]"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused_and_the_next_one_runs(shapes, message):
    run = attention()
    for before in (False, True):
        if before:
            run(ones(2, 3), ones(2, 4), ones(2, 7))
        with pytest.raises(InputError) as caught:
            run(*(ones(*shape) for shape in shapes))
        assert str(caught.value).startswith(message)
        assert run(ones(2, 3), ones(2, 4), ones(2, 7)).shape == (2, 7)


def test_an_extent_that_is_a_number_must_be_it():
    tensors = (tensor("x", "float32", [SEQ, 8], "input", index=0),)
    run = program(tensors, [], [SymbolSpec("seq", 0, None, 0, 0)], {})
    with pytest.raises(InputError) as caught:
        run(ones(3, 7))
    assert str(caught.value) == (
        "input 'x' must be float32[seq,8], got float32[3,7]; compile the model for this shape, or pass that one"
    )


def test_dlpack_tensors_and_strided_arrays_are_bound():
    class Foreign:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __dlpack__(self) -> Any:
            return self.array.__dlpack__()

    run = attention()
    strided = np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::2]
    y = run(strided, Foreign(ones(2, 4)), ones(2, 7))
    np.testing.assert_array_equal(y, np.concatenate([strided, ones(2, 4)], axis=1))


def test_a_function_that_returns_another_shape_is_refused():
    run = attention({"join": lambda given: [given[0]]})
    with pytest.raises(RunError, match=r"output 0 must be float32\[2,7\], the function returned float32\[2,3\]$"):
        run(ones(2, 3), ones(2, 4), ones(2, 7))


# ---- Extents ----


def values_of(extents: Sequence[Extent], dtype: str = "int64") -> Callable[[int], np.ndarray]:
    """Return what a program makes of these extents for a value of ``seq``."""
    tensors = (
        tensor("x", "bool", [SEQ], "input", index=0),
        tensor("e", dtype, [len(extents)], "extents", values=tuple(extents)),
        tensor("y", dtype, [len(extents)], "output", index=0),
    )
    run = program(tensors, [Call("copy", (1,), (2,))], [SymbolSpec("seq", 0, None, 0, 0)], {})
    return lambda seq: np.asarray(run(np.zeros(seq, bool)))


def test_shape_arithmetic_costs_no_kernel():
    minus = Operation("sub", SEQ, 10)
    given = [
        SEQ, 7, DOUBLE, minus, Operation("floordiv", minus, 4), Operation("mod", minus, 4), Operation("mod", minus, -4),
        Operation("min", SEQ, 4), Operation("max", SEQ, 4), Operation("floordiv", SEQ, -2),
    ]  # fmt: skip
    found = values_of(given)
    assert list(found(3)) == [3, 7, 6, -7, -2, 1, -3, 3, 4, -2]
    assert list(found(12)) == [12, 7, 24, 2, 0, 2, -2, 4, 12, -6]
    assert values_of(given, "int32")(3).dtype == np.int32


def test_extents_beyond_all_bounds_are_errors():
    square = Operation("mul", SEQ, 1 << 61)
    with pytest.raises(RunError) as caught:
        values_of([square])(3)
    assert str(caught.value) == "extent 'seq * 2305843009213693952' is beyond 2**62 (seq = 3)"
    assert values_of([square])(2)[0] == 1 << 62
    with pytest.raises(RunError, match=r"^extent '\(seq \* 2305843009213693952\) \+ 1' is beyond 2\*\*62 \(seq = 2\)$"):
        values_of([Operation("add", square, 1)])(2)
    with pytest.raises(RunError, match=r"^extent '\(0 - .*' is beyond 2\*\*62 \(seq = 2\)$"):
        values_of([Operation("sub", Operation("sub", 0, square), 1)])(2)
    with pytest.raises(RunError, match=r"^element 0 of tensor 'e' is 3000000000, which is no int32 \(seq = 3\)$"):
        values_of([Operation("mul", SEQ, 10**9)], "int32")(3)


@pytest.mark.parametrize("operator", ["floordiv", "mod"])
def test_a_division_by_zero_is_an_error_of_this_call_alone(operator):
    found = values_of([Operation(operator, 5, SEQ)])
    assert found(2)[0] in (1, 2)
    with pytest.raises(RunError, match=r"^extent '5 (//|%) seq' divides by zero \(seq = 0\)$"):
        found(0)
    assert found(2)[0] in (1, 2)


def cut() -> Program:
    """y[seq - 2] of x[seq]."""
    tensors = (
        tensor("x", "float32", [SEQ], "input", index=0),
        tensor("y", "float32", [Operation("sub", SEQ, 2)], "output", index=0),
    )
    symbols = [SymbolSpec("seq", 0, None, 0, 0)]
    return program(tensors, [call("cut", [0], [1])], symbols, {"cut": lambda given: [given[0][2:]]})


def test_a_negative_extent_is_an_error_and_zero_is_none():
    run = cut()
    assert run(ones(2)).shape == (0,)
    with pytest.raises(RunError) as caught:
        run(ones(1))
    assert str(caught.value) == "tensor 'y' would have -1 elements at axis 0: 'seq - 2' is negative (seq = 1)"
    assert run(ones(5)).shape == (3,)


def test_a_tensor_beyond_all_bounds_is_an_error():
    tensors = (
        tensor("x", "float32", [SEQ], "input", index=0),
        tensor("t", "float32", [Operation("mul", SEQ, 1 << 40), 1 << 20], "arena"),
        tensor("y", "float32", [SEQ], "output", index=0),
    )
    calls = [call("f", [0], [1]), call("f", [1], [2])]
    run = program(tensors, calls, [SymbolSpec("seq", 0, None, 0, 0)], {"f": lambda given: given})
    with pytest.raises(RunError, match=r"^tensor 't' is too large: \[4398046511104,1048576\]$"):
        run(ones(4))
    with pytest.raises(MemoryError, match=r"^out of memory: these shapes need an arena of 4611686018427387904 bytes$"):
        run(ones(1))


def test_a_symbol_that_nothing_binds_is_refused():
    tensors = (tensor("x", "float32", [Operation("mul", 2, SEQ)], "input", index=0),)
    with pytest.raises(ArtifactError, match=r"procedure 0: symbol 'seq' is not axis 0 of tensor 'x'$"):
        program(tensors, [], [SymbolSpec("seq", 0, None, 0, 0)], {})
