"""The short forms of loops, and tiles out of a row, run in the interpreter."""

from collections.abc import Callable

import numpy as np
import pytest

from graft.core.machine.target import target_named
from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import Lanes, block, let, loop, tiles
from graft.core.tensor_ir.interpreting.machine_arithmetic import run_function
from graft.core.tensor_ir.ir import Block, Buffer, Expression, For, Function, Let, Load, Statement, Store, Variable


def counted(extent: b.Count, step: int, around: Callable[[Statement], Statement]) -> tuple[list[float], list[int]]:
    """How often tiles of a row touch each of 16 elements, and the sizes that the body is made for."""
    row = Buffer("row", "float32", (b.index(16),))
    sizes: list[int] = []

    def body(begin: Expression, size: int) -> Statement:
        sizes.append(size)
        places = [b.add(begin, number) for number in range(size)]
        return Block(tuple(Store(row, (at,), b.add(Load(row, (at,)), b.constant(1, "float32"))) for at in places))

    clear = loop(16, lambda i: Store(row, (i,), b.constant(0, "float32")))
    made = Block((clear, around(tiles(extent, step, body))))
    (result,) = run_function(Function("f", (row,), 1, made), [])
    return result.tolist(), sizes


def test_a_loop_of_one_iteration_is_its_body_at_0() -> None:
    target = Buffer("y", "float32", (b.index(1),))
    body = loop(1, lambda place: Store(target, (place,), b.constant(2, "float32")), "parallel")
    assert body == Store(target, (b.index(0),), b.constant(2, "float32"))


def test_a_loop_has_the_name_and_the_kind_that_it_is_given() -> None:
    target = Buffer("y", "float32", (b.index(3),))
    made = loop(3, lambda place: Store(target, (place,), b.constant(2, "float32")), "parallel", "step")
    assert isinstance(made, For)
    assert (made.variable.name, made.kind, made.extent) == ("step", "parallel", b.index(3))


def test_a_block_of_one_statement_is_that_statement() -> None:
    one = Block(())
    assert block(one) is one
    assert block(one, one) == Block((one, one))


def test_a_value_is_bound_to_a_variable_of_its_type() -> None:
    target = Buffer("y", "float32", (b.index(1),))
    made = let(b.constant(2, "float32"), lambda name: Store(target, (b.index(0),), name), "two")
    assert isinstance(made, Let)
    assert (made.variable.name, made.variable.type.dtype) == ("two", "float32")


@pytest.mark.parametrize(("length", "sizes"), [(12, [4]), (11, [4, 3]), (3, [3])])
def test_tiles_of_a_known_row_cover_it_once_with_a_smaller_one_at_its_end(length: int, sizes: list[int]) -> None:
    assert counted(length, 4, lambda body: body) == ([1] * length + [0] * (16 - length), sizes)


@pytest.mark.parametrize(("step", "sizes"), [(6, [6, 4, 2, 1]), (8, [8, 4, 2, 1]), (1, [1])])
@pytest.mark.parametrize("length", [0, 1, 5, 6, 12, 13])
def test_tiles_of_a_row_that_varies_halve_until_one_is_left(length: int, step: int, sizes: list[int]) -> None:
    extent = Variable("extent")
    found = counted(extent, step, lambda body: Let(extent, b.index(length), body))
    assert found == ([1] * length + [0] * (16 - length), sizes)


@pytest.mark.parametrize(("target", "count"), [("x86-64", 4), ("x86-64-v3", 8), ("x86-64-v4", 16)])
def test_a_vector_has_as_many_lanes_as_a_register_has_float32(target: str, count: int) -> None:
    assert Lanes.of(target_named(target)) == Lanes(count)


def test_the_lanes_behind_the_end_of_a_row_are_masked() -> None:
    lanes = Lanes(4)
    assert lanes.padded(5) == 8
    assert lanes.tail_mask(b.index(4), 8) is None
    source, target = (Buffer(name, "float32", (b.index(extent),)) for name, extent in (("x", 6), ("y", 8)))
    part = lanes.part(source, (), 1, b.index(4), 5)
    body = lanes.set_vector(target, (), b.index(4), part)
    clear = loop(8, lambda i: Store(target, (i,), b.constant(7, "float32")))
    (result,) = run_function(Function("f", (source, target), 1, Block((clear, body))), [np.arange(6, dtype="float32")])
    np.testing.assert_array_equal(result, [7, 7, 7, 7, 5, 0, 0, 0])


def test_one_lane_is_a_scalar() -> None:
    lanes, value = Lanes(1), b.constant(2, "float32")
    assert lanes.splat(value) is value
    assert lanes.ramp(b.index(3)) == b.index(3)
    assert lanes.joined("add", value) is value


def test_a_tile_of_sums_is_what_its_rows_and_columns_multiply_to() -> None:
    lanes, rows, depth = Lanes(4), 2, 3
    left, right, target = (
        Buffer(name, "float32", tuple(map(b.index, shape)))
        for name, shape in (("l", (rows, depth)), ("r", (depth, 8)), ("y", (rows, 8)))
    )
    body = lanes.tile(
        range(rows),
        [0, 4],
        depth,
        lambda line, k: Load(left, (b.index(line), k)),
        lambda k, place: lanes.vector(right, (k,), b.index(place)),
        lambda line, place: lanes.zeros("float32"),
        lambda line, place, total: lanes.set_vector(target, (b.index(line),), b.index(place), total),
    )
    random = np.random.default_rng(0)
    x, w = (random.integers(-3, 4, shape).astype("float32") for shape in ((rows, depth), (depth, 8)))
    (result,) = run_function(Function("f", (left, right, target), 1, body), [x, w])
    np.testing.assert_array_equal(result, x @ w)
