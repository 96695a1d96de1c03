"""A strategy for a machine with blocks, threads and shared memory, put together from primitives."""

from typing import NamedTuple

import numpy as np
import pytest

from graft.core.schedule.primitives.plain_nest import plain_nest
from graft.core.schedule.primitives.schedule_text import apply_schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import Barrier
from graft.core.tensor_ir.parser import parse_stages
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import loads, map_statement, walk_statements
from graft.errors import CompileError


class Level(NamedTuple):
    name: str


class Card(NamedTuple):
    """A machine as `verify` sees it."""

    name: str = "card"
    places: tuple[str, ...] = ("host", "shared", "register")
    levels: tuple[Level, ...] = (Level("block"), Level("thread"))


TILED = """\
split i 4 -> by ty
split j 4 -> bx tx
split k 4 -> k0 k1
reorder by bx ty tx k0 k1
compute_at c at tx
cache_write c at tx in register -> sum
bind by block.y
bind bx block.x
bind ty thread.y
bind tx thread.x
cache_read a at k0 in shared -> tile_a by ty tx
cache_read b at k0 in shared -> tile_b by ty tx
"""


def product(m, n, k):
    stages = parse_stages(f"""
    input a: float32[{m}, {k}]
    input b: float32[{k}, {n}]
    stage c: float32[{m}, {n}] at (i, j) = reduce add over k < {k} from float32(0.0): a[i, k] * b[k, j]
    """)
    inputs = list(dict.fromkeys(load.buffer for load in loads(stages[0].value)))
    return plain_nest("product", stages, inputs, [stages[0].buffer])


def factors(m, n, k):
    random = np.random.default_rng(m * n * k)
    return [random.integers(-4, 5, shape).astype(np.float32) for shape in ((m, k), (k, n))]


@pytest.mark.parametrize("steps", [TILED, TILED + "pipeline k0 tile_b tile_a\n"], ids=["tiled", "double buffered"])
@pytest.mark.parametrize("shape", [(8, 8, 8), (4, 12, 8), (8, 4, 16)], ids=str)
def test_threads_share_tiles_of_both_factors(steps, shape):
    function = apply_schedule(product(*shape), steps)
    verify(function, Card())
    left, right = factors(*shape)
    np.testing.assert_array_equal(run_function(function, [left, right])[0], left @ right)


def test_double_buffering_leaves_one_barrier_an_iteration():
    for steps, count in ((TILED, 2), (TILED + "pipeline k0 tile_b tile_a\n", 2)):
        function = apply_schedule(product(8, 8, 8), steps)
        assert sum(isinstance(one, Barrier) for one in walk_statements(function.body)) == count


def test_every_barrier_of_the_strategy_is_needed():
    function = apply_schedule(product(8, 8, 8), TILED)
    barriers = [one for one in walk_statements(function.body) if isinstance(one, Barrier)]
    assert barriers == [Barrier("block")] * 2
    without = map_statement(
        function.body,
        lambda expression: expression,
        lambda one: (
            type(one)(tuple(inner for inner in one.statements if not isinstance(inner, Barrier)))
            if hasattr(one, "statements")
            else one
        ),
    )
    racing = type(function)(function.name, function.parameters, 1, without)
    with pytest.raises(AssertionError, match=r"^race on 'tile_[ab]\[\d, \d\]': t[xy] = \d "):
        run_function(racing, factors(8, 8, 8))


def test_the_strategy_is_refused_for_a_machine_without_shared_memory():
    function = apply_schedule(product(8, 8, 8), TILED)
    message = "^function 'product': no memory 'shared' on the machine 'card', which has host, register, in 'allocate "
    with pytest.raises(CompileError, match=message):
        verify(function, Card(places=("host", "register")))
