"""Reductions into registers, and what makes parts of one into a whole."""

import numpy as np
import pytest

from graft.core.machine.machine import Machine
from graft.core.machine.rows import X86_64_V3, X86_64_V4
from graft.core.schedule.loops.accumulate import joined, reduce_inner
from graft.core.schedule.loops.flat_stages import FlatStage, LoopAxis, Stored
from graft.core.schedule.loops.nest import nest
from graft.core.schedule.primitives.vectorize import finished
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import Binary, Variable
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import walk_statements
from graft.core.types import FLOAT32, INT64, Type

ZERO, ONE = ir.Constant(0, INT64), ir.Constant(1, INT64)
LENGTHS = (3, 8, 15, 16, 17, 40, 63, 64, 65, 100, 128, 200, 201)


def row_of(extent: ir.Expression, places: int) -> tuple[FlatStage, ir.Buffer, ir.Buffer]:
    """The sum of the squares of a row, which are stored beside."""
    x, squares, y = (ir.Buffer(name, "float32", (size,)) for name, size in (("x", extent), ("z", extent), ("y", ONE)))
    k, square = Variable("k"), Variable("square", FLOAT32)
    own = ir.Load(x, (k,))
    beside = Stored(square, squares, k, Binary("mul", own, own))
    axis = LoopAxis.over(k, extent, places)
    initial = ir.Constant(0.5, FLOAT32)
    return FlatStage(y, ZERO, (), square, (axis,), "add", initial, stored=beside), x, squares


@pytest.mark.parametrize("machine", [X86_64_V3, X86_64_V4], ids=["no masks", "masks"])
@pytest.mark.parametrize("is_open", [False, True], ids=["known", "open"])
def test_rows_of_every_length_are_reduced_and_stored_beside(machine: Machine, is_open: bool) -> None:
    for length in LENGTHS:
        extent: ir.Expression = Variable("n") if is_open else ir.Constant(length, INT64)
        stage, x, squares = row_of(extent, 256)
        body = finished(reduce_inner(stage, stage.reduced[0], machine.vector_bytes // 4, machine), (x,))
        function = ir.Function("f", (x, squares, stage.target), 2, body)
        row = np.random.default_rng(length).standard_normal(length).astype(np.float32)
        found, total = run_function(function, [row], [(length,), (1,)])
        np.testing.assert_array_equal(found, row * row)
        np.testing.assert_allclose(total[0], 0.5 + (row.astype(np.float64) ** 2).sum(), rtol=1e-6)


def test_parts_of_a_sum_are_joined_by_its_operator() -> None:
    left, right = Variable("l", FLOAT32), Variable("r", FLOAT32)
    assert joined("max", left, right) == Binary("max", left, right)


def test_parts_of_a_sum_whose_terms_are_ordered_are_never_joined() -> None:
    custom = Type("custom[posit]16")
    left, right = Variable("l", custom), Variable("r", custom)
    with pytest.raises(AssertionError, match=r"^partial results of custom\[posit\]16 are joined"):
        joined("add", left, right)


@pytest.mark.parametrize("machine", [X86_64_V3, X86_64_V4], ids=["16 registers", "32 registers"])
def test_elements_that_have_loads_in_common_are_summed_side_by_side(machine: Machine) -> None:
    extents = {"x": 43, "w": 41, "y": 3}
    x, w, y = (ir.Buffer(name, "float32", (ir.Constant(size, INT64),)) for name, size in extents.items())
    i, k = Variable("i"), Variable("k")
    product = Binary("mul", ir.Load(x, (Binary("add", i, k),)), ir.Load(w, (k,)))
    axes = LoopAxis(i, 3), LoopAxis(k, 41)
    stage = FlatStage(y, i, axes[:1], product, axes[1:], "add", ir.Constant(0.5, FLOAT32))
    body = finished(nest(stage, Simplifier(), machine, parallel=False), (x, w))
    loops = [one.variable.name for one in walk_statements(body) if isinstance(one, ir.For)]
    assert not [name for name in loops if name.startswith("i")]
    function = ir.Function("f", (x, w, y), 1, body)
    left, right = np.random.default_rng(0).standard_normal((2, 43)).astype(np.float32)
    (found,) = run_function(function, [left, right[:41]], [(3,)])
    np.testing.assert_allclose(found, 0.5 + np.correlate(left.astype(np.float64), right[:41]), rtol=1e-5)
