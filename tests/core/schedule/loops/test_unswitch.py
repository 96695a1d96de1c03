"""Loops with masks that do not change: looked at once, and the same numbers."""

import numpy as np
import pytest

from graft.core.operators.definition import build as b
from graft.core.schedule.loops.unswitch import unswitched
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import For, Function, If
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.verifying.verifier import verify

TEXT = """function f(x: float32[9, 4], n: int64[1]) -> (y: float32[EXTENT, 4]) {
  serial i < EXTENT { y[i, ramp(0, 1, 4)] = x[i, ramp(0, 1, 4); MASK] }
}"""


def function_of(mask: str, extent: int = 9) -> Function:
    return parse_function(TEXT.replace("MASK", mask).replace("EXTENT", str(extent)))


@pytest.mark.parametrize("count", [0, 3, 4, 7])
def test_a_mask_that_stays_the_same_is_looked_at_once(count: int) -> None:
    function = function_of("ramp(0, 1, 4) < broadcast(n[0], 4)")
    assert isinstance(function.body, For)
    body = unswitched(function.body)
    assert isinstance(body, If)
    assert isinstance(body.else_body, For)
    changed = Function("f", function.parameters, 1, body)
    verify(changed)
    inputs = [np.arange(36, dtype=np.float32).reshape(9, 4), np.array([count])]
    np.testing.assert_array_equal(run_function(changed, inputs)[0], run_function(function, inputs)[0])


@pytest.mark.parametrize(
    ("mask", "extent"),
    [("ramp(i, 1, 4) < broadcast(n[0], 4)", 9), ("ramp(0, 1, 4) < broadcast(n[0], 4)", 3)],
    ids=["of the loop", "few turns"],
)
def test_other_loops_stay_as_they_are(mask: str, extent: int) -> None:
    body = function_of(mask, extent).body
    assert isinstance(body, For)
    assert unswitched(body) is body
    assert b.index(extent) == body.extent
