"""Softmax of one row in scratch memory, run in the interpreter."""

import numpy as np
import pytest

from graft.core.operators.definition import build as b
from graft.core.schedule.strategies.attention.softmax_row import softmax_row
from graft.core.tensor_ir.interpreting.machine_arithmetic import run_function
from graft.core.tensor_ir.ir import Block, Buffer, Expression, Function, Load, Store
from graft.core.tensor_ir.statements import loops_over

LANES = 4


def softmax(row: list[float], chains: int = 2, **options: bool) -> np.ndarray:
    """A row times its factor."""
    length = len(row)
    source, target = (Buffer(name, "float32", (b.index(length),)) for name in ("x", "y"))
    rows, factors = (
        Buffer("rows", "float32", (b.index(1), b.index(length))),
        Buffer("factors", "float32", (b.index(1),)),
    )
    (i,) = b.variables(1)
    zero: Expression = b.index(0)
    axis = [(i, b.index(length))]
    fill = loops_over(axis, Store(rows, (zero, i), Load(source, (i,))))
    result = loops_over(axis, Store(target, (i,), b.multiply(Load(rows, (zero, i)), Load(factors, (zero,)))))
    body = Block((fill, softmax_row(rows, factors, zero, LANES, chains, **options), result))
    function = Function("f", (source, rows, factors, target), 3, body)
    return run_function(function, [np.array(row, np.float32)])[-1]


@pytest.mark.parametrize("chains", [1, 2, 3, 8])
def test_powers_of_a_row_sum_to_one(chains: int) -> None:
    row = np.linspace(-3, 2, 5 * LANES)
    expected = np.exp(row - row.max())
    np.testing.assert_allclose(softmax(list(row), chains), expected / expected.sum(), rtol=1e-5)


def test_large_numbers_do_not_overflow() -> None:
    np.testing.assert_allclose(softmax([1e30, 1e30, -1e30, 1e30]), [1 / 3, 1 / 3, 0, 1 / 3], rtol=1e-6)


def test_what_a_row_is_padded_with_has_no_weight() -> None:
    np.testing.assert_allclose(softmax([1.0, 1.0, -np.inf, -np.inf]), [0.5, 0.5, 0, 0])


@pytest.mark.parametrize(("options", "expected"), [({}, np.nan), ({"empty_is_zero": True}, 0.0)])
def test_a_row_in_which_all_is_hidden_is_nan_unless_zero_is_wanted(options: dict[str, bool], expected: float) -> None:
    np.testing.assert_array_equal(softmax([-np.inf] * LANES, **options), [expected] * LANES)


@pytest.mark.parametrize(("options", "expected"), [({}, np.nan), ({"nan_is_zero": True}, 0.0)])
def test_a_row_with_a_nan_is_nan_unless_zero_is_wanted(options: dict[str, bool], expected: float) -> None:
    np.testing.assert_array_equal(softmax([1.0, np.nan, 2.0, 3.0], **options), [expected] * LANES)
