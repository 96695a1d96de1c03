"""Selections in loops: the best candidates in the order of their keys, then of their positions, whatever comes when."""

from __future__ import annotations

import numpy as np
import pytest

from graft.core.machine.target import target_named
from graft.core.operators.definition.build import dims
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.primitives.plain_selection import MOST_COUNTED, OTHER
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import For, Horizontal, If
from graft.core.tensor_ir.parser import parse_stages
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import loads, walk_statements

CHOSEN = """\
input x: {dtype}[{rows}, {extent}]
stage p: int64[{rows}, {count}] at (i, j) = choose {order} over k < {extent} by j: x[i, k]
"""
ORDERS = ["random", "rising", "falling", "alike"]
INSERTED, COLLECTED, SORTED = (5, 70), (20, 150), (40, 40)


def kernel_of(dtype: str, count: int, extent: int, order: str = "largest", rows: int = 1) -> Kernel:
    stages = parse_stages(CHOSEN.format(dtype=dtype, rows=rows, extent=extent, count=count, order=order))
    (source,) = {load.buffer for load in loads(stages[0].value)}
    return Kernel("k", (source,), (stages[0].buffer,), stages, Trait.RECURRENT)


def row(dtype: str, extent: int, order: str) -> np.ndarray:
    x = np.random.default_rng(extent).integers(0, 100, extent).astype(dtype)
    if dtype.startswith("float"):
        x[3:40:9], x[5], x[6], x[7] = np.nan, -0.0, 0.0, -np.inf
    if order == "alike":
        return np.full_like(x, x[3])
    return {"random": x, "rising": np.sort(x), "falling": np.sort(x)[::-1].copy()}[order]


def check(kernel: Kernel, machine: str, x: np.ndarray, largest: bool) -> None:
    function = schedule(kernel, target_named(machine)).function
    verify(function)
    count = dims(kernel.outputs[0])[1]
    ranks = np.unique(x, return_inverse=True)[1]  # NaN, all alike, are the greatest
    expected = np.argsort(-ranks if largest else ranks, kind="stable")[:count]
    np.testing.assert_array_equal(run_function(function, [x[np.newaxis]])[0][0], expected)


@pytest.mark.parametrize(("count", "extent"), [INSERTED, COLLECTED, SORTED])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("choice", ["largest", "smallest"])
def test_the_best_come_in_the_order_of_keys_and_positions(choice: str, order: str, count: int, extent: int) -> None:
    kernel = kernel_of("float32", count, extent, choice)
    check(kernel, "x86-64-v4", row("float32", extent, order), choice == "largest")


@pytest.mark.parametrize(("count", "extent"), [INSERTED, COLLECTED, SORTED])
def test_a_machine_without_vectors_selects_the_same(count: int, extent: int) -> None:
    check(kernel_of("float32", count, extent), "riscv64", row("float32", extent, "rising"), True)


@pytest.mark.parametrize("choice", ["largest", "smallest"])
@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16"])
def test_keys_of_any_width_are_sorted_by_their_digits(dtype: str, choice: str) -> None:
    count, extent = SORTED
    check(kernel_of(dtype, count, extent, choice), "x86-64-v4", row(dtype, extent, "random"), choice == "largest")


@pytest.mark.parametrize(("count", "extent"), [INSERTED, COLLECTED])
def test_a_vector_of_candidates_is_compared_at_once(count: int, extent: int) -> None:
    function = schedule(kernel_of("float32", count, extent), target_named("x86-64-v3")).function
    tests = [one.condition for one in walk_statements(function.body) if isinstance(one, If)]
    (looks,) = (one for one in tests if isinstance(one, Horizontal))
    assert looks.value.type.lanes == 8


@pytest.mark.parametrize("extent", [17, 37, MOST_COUNTED, MOST_COUNTED + 1])
@pytest.mark.parametrize(
    ("machine", "dtype", "choice"),
    [("x86-64-v4", "float32", "largest"), ("x86-64-v3", "int32", "smallest"), ("x86-64-v4", "int64", "largest")],
)
def test_of_a_short_row_what_comes_before_each_is_counted_in_vectors(
    machine: str, dtype: str, choice: str, extent: int
) -> None:
    for count in {17, extent}:
        kernel = kernel_of(dtype, count, extent, choice)
        for order in ("random", "alike"):
            check(kernel, machine, row(dtype, extent, order)[:extent], choice == "largest")
        loops = walk_statements(schedule(kernel, target_named(machine)).function.body)
        vectors = [loop for loop in loops if isinstance(loop, For) and loop.variable.name == OTHER]
        assert len(vectors) == (extent <= MOST_COUNTED)


def test_threads_share_the_rows_of_a_long_selection() -> None:
    function = schedule(kernel_of("float32", 20, 1000, rows=40), target_named("x86-64-v4")).function
    outermost = next(loop for loop in walk_statements(function.body) if isinstance(loop, For))
    assert outermost.kind == "parallel"


@pytest.mark.parametrize("extent", [20, 31, 32, 33, 150])
def test_of_candidates_whose_number_varies_those_that_are_good_enough_are_collected(extent: int) -> None:
    text = "input x: float32[1, n]\nstage p: int64[1, 20] at (i, j) = choose largest over k < n by j: x[i, k]\n"
    stages = parse_stages(text)
    (source,) = {load.buffer for load in loads(stages[0].value)}
    kernel = Kernel("k", (source,), (stages[0].buffer,), stages, Trait.RECURRENT)
    check(kernel, "x86-64-v4", row("float32", extent, "random")[:extent], largest=True)
    function = schedule(kernel, target_named("x86-64-v3")).function
    tests = [one.condition for one in walk_statements(function.body) if isinstance(one, If)]
    assert any(isinstance(one, Horizontal) for one in tests)
