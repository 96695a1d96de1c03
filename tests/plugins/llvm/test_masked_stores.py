"""Stores of narrowed numbers with some lanes off, which write no other element."""

import numpy as np
import pytest

from graft.core.tensor_ir.ir import (
    Binary,
    Buffer,
    Cast,
    Constant,
    Expression,
    For,
    Function,
    If,
    Load,
    Ramp,
    Store,
    Variable,
)
from graft.core.types import INT64
from graft.runtime.dtypes import numpy_dtype

WIDE = {"uint8": "int32", "int16": "int32", "int32": "int64", "bfloat16": "float32", "float32": "float64"}
"""Types, and those that are narrowed to them."""
LANES = 16


@pytest.fixture(params=WIDE)
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def vector(name: str, dtype: str, size: int) -> Buffer:
    return Buffer(name, dtype, (Constant(size, INT64),))


def lanes(base: Expression) -> Ramp:
    return Ramp(base, 1, LANES)


def check(run, function: Function, dtype: str, first: int, on: int) -> None:
    """Run a function that narrows ``0, 1, ...`` to ``out[first : first + on]``."""
    source = np.arange(3 * LANES).astype(numpy_dtype(WIDE[dtype]))
    output = np.full(4 * LANES, 77).astype(numpy_dtype(dtype))
    expected = output.copy()
    expected[first : first + on] = np.arange(on).astype(numpy_dtype(dtype))
    run(function, [source], [output])
    np.testing.assert_array_equal(output, expected)


@pytest.mark.parametrize("on", range(1, LANES + 1))
def test_lanes_that_are_known(run, dtype: str, on: int) -> None:
    source, out = vector("x", WIDE[dtype], 3 * LANES), vector("out", dtype, 4 * LANES)
    mask = Binary("lt", lanes(Constant(0, INT64)), Constant(on, INT64.with_lanes(LANES)))
    value = Cast(Load(source, (lanes(Constant(0, INT64)),)), dtype)
    check(
        run, Function("kernel", (source, out), 1, Store(out, (lanes(Constant(16, INT64)),), value, mask)), dtype, 16, on
    )


@pytest.mark.parametrize("size", [17, 31, 33])
def test_lanes_that_follow_from_a_condition(run, dtype: str, size: int) -> None:
    source, out, step = vector("x", WIDE[dtype], 3 * LANES), vector("out", dtype, 4 * LANES), Variable("step")
    place = lanes(Binary("mul", step, Constant(LANES, INT64)))
    mask = Binary("lt", place, Constant(size, INT64.with_lanes(LANES)))
    value, steps = Cast(Load(source, (place,)), dtype), -(-size // LANES)
    is_last = Binary("eq", step, Constant(steps - 1, INT64))
    body = If(is_last, Store(out, (place,), value, mask), Store(out, (place,), value))
    loop = For(step, Constant(steps, INT64), "serial", body)
    check(run, Function("kernel", (source, out), 1, loop), dtype, 0, size)
