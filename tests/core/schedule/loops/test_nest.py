"""How much of a stage is computed side by side."""

from __future__ import annotations

import numpy as np
import pytest

from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.printer import print_function
from tests.core.schedule.loops.test_moved_elements import loops, numbers

COLUMNS = "stage c: float32[2, {n}] at (i, j) = reduce add over k < 20 from float32(0.0): a[i, k, j]"


@pytest.mark.parametrize(("columns", "passes"), [(90, 1), (128, 1), (129, 2), (16, 1)])
def test_sums_of_columns_that_fit_registers_are_one_pass(columns: int, passes: int) -> None:
    function = loops(f"input a: float32[2, 20, {columns}]\n{COLUMNS.format(n=columns)}")
    text, x = print_function(function), numbers((2, 20, columns))
    assert sum("serial k" in line for line in text.splitlines()) == passes, text
    np.testing.assert_array_equal(run_function(function, [x.ravel()])[0], x.sum(1).ravel())


@pytest.mark.parametrize(
    ("size", "value", "together"),
    [
        (640, "x[i] + float32(1.0)", 4),
        (640, " + ".join(f"tanh(x[i] * float32({n}.0))" for n in range(2, 11)), 1),
    ],
)
def test_four_vectors_of_elements_are_side_by_side_unless_code_is_long(size: int, value: str, together: int) -> None:
    function = loops(f"input x: float32[{size}]\nstage y: float32[{size}] at (i) = {value}")
    stores = [line for line in print_function(function).splitlines() if line.strip().startswith("y[")]
    assert len(stores) == together, print_function(function)
