"""Concats and padded rows as one loop nest for each of their parts, against their definition."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.graph.view import NodeView, ValueView
from graft.core.machine.target import Target, target_named
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.operators.lower import buffer_of, lower, lowering_of
from graft.core.operators.movement.padding import mirrored
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.segments import MOST, MOST_OPEN, SHORTEST
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import Buffer, Function
from graft.core.tensor_ir.printer import print_function
from graft.core.tensor_ir.verifying.verifier import verify
from tests.core.schedule.strategies.nests.test_open_extents import kernel_of

TARGETS = (
    target_named("x86-64-v4"),
    target_named("x86-64-v3"),
    target_named("armv8-a"),
)


def concat(shapes: list[tuple[int, ...]], axis: int, follower: str = "", target: Target = TARGETS[0]) -> Function:
    """Return a Concat, perhaps with what follows it, in loops."""
    inputs = ", ".join(f"float[{','.join(map(str, shape))}] x{number}" for number, shape in enumerate(shapes))
    names = ", ".join(f"x{number}" for number in range(len(shapes)))
    body = f"c = Concat <axis = {axis}> ({names})" + (f"  y = {follower} (c)" if follower else "")
    total = [*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :]]
    result = ",".join(map(str, reversed(total) if follower == "Transpose" else total))
    output = f"float[{result}] {'y' if follower else 'c'}"
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => ({output}) {{ {body} }}'
    proto = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))
    graph = ir.from_proto(proto).graph
    buffers: dict[ir.Value, Buffer] = {}

    def buffer(value: ValueView) -> Buffer:
        return buffers.setdefault(value.value, buffer_of(value))

    stages = [stage for node in graph for stage in lower(lowering_of(NodeView(node), buffer), OPERATORS)]
    read = tuple(buffers[value] for value in graph.inputs)
    kernel = Kernel("f", read, (buffers[graph.outputs[0]],), tuple(stages), Trait.INJECTIVE)
    function = schedule(kernel, target).function
    verify(function)
    return function


@st.composite
def parts(draw):
    shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    axis = draw(st.integers(0, len(shape) - 1))
    extents = draw(st.lists(st.integers(0, 20), min_size=1, max_size=5))
    return [(*shape[:axis], extent, *shape[axis + 1 :]) for extent in extents], axis


@settings(max_examples=40, deadline=None)
@given(parts(), st.sampled_from(TARGETS), st.sampled_from(("", "Neg", "Transpose")))
def test_a_concat_in_segments_is_a_concat(case, target, follower):
    shapes, axis = case
    if not sum(shape[axis] for shape in shapes):
        return
    generator = np.random.default_rng(1)
    arrays = [generator.standard_normal(shape).astype(np.float32) for shape in shapes]
    wanted = np.concatenate(arrays, axis)
    wanted = {"": wanted, "Neg": -wanted, "Transpose": wanted.T}[follower]
    function = concat(shapes, axis, follower, target)
    inputs = [array.reshape(-1) for array in arrays]
    np.testing.assert_array_equal(run_function(function, inputs)[0], wanted.reshape(-1))


def searches(function: Function) -> bool:
    return "select(" in print_function(function)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_each_part_is_copied_without_looking_for_it(axis: int) -> None:
    shapes = [tuple(24 + 8 * number if dimension == axis else 16 for dimension in range(3)) for number in range(3)]
    assert not searches(concat(shapes, axis))
    assert not searches(concat(shapes, axis, "Neg"))


def test_no_part_of_a_hundred_is_looked_for() -> None:
    function = concat([(2, 1, 16)] * 100, 1)
    assert not searches(function)
    values = [np.full((2, 1, 16), number, np.float32) for number in range(100)]
    (result,) = run_function(function, [value.reshape(-1) for value in values])
    np.testing.assert_array_equal(result, np.concatenate(values, 1).reshape(-1))


def test_many_or_short_parts_share_their_loops() -> None:
    assert searches(concat([(4, 2)] * (MOST + 1), 0))
    assert searches(concat([(16, 2)] * 3, 1))
    assert not searches(concat([(2, 16)] * 3, 0))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.machine.name)
@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_a_padded_row_is_read_by_vectors_where_it_lies_inside(mode: str, target: Target) -> None:
    x, y = (Buffer(name, "float32", tuple(map(b.index, shape))) for name, shape in (("x", (3, 40)), ("y", (3, 47))))
    stage = b.compute(y, lambda i: b.load(x, i[0], mirrored(b.subtract(i[1], 3), 40, 47, mode, 3)))
    function = schedule(Kernel("f", (x,), (y,), (stage,), Trait.INJECTIVE), target).function
    verify(function)
    image = np.arange(120, dtype=np.float32).reshape(3, 40)
    (found,) = run_function(function, [image.reshape(-1)])
    np.testing.assert_array_equal(found.reshape(3, 47), np.pad(image, ((0, 0), (3, 4)), mode=mode))
    assert re.search(r"= x\[(.* \+ )?ramp\(", print_function(function))


MIRRORED = {
    "reflect": "max(j - 3, 3 - j)", "edge": "max(min(j - 3, m - 1), 0)", "away": "max(min(m - 1 - j, m - 4), 2)",
    "twice": "min(max(7 - j * 2, j * 2 - 7), m - 1)",
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.machine.name)
@pytest.mark.parametrize("length", [3, 4, 5, 12, 40])
@pytest.mark.parametrize("form", MIRRORED)
def test_a_row_of_an_open_extent_is_cut_where_its_index_turns(form: str, length: int, target: Target) -> None:
    index = MIRRORED[form] if form != "reflect" else f"min({MIRRORED[form]}, (m - 1) * 2 - {MIRRORED[form]})"
    text = f"input x: float32[n, m]\nstage y: float32[n, k] at (i, j) = x[i, {index}]"
    kernel = kernel_of(text, Trait.INJECTIVE)
    function = schedule(kernel, target).function
    verify(function)
    image = np.arange(2 * length, dtype=np.float32).reshape(2, length)
    places = np.arange(length + (4 if form == "edge" else 2) if form != "twice" else 4)
    at = eval(index, {"min": np.minimum, "max": np.maximum}, {"j": places, "m": length})
    (found,) = run_function(function, [image], [(2, len(places))])
    np.testing.assert_array_equal(found.reshape(2, -1), image[:, at])
    assert form == "twice" or re.search(r"= x\[(.* [+-] )?ramp\(", print_function(function))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.machine.name)
@pytest.mark.parametrize("columns", [3, 20])
@pytest.mark.parametrize("rows", [(0, 3), (1, 1), (5, 2), (7, 0), (2, 0, 3, 1, 0, 4)], ids=str)
def test_rows_of_open_sources_are_not_looked_for(rows: tuple[int, ...], columns: int, target: Target) -> None:
    names, begins = [f"m{number}" for number in range(len(rows))], ["0"]
    for name in names:
        begins.append(f"{begins[-1]} + {name}")
    value = f"u[i - ({begins[-1]}), j; i - ({begins[-1]}) >= 0 & i - ({begins[-1]}) < 1]"
    for number, name in reversed([*enumerate(names)]):
        place = f"i - ({begins[number]})"
        source = f"x{number}[{place}, j; {place} >= 0 & {place} < {name}]"
        value = f"select(i < {begins[number + 1]}, {source}, {value})"
    inputs = "".join(f"input x{number}: float32[{name}, {columns}]\n" for number, name in enumerate(names))
    stage = f"stage y: float32[k, {columns}] at (i, j) = {value}\n"
    kernel = kernel_of(f"\n{inputs}input u: float32[1, {columns}]\n{stage}", Trait.INJECTIVE)
    function = schedule(kernel, target).function
    verify(function)
    sources = [np.random.default_rng(0).standard_normal((n, columns)).astype(np.float32) for n in (*rows, 1)]
    (found,) = run_function(function, [*sources[:-1], sources[-1][0]], [(sum(rows) + 1, columns)])
    np.testing.assert_array_equal(found.reshape(-1, columns), np.concatenate(sources))
    assert ("select" in print_function(function)) == (columns < SHORTEST and len(rows) > MOST_OPEN)


def test_rows_of_no_element_have_no_parts() -> None:
    x, y = (Buffer(name, "float32", tuple(map(b.index, shape))) for name, shape in (("x", (3, 40)), ("y", (3, 0))))
    stage = b.compute(y, lambda i: b.load(x, i[0], b.add(i[1], 7)))
    function = schedule(Kernel("f", (x,), (y,), (stage,), Trait.INJECTIVE), TARGETS[0]).function
    (found,) = run_function(function, [np.zeros(120, np.float32)])
    assert found.size == 0
