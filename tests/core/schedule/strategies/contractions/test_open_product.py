"""Products over rows whose number is known only when they run: constant factors, what is left over, long sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graft.core.machine.rows import ROWS
from graft.core.machine.target import Target
from graft.core.operators.definition.build import extents
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.parameters import Parameters, ScheduleParameters
from graft.core.schedule.selection.select import rounds, schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.ir import CallExtern
from graft.core.tensor_ir.printer import print_function
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import walk_statements
from graft.core.tuning.candidates import candidates
from tests.core.schedule.strategies.nests.test_open_extents import kernel_of

TARGET = Target(ROWS["x86-64-v4"])


def product(terms: int, columns: int, transposed: bool = False) -> Kernel:
    """Return a product of ``m`` rows by a constant, which is given by columns if ``transposed``."""
    shape, place = ([columns, terms], "j, k") if transposed else ([terms, columns], "k, j")
    text = f"""
input a: float32[m, {terms}]
input w: float32[{shape[0]}, {shape[1]}]
stage y: float32[m, {columns}] at (i, j) =
  reduce add over k < {terms} from float32(0.5): a[i, k] * w[{place}] as contraction()
"""
    weights = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    return kernel_of(text, Trait.CONTRACTION, {"w": weights})


def check(kernel: Kernel, rows: int, parameters: Parameters | None = None) -> None:
    scheduled = schedule(kernel, TARGET, parameters)
    verify(scheduled.function, TARGET.machine)
    assert scheduled.strategy == ("given" if isinstance(parameters, ScheduleParameters) else "blocked_product")
    left, right = kernel.inputs
    _, terms = extents(left)
    image = np.random.default_rng(0).standard_normal((rows, terms)).astype(np.float32)
    arrays = {left: image, right: kernel.constants[right]}
    wanted = run_stages(kernel.stages, arrays)[kernel.outputs[0]]
    inputs = [image, scheduled.packed[right]]
    (found,) = run_function(scheduled.function, inputs, [wanted.shape])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("rows", range(14))
def test_rows_that_are_left_over_are_computed_once_or_twice_but_right(rows: int) -> None:
    check(product(6, 64), rows)


@pytest.mark.parametrize("columns", [2, 16, 70])
def test_a_constant_given_by_columns_is_packed_as_one_given_by_rows(columns: int) -> None:
    check(product(5, columns, transposed=True), 3)


@pytest.mark.parametrize("rows", [0, 1, 5, 7, 13])
def test_long_sums_go_in_spans_and_keep_the_sums_of_each_tile_between(rows: int) -> None:
    check(product(1400, 16), rows)


SCORES = """
input q: float32[b, m, 2, 9]
input k: float32[b, n, 2, 9]
input bias: float32[2]
stage sums: float32[b, 2, m, n] at (i, h, r, c) =
  reduce add over t < 9 from float32(0.0): q[i, r, h, t] * k[i, c, h, t] as contraction()
stage y: float32[b, 2, m, n] at (i, h, r, c) = sums[i, h, r, c] * float32(0.5) + bias[h]
"""
"""Scores of attention as `Einsum` has them: of both factors the rows of a head lie apart."""


@pytest.mark.parametrize("machine", ["x86-64-v4", "x86-64-v3", "armv8-a", "generic"])
@pytest.mark.parametrize("rows", [0, 1, 2, 13])
@pytest.mark.parametrize("columns", [0, 1, 33])
def test_columns_that_lie_apart_are_copied_a_panel_at_a_time(machine: str, rows: int, columns: int) -> None:
    kernel, target = kernel_of(SCORES, Trait.CONTRACTION), Target(ROWS[machine])
    scheduled = schedule(kernel, target)
    verify(scheduled.function, target.machine)
    assert scheduled.strategy == "blocked_product"
    draw = np.random.default_rng(0)
    shapes = [(2, rows, 2, 9), (2, columns, 2, 9), (2,)]
    inputs = [draw.standard_normal(shape).astype(np.float32) for shape in shapes]
    wanted = run_stages(kernel.stages, dict(zip(kernel.inputs, inputs, strict=True)))[kernel.outputs[0]]
    (found,) = run_function(scheduled.function, inputs, [wanted.shape])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("terms", ["t", "100000"])
def test_a_panel_that_no_cache_keeps_is_not_copied(terms: str) -> None:
    text = f"""
