"""Scans, scatters and selections in loops: on any shape what the interpreter says of their stages."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.machine.target import target_named
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.ir import INT64, Constant, For, Function, Store
from graft.core.tensor_ir.ordered_stages import stage_expressions
from graft.core.tensor_ir.parser import parse_stages
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import buffers_read, loads, walk_statements

EXAMPLES = settings(max_examples=12, deadline=None, derandomize=True)
WIDE = target_named("x86-64-v4")
SUMS = """\
input x: float32[{shape}]
stage total: float32[{shape}] in scratch at (i, t, j) = total[i, t - 1, j] + x[i, t, j]
  scan t from float32(0.5)
stage y: float32[{shape}] at (a, t, c) = total[a, {read}, c] * float32(2.0)
  scan t
"""
NETWORK = """\
input x: float32[{steps}, {hidden}]
input r: float32[{hidden}, {hidden}]
carry h: float32[{steps}, {hidden}]
stage s: float32[{steps}, {hidden}] in scratch at (t, i) =
  reduce add over k < {hidden} from x[t, i]: h[{read}, k] * r[k, i]
  then total: float32 = total + h[{read}, i]
  scan t{reverse}
stage h: float32[{steps}, {hidden}] at (t, i) = tanh(s[t, i])
  scan t{reverse} from r[0, i]
"""
ADDED = """\
input x: int32[4, 3]
input places: int64[{count}]
input u: int32[{count}, 3]
stage y: int32[4, 3] at (i, j) = x[i, j]
  scatter {operator} over k < {count}, l < 3 at (places[k], l): u[k, l]
"""
CHOSEN = """\
input x: float32[{rows}, {extent}]
stage p: int64[{rows}, {count}] at (i, j) = choose {order} over k < {extent} by j: abs(x[i, k])
stage y: float32[{rows}, {count}] at (i, j) = x[i, p[i, j]]
"""


def function_of(text: str) -> tuple[Kernel, Function]:
    stages = parse_stages(text)
    computed = [stage.buffer for stage in stages]
    read = [load.buffer for stage in stages for load in loads(*stage_expressions(stage))]
    inputs = tuple(dict.fromkeys(buffer for buffer in read if buffer not in computed))
    outputs = tuple(buffer for buffer in computed if buffer.memory == "host")
    kernel = Kernel("k", inputs, outputs, stages, Trait.RECURRENT)
    function = schedule(kernel, WIDE).function
    verify(function)
    return kernel, function


def check(text: str, given_arrays: Mapping[str, np.ndarray] | None = None) -> Function:
    kernel, function = function_of(text)
    random = np.random.default_rng(len(text))
    arrays = []
    for buffer in kernel.inputs:
        shape = tuple(int(extent.value) for extent in buffer.shape)  # type: ignore[union-attr]
        drawn = (random.uniform(-1, 1, shape) * (1 if buffer.dtype == "float32" else 9)).astype(buffer.dtype)
        arrays.append((given_arrays or {}).get(buffer.name, drawn))
    expected = run_stages(kernel.stages, dict(zip(kernel.inputs, arrays, strict=True)))
    for buffer, found in zip(kernel.outputs, run_function(function, arrays), strict=True):
        np.testing.assert_allclose(found, expected[buffer], rtol=1e-5)
    return function


@EXAMPLES
@given(st.integers(1, 3), st.integers(1, 4), st.sampled_from([1, 3, 5, 16, 37]), st.sampled_from(["t", "t - 1"]))
def test_a_scan_of_lines_agrees_with_its_stages(rows: int, steps: int, columns: int, read: str) -> None:
    check(SUMS.format(shape=f"{rows}, {steps}, {columns}", read=read))


@EXAMPLES
@given(st.integers(1, 4), st.integers(1, 5), st.booleans())
def test_a_scan_whose_lines_need_each_other_agrees_with_its_stages(steps: int, hidden: int, reverse: bool) -> None:
    form = {"read": "t + 1", "reverse": " reverse"} if reverse else {"read": "t - 1", "reverse": ""}
    check(NETWORK.format(steps=steps, hidden=hidden, **form))


@EXAMPLES
@given(st.lists(st.integers(0, 3), max_size=7), st.sampled_from(["set", "add", "mul", "min", "max"]))
def test_a_scatter_agrees_with_its_stage(places: list[int], operator: str) -> None:
    check(ADDED.format(count=len(places), operator=operator), {"places": np.array(places, np.int64)})


ROWS = """\
input x: float32[9, {columns}]
input places: int64[6]
input u: float32[6, {columns}]
stage y: float32[9, {columns}] at (i, j) = x[i, j]
  scatter {operator} over k < 6, l < {columns} at (places[k], l): u[k, l]
"""
ELEMENTS = """\
input x: float32[9, {columns}]
input places: int64[6, {columns}]
input u: float32[6, {columns}]
stage y: float32[9, {columns}] at (i, j) = x[i, j]
  scatter {operator} over k < 6, l < {columns} at (places[k, l], l): u[k, l]
