"""The code of a register tile, run in the interpreter."""

import numpy as np
import pytest

from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.statements import ramp
from graft.core.schedule.products.accumulation import (
    Reduced,
    Span,
    accumulate,
    begin_with,
    clear,
    part_span,
    store_into,
    whole_span,
)
from graft.core.schedule.products.fetching import Ahead
from graft.core.schedule.products.tiling import RegisterTile
from graft.core.tensor_ir.interpreting.machine_arithmetic import run_function
from graft.core.tensor_ir.ir import Allocate, Buffer, CallExtern, Expression, Function, Load, Statement, Variable
from graft.core.tensor_ir.rewriting.simplify import simplify
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import walk_statements
from graft.core.types import FLOAT32

LANES = 4


def tile_of(
    depth: tuple[int, ...], rows: int = 2, vectors: int = 2, unroll: int = 2, start: float = 0.0, **options: object
) -> tuple[Function, np.ndarray, np.ndarray]:
    """A function of one tile, what it computes of small integers, and what a product of matrices is."""
    tile, loops = (
        RegisterTile(rows, vectors, LANES, unroll),
        [Reduced(Variable(f"k{n}"), d) for n, d in enumerate(depth)],
    )
    terms = int(np.prod(depth))
    number: Expression = b.index(0)
    for loop in loops:
        number = b.add(b.multiply(number, loop.extent), loop.variable)
    x, w, y = (
        Buffer(name, "float32", tuple(map(b.index, shape)))
        for name, shape in (("x", (rows, terms)), ("w", (terms, tile.columns)), ("y", (rows, tile.columns)))
    )
    if "ahead" in options:
        options["ahead"] = Ahead(w, b.index(0), LANES, 16)
    body = accumulate(
        tile,
        FLOAT32,
        clear(tile, b.constant(start, "float32")),
        loops,
        lambda row: Load(x, (b.index(row), number)),
        lambda vector: Load(w, (number, ramp(vector * LANES, LANES))),
        store_into(tile, y, lambda row, vector: (b.index(row), ramp(vector * LANES, LANES))),
        **options,  # type: ignore[arg-type]
    )
    function = Function("f", (x, w, y), 1, body)
    random = np.random.default_rng(0)
    left, right = (random.integers(-3, 4, b.dims(one)).astype("float32") for one in (x, w))
    return function, run_function(function, [left, right])[0], left @ right + np.float32(start)


@pytest.mark.parametrize("depth", [(1,), (7,), (8,), (2, 3), (3, 1, 4)])
@pytest.mark.parametrize("unroll", [1, 2, 4])
def test_a_tile_sums_all_terms_of_its_loops(depth: tuple[int, ...], unroll: int) -> None:
    function, found, expected = tile_of(depth, unroll=unroll)
    verify(function)
    np.testing.assert_array_equal(found, expected)


def test_sums_start_from_what_they_are_given() -> None:
    _, found, expected = tile_of((5,), rows=3, vectors=1, start=0.5)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("depth", [(64,), (61,), (5, 13), (3, 4, 9)])
def test_a_long_sum_is_a_sum_of_shorter_ones(depth: tuple[int, ...]) -> None:
    function, found, expected = tile_of(depth, exact=8, start=1.0)
    verify(function)
    np.testing.assert_array_equal(found, expected)
    memory = {one.buffer.name for one in walk_statements(function.body) if isinstance(one, Allocate)}
    assert "sums" in memory
    short, *_ = tile_of(depth, exact=1000)
    assert "sums" not in {one.buffer.name for one in walk_statements(short.body) if isinstance(one, Allocate)}


def test_a_span_is_a_part_of_the_last_loop() -> None:
    _, found, _ = tile_of((8,), span=Span(b.index(2), b.index(2), 1))
    _, whole, _ = tile_of((8,))
    function, *_ = tile_of((8,))
    assert not np.array_equal(found, whole)
    random = np.random.default_rng(0)
    left, right = (random.integers(-3, 4, b.dims(one)).astype("float32") for one in function.input_buffers)
    np.testing.assert_array_equal(found, left[:, 2:7] @ right[2:7])


def test_parts_of_a_loop_cover_it_and_only_the_last_has_a_rest() -> None:
    number = Variable("part")
    span = part_span(22, 8, 4, number)
    assert (span.rest, whole_span(22, 4).rest) == (2, 2)
    for part, (begin, count, rest) in enumerate([(0, 2, False), (8, 2, False), (16, 1, True)]):
        own = part_span(22, 8, 4, b.index(part))
        assert (simplify(own.begin), simplify(own.count)) == (b.index(begin), b.index(count))
        assert own.has_rest is not None and simplify(own.has_rest) == b.constant(rest, "bool")


def test_memory_is_fetched_ahead_at_every_step_and_changes_nothing() -> None:
    function, found, expected = tile_of((8,), ahead=True)
    fetches = [one for one in walk_statements(function.body) if isinstance(one, CallExtern)]
    assert fetches and all(one.name == "prefetch" for one in fetches)
    np.testing.assert_array_equal(found, expected)


def test_each_vector_of_a_tile_may_start_from_its_own() -> None:
    tile, totals = RegisterTile(2, 2, LANES), Buffer("totals", "float32", (b.index(4), b.index(LANES)))
    asked: list[tuple[int, int]] = []

    def start(row: int, vector: int) -> Expression:
        asked.append((row, vector))
        return b.constant(0, "float32")

    made: Statement = begin_with(tile, start)(totals)
    assert made is not None and asked == [(0, 0), (0, 1), (1, 0), (1, 1)]
