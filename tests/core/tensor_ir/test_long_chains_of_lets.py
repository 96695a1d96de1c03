"""Chains of bindings as long as unrolled loops of unrolled vectors make them, through all that takes statements."""

import numpy as np
import pytest

from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import Binary, Broadcast, Buffer, Constant, Function, Let, Load, Ramp, Store, Variable
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.printer import print_function
from graft.core.tensor_ir.rewriting.scalar_lanes import without_vectors
from graft.core.tensor_ir.rewriting.simplify import simplify_function
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import chain_of_lets, map_statement
from graft.core.types import FLOAT32, INT64
from graft.plugins.c_source.functions import function_source

LENGTH, LANES = 1200, 4


@pytest.fixture(scope="module")
def chained() -> Function:
    """y[0..4] = x[0..4] + LENGTH, one variable of four lanes for each addition."""
    x, y = (Buffer(name, "float32", (Constant(LANES, INT64),)) for name in "xy")
    every = (Ramp(Constant(0, INT64), 1, LANES),)
    kind, one = FLOAT32.with_lanes(LANES), Broadcast(Constant(1.0, FLOAT32), LANES)
    names = [Variable(f"v{number}", kind) for number in range(LENGTH + 1)]
    body = Store(y, every, names[-1])
    for before, name in zip(reversed(names[:-1]), reversed(names[1:]), strict=True):
        body = Let(name, Binary("add", before, one), body)
    return Function("chained", (x, y), 1, Let(names[0], Load(x, every), body))


def test_the_verifier_takes_them(chained: Function):
    verify(chained)


def test_they_are_rebuilt(chained: Function):
    assert len(chain_of_lets(map_statement(chained.body, lambda one: one))[0]) == LENGTH + 1


def test_they_are_printed_and_read(chained: Function):
    text = print_function(chained)
    assert print_function(parse_function(text)) == text


@pytest.mark.parametrize("change", [lambda function: function, simplify_function, without_vectors])
def test_they_compute_what_they_say(chained: Function, change):
    given = np.arange(LANES, dtype=np.float32)
    (result,) = run_function(change(chained), [given])
    np.testing.assert_array_equal(result, given + LENGTH)


@pytest.mark.parametrize("vectors", [False, True])
def test_they_are_written_as_c(chained: Function, vectors: bool):
    assert function_source(chained, vectors=vectors).text.count("const float") >= LENGTH