input a: float32[m, {terms}]
input w: float32[n, {terms}]
stage y: float32[m, n] at (i, j) = reduce add over k < {terms} from float32(0.0): a[i, k] * w[j, k] as contraction()
"""
    assert schedule(kernel_of(text, Trait.CONTRACTION), TARGET).strategy == "generic_nest"


def test_columns_are_cut_without_a_rest_where_that_costs_nothing() -> None:
    tile = schedule(product(64, 768), TARGET).knobs
    assert 768 // 16 % int(tile["vectors"]) == 0


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("terms", "columns"), [(6, 64), (7, 70), (2100, 16)])
@pytest.mark.parametrize("rows", [0, 1, 9])
def test_rows_are_rounded_to_pairs_for_bfloat16(terms: int, columns: int, rows: int, transposed: bool) -> None:
    kernel = product(terms, columns, transposed)
    left, right = kernel.inputs
    whole = np.random.default_rng(2).integers(-3, 4, kernel.constants[right].shape).astype(np.float32)
    kernel = replace(kernel, constants={right: whole})  # whole numbers, which bfloat16 holds
    scheduled = schedule(kernel, replace(TARGET, precision="bf16"))
    verify(scheduled.function, TARGET.machine)
    assert scheduled.knobs["dot"] == "dot2_bf16"
    image = np.random.default_rng(0).integers(-3, 4, (rows, terms)).astype(np.float32)
    wanted = run_stages(kernel.stages, {left: image, right: whole})[kernel.outputs[0]]
    (found,) = run_function(scheduled.function, [image, scheduled.packed[right]], [wanted.shape])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("columns", "is_fetched"), [(64, False), (4096, True)])
def test_only_constants_that_no_cache_keeps_are_fetched_ahead(columns: int, is_fetched: bool) -> None:
    statements = walk_statements(schedule(product(256, columns), TARGET).function.body)
    calls = [one for one in statements if isinstance(one, CallExtern) and one.name == "prefetch"]
    assert bool(calls) == is_fetched


def test_constant_rows_over_two_axes_are_all_read() -> None:
    text = """
input w: float32[3, 5, 6]
input x: float32[6, n]
stage y: float32[3, 5, n] at (i, j, c) =
  reduce add over k < 6 from float32(0.0): w[i, j, k] * x[k, c] as contraction()
"""
    draw = np.random.default_rng(3)
    weights = draw.standard_normal((3, 5, 6)).astype(np.float32)
    kernel = kernel_of(text, Trait.CONTRACTION, {"w": weights})
    for machine in ("x86-64-v4", "generic"):
        scheduled = schedule(kernel, Target(ROWS[machine]))
        verify(scheduled.function, ROWS[machine])
        assert scheduled.strategy == "blocked_product"
        for columns in (0, 1, 37):
            x = draw.standard_normal((6, columns)).astype(np.float32)
            passed = [scheduled.packed.get(kernel.inputs[0], weights), x]
            (found,) = run_function(scheduled.function, passed, [(3, 5, columns)])
            np.testing.assert_allclose(found, weights @ x, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("machine", ["x86-64-v4", "x86-64-v3", "generic"])
def test_a_single_sum_of_varying_terms_has_one_column(machine: str) -> None:
    text = """
