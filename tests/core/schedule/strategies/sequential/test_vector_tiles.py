"""Tiles of vectors, run in the interpreter."""

import numpy as np

from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import loop
from graft.core.schedule.strategies.sequential.vector_tiles import Lanes
from graft.core.tensor_ir.interpreting.machine_arithmetic import run_function
from graft.core.tensor_ir.ir import Block, Buffer, Function, Load, Store


def test_the_lanes_behind_the_end_of_a_row_are_masked() -> None:
    lanes = Lanes(4)
    assert lanes.padded(5) == 8
    assert lanes.tail_mask(b.index(4), 8) is None
    source, target = (Buffer(name, "float32", (b.index(extent),)) for name, extent in (("x", 6), ("y", 8)))
    part = Load(source, (lanes.ramp(b.index(5)),), lanes.tail_mask(b.index(4), 5))
    body = lanes.set_vector(target, (), b.index(4), part)
    clear = loop(8, lambda i: Store(target, (i,), b.constant(7, "float32")))
    (result,) = run_function(Function("f", (source, target), 1, Block((clear, body))), [np.arange(6, dtype="float32")])
    np.testing.assert_array_equal(result, [7, 7, 7, 7, 5, 0, 0, 0])


def test_one_lane_is_a_scalar() -> None:
    lanes, value = Lanes(1), b.constant(2, "float32")
    assert lanes.splat(value) is value
    assert lanes.ramp(b.index(3)) == b.index(3)


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
        lambda line, place: lanes.splat(b.constant(0, "float32")),
        lambda line, place, total: lanes.set_vector(target, (b.index(line),), b.index(place), total),
    )
    random = np.random.default_rng(0)
    x, w = (random.integers(-3, 4, shape).astype("float32") for shape in ((rows, depth), (depth, 8)))
    (result,) = run_function(Function("f", (left, right, target), 1, body), [x, w])
    np.testing.assert_array_equal(result, x @ w)
