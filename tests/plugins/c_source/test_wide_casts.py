"""Casts of more lanes than a register holds: the same numbers, by parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graft.core.tensor_ir import ir
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.visit import map_statement, statement_expressions, walk_expressions
from graft.core.types import INT64, Type, element_bits
from graft.plugins.c_source.wide_casts import REGISTER_BITS, casts_by_parts

LANES = 64


def cast(dtype: str, value: ir.Expression) -> ir.Function:
    """Return the function that stores a cast of ``value``, which reads `X`."""
    y = ir.Buffer("y", dtype, (ir.Constant(LANES, INT64),))
    at = ir.Ramp(ir.Constant(0, INT64), 1, LANES)
    return ir.Function("kernel", (X, y), 1, ir.Store(y, (at,), ir.Cast(value, dtype)))


X = ir.Buffer("x", "float32", (ir.Constant(2 * LANES, INT64),))
AT = ir.Ramp(ir.Constant(1, INT64), 1, LANES)
ODD = ir.Binary("gt", AT, ir.Broadcast(ir.Constant(40, INT64), LANES))
VALUES = {
    "a load": ir.Load(X, (AT,)),
    "a load of every second element": ir.Load(X, (ir.Ramp(ir.Constant(0, INT64), 2, LANES),)),
    "a load under a mask": ir.Load(X, (AT,), ODD),
    "one element": ir.Broadcast(ir.Load(X, (ir.Constant(3, INT64),)), LANES),
    "a sum": ir.Binary("add", ir.Load(X, (AT,)), ir.Constant(1.5, Type("float32", LANES))),
    "a selection": ir.Select(ODD, ir.Load(X, (AT,)), ir.Constant(1.5, Type("float32", LANES))),
}


def cast_values(function: ir.Function) -> np.ndarray:
    x = np.linspace(-90, 130, 2 * LANES, dtype=np.float32)
    (y,) = run_function(function, [x])
    return y


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("value", VALUES.values(), ids=list(VALUES))
def test_parts_are_the_lanes_of_the_whole(dtype: str, value: ir.Expression) -> None:
    whole = cast(dtype, value)
    parts = replace(whole, body=map_statement(whole.body, casts_by_parts()))
    assert parts != whole
    np.testing.assert_array_equal(cast_values(parts), cast_values(whole))


@pytest.mark.parametrize("name", ["a load", "a load under a mask", "a sum", "a selection"])
def test_nothing_is_wider_than_a_register_but_the_result(name: str) -> None:
    body = map_statement(cast("int16", VALUES[name]).body, casts_by_parts())
    types = {node.type for node in walk_expressions(*statement_expressions(body)) if node.type.dtype == "float32"}
    assert max(one.lanes * element_bits(one.dtype) for one in types) == REGISTER_BITS


def test_a_cast_to_larger_elements_stays() -> None:
    function = cast("float64", VALUES["a load"])
    assert map_statement(function.body, casts_by_parts()) == function.body