input a: float32[1, t]
input w: float32[t, 1]
stage y: float32[1, 1] at (i, j) = reduce add over k < t from float32(0.0): a[i, k] * w[k, 0] as contraction()
"""
    scheduled = schedule(kernel_of(text, Trait.CONTRACTION), Target(ROWS[machine]))
    verify(scheduled.function, ROWS[machine])
    for terms in (0, 1, 21):
        a, w = np.arange(terms, dtype=np.float32)[None], np.ones((terms, 1), np.float32)
        (found,) = run_function(scheduled.function, [a, w], [(1, 1)])
        np.testing.assert_array_equal(found, a @ w)


def test_a_product_of_two_inputs_is_rounded_to_pairs_only_where_it_is_packed() -> None:
    text = """
input a: float32[m, 8]
input x: float32[8, 32]
stage y: float32[m, 32] at (i, j) = reduce add over k < 8 from float32(0.0): a[i, k] * x[k, j] as contraction()
"""
    narrow = replace(TARGET, precision="bf16")
    assert not rounds(kernel_of(text, Trait.CONTRACTION), narrow)
    assert "dot" not in schedule(kernel_of(text, Trait.CONTRACTION), narrow).knobs
    assert rounds(product(8, 32), narrow)


def test_every_candidate_of_tuning_gives_the_same_products() -> None:
    kernel = product(9, 40)
    found = candidates(kernel, TARGET, 0, None)
    assert len({str(schedule(kernel, TARGET, one).function) for one in found}) > 2
    for one in found:
        check(kernel, 7, one)


LAYERS = """
input a: float32[b, 3, m, 9]
input w: float32[9, 5]
input c: float32[5]
stage s: float32[b, 3, m, 5] at (n, h, i, j) =
  reduce add over k < 9 from float32(0.0): a[n, h, i, k] * w[k, j] as contraction()
stage y: float32[b, 3, m, 5] at (n, h, i, j) = s[n, h, i, j] * c[j]
"""


@pytest.mark.parametrize("machine", ["generic", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("sizes", [(0, 4), (1, 1), (2, 5), (3, 11)])
def test_axes_that_vary_and_follow_each_other_are_rows_that_no_division_finds(
    sizes: tuple[int, int], machine: str
) -> None:
    kernel, target = kernel_of(LAYERS, Trait.CONTRACTION), Target(ROWS[machine])
    scheduled = schedule(kernel, target)
    verify(scheduled.function, target.machine)
    assert " % " not in print_function(scheduled.function)
    batch, length = sizes
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((batch, 3, length, 9), (9, 5), (5,))]
    wanted = run_stages(kernel.stages, dict(zip(kernel.inputs, arrays, strict=True)))[kernel.outputs[0]]
    (found,) = run_function(scheduled.function, arrays, [wanted.shape])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("factor", ["left", "right"])
@pytest.mark.parametrize("shape", ["n, 32", "n, m"], ids=["rows", "rows and columns"])
def test_a_product_of_known_extents_reads_a_factor_of_which_more_may_be_there(factor: str, shape: str) -> None:
    left, right = ("a[i, k]", "w[k, j]") if factor == "left" else ("w[i, k]", "a[k, j]")
    text = f"""
input a: float32[{shape}]
input w: float32[32, 32]
stage y: float32[32, 32] at (i, j) = reduce add over k < 32 from float32(0.0): {left} * {right} as contraction()
"""
    kernel = kernel_of(text, Trait.CONTRACTION, {})
    scheduled = schedule(kernel, TARGET)
    sizes = {"a": (40, 32 if shape == "n, 32" else 37), "w": (32, 32)}
    draw = np.random.default_rng(0)
    arrays = [draw.standard_normal(sizes[one.name]).astype(np.float32) for one in kernel.inputs]
    wanted = run_stages(kernel.stages, dict(zip(kernel.inputs, arrays, strict=True)))[kernel.outputs[0]]
    (found,) = run_function(scheduled.function, arrays, [wanted.shape])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)
    assert scheduled.strategy == "blocked_product"
