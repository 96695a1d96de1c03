"""Checks of indices, run in the interpreter."""

import numpy as np
import pytest

from graft.core.machine.target import target_named
from graft.core.operators.definition import build as b
from graft.core.operators.definition.index_bounds import IndexBound, Varying
from graft.core.schedule.loops.index_check import index_check
from graft.core.tensor_ir.interpreting import machine_arithmetic
from graft.core.tensor_ir.ir import For
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import walk_statements


@pytest.mark.parametrize("machine", ["x86-64-v4", "x86-64-v3", "generic"])
@pytest.mark.parametrize("count", [1, 16, 40, 77])
@pytest.mark.parametrize("is_open", [False, True])
def test_the_check_means_the_same_in_the_interpreter(is_open: bool, count: int, machine: str) -> None:
    row = target_named(machine).machine
    shape = b.variables(1, "n") if is_open else (count,)
    function = index_check("check", "int64", shape, [IndexBound(1, 0, 5, -5, 4)], {}, row)
    verify(function)
    indices = np.full(count, -5)
    machine_arithmetic.run_function(function, [indices])
    indices[-1] = 5
    with pytest.raises(IndexError, match="index 5 is out of range: axis 0 has extent 5, so that -5 to 4 are legal"):
        machine_arithmetic.run_function(function, [indices])


def test_each_column_has_its_range_and_ranges_may_vary() -> None:
    bounds = [IndexBound(1, 0, 5, 0, 4, 0), IndexBound(1, 1, Varying(0, ((0, 1, 1),)), 0, Varying(-1, ((0, 1, 1),)), 1)]
    function = index_check("check", "int32", (90, 2), bounds, {0: ("float32", 2)}, target_named("x86-64-v4").machine)
    verify(function)
    indices, x = np.tile(np.array([4, 6], np.int32), (90, 1)), np.zeros((5, 7), np.float32)
    machine_arithmetic.run_function(function, [indices.reshape(-1), x])
    indices[70] = 4, 7
    with pytest.raises(IndexError, match="index 7 is out of range: axis 1 has extent 7, so that 0 to 6 are legal"):
        machine_arithmetic.run_function(function, [indices.reshape(-1), x])


@pytest.mark.parametrize(("count", "kind"), [(1000, "serial"), (1_000_000, "parallel")])
def test_threads_share_the_check_of_many_indices(count: int, kind: str) -> None:
    machine = target_named("x86-64-v4").machine
    function = index_check("check", "int64", (count,), [IndexBound(1, 0, 5, -5, 4)], {}, machine)
    assert next(one.kind for one in walk_statements(function.body) if isinstance(one, For)) == kind