"""


@EXAMPLES
@given(st.sampled_from([1, 5, 37, 150]), st.sampled_from(["set", "add", "max"]), st.sampled_from([ROWS, ELEMENTS]))
def test_a_scatter_of_rows_keeps_the_order_of_updates_of_one_place(columns: int, operator: str, text: str) -> None:
    shape = (6,) if text is ROWS else (6, columns)
    places = np.random.default_rng(columns).integers(2, 5, shape)
    check(text.format(columns=columns, operator=operator), {"places": places})


def test_rows_are_scattered_in_vectors_and_single_elements_are_not() -> None:
    lanes = [
        {store.indices[-1].type.lanes for store in walk_statements(function.body) if isinstance(store, Store)}
        for function in (function_of(text.format(columns=64, operator="set"))[1] for text in (ROWS, ELEMENTS))
    ]
    assert lanes == [{16}, {16, 1}]  # the copy of the data is in vectors


@pytest.mark.parametrize("text", [ROWS, ELEMENTS])
def test_threads_share_the_axis_that_is_an_index_itself(text: str) -> None:
    _, function = function_of(text.format(columns=4000, operator="add"))
    copies, updates = (one for one in walk_statements(function.body) if isinstance(one, For) and one.kind == "parallel")
    read = [{buffer.name for buffer in buffers_read(loop.body)} for loop in (copies, updates)]
    assert [name == {"x"} for name in read] == [True, False]


def test_threads_share_rows_of_which_there_are_few() -> None:
    text = """\
    input places: int64[90000]
    input u: float32[2, 90000]
    stage y: float32[2, 9] at (i, j) = float32(0.0)
      scatter add over l < 2, k < 90000 at (l, places[k]): u[l, k]
    """
    _, function = function_of(text)
    shared = [one.extent for one in walk_statements(function.body) if isinstance(one, For) and one.kind == "parallel"]
    assert shared == [Constant(2, INT64)]


@pytest.mark.parametrize(
    ("rows", "columns", "extent"),
    [(5, 4003, 5), (5, 4000, 5 * 500), (1, 4003, 500)],
    ids=["a rest beside the pieces", "pieces alone", "no rows but one"],
)
def test_threads_share_rows_around_pieces_and_what_is_left_of_them(rows: int, columns: int, extent: int) -> None:
    _, function = function_of(f"""\
input x: float32[{rows}, 9, {columns}]
input places: int64[{rows}, 6, {columns}]
input u: float32[{rows}, 6, {columns}]
stage y: float32[{rows}, 9, {columns}] at (h, i, j) = x[h, i, j]
  scatter add over b < {rows}, k < 6, l < {columns} at (b, places[b, k, l], l): u[b, k, l]
""")
    *_, updates = (one for one in walk_statements(function.body) if isinstance(one, For) and one.kind == "parallel")
    assert "u" in {buffer.name for buffer in buffers_read(updates.body)}
    assert updates.extent == Constant(extent, INT64)


def test_updates_of_computed_places_alone_run_in_order() -> None:
    text = """\
    input places: int64[90000]
    input u: float32[90000]
    stage y: float32[9] at (i) = float32(0.0)
      scatter set over k < 90000 at (places[k]): u[k]
    """
    _, function = function_of(text)
    assert {one.kind for one in walk_statements(function.body) if isinstance(one, For)} == {"serial"}


@EXAMPLES
@given(st.integers(1, 3), st.integers(1, 9), st.sampled_from(["largest", "smallest"]), st.data())
def test_a_selection_agrees_with_its_stages(rows: int, extent: int, order: str, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, extent))
    check(CHOSEN.format(rows=rows, extent=extent, count=count, order=order))


def test_a_scan_takes_lines_side_by_side_in_vectors_of_the_machine() -> None:
    kernel, wide = function_of(SUMS.format(shape="1, 3, 32", read="t"))
    narrow = schedule(kernel, target_named("x86-64-v3")).function
    assert "broadcast(float32(0.5), 16)" in str(wide)
    assert "broadcast(float32(0.5), 8)" in str(narrow)


@pytest.mark.parametrize(("columns", "lanes"), [(8, 8), (7, 4), (3, 2)])
def test_a_scan_of_few_lines_takes_them_in_a_part_of_a_register(columns: int, lanes: int) -> None:
    assert f"broadcast(float32(0.5), {lanes})" in str(function_of(SUMS.format(shape=f"2, 3, {columns}", read="t"))[1])


@pytest.mark.parametrize(("rows", "kind"), [(3, "serial"), (400, "parallel")])
def test_threads_share_the_lines_of_a_long_scan(rows: int, kind: str) -> None:
    _, function = function_of(SUMS.format(shape=f"{rows}, 60, 1", read="t"))
    outermost = next(loop for loop in walk_statements(function.body) if isinstance(loop, For))
    assert outermost.kind == kind
