import re
from dataclasses import replace

import numpy as np
import pytest

from graft.core.schedule.primitives.loop_kinds import Vectorize
from graft.core.schedule.primitives.schedule_text import apply_schedule, parse_schedule
from graft.core.schedule.primitives.step import with_loop
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.ir import Allocate, Binary, For, Store
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.visit import walk_statements
from graft.errors import ScheduleError
from tests.core.schedule.primitives.nests import SUBJECTS, check, names

SUMS = """
function sums(x: float32[3, {n}]) -> (y: float32[{n}]) {{
  serial j < {n} {{
    allocate total: float32[] in register
    total[] = float32(0.5)
    serial k < 3 {{ total[] = total[] + x[k, j] }}
    y[j] = total[] * float32(2.0)
  }}
}}
"""


@pytest.mark.parametrize("extent", [8, 11, 16])
def test_sums_side_by_side_share_their_loop_and_have_a_register_each(extent):
    function = parse_function(SUMS.format(n=extent))
    steps = "split j 4 -> jv jl\nvectorize jl\njam jv"
    jammed = apply_schedule(function, steps)
    assert names(jammed) == ["k"]
    (total,) = [one.buffer for one in walk_statements(jammed.body) if isinstance(one, Allocate)]
    assert [int(extent.value) for extent in total.shape] == [-(-extent // 4), 4]
    x = np.arange(3 * extent, dtype=np.float32).reshape(3, extent)
    np.testing.assert_array_equal(run_function(jammed, [x])[0], (x.sum(0) + 0.5) * 2)


def test_what_a_guard_never_lets_run_may_be_jammed():
    stages, function = SUBJECTS["chain"](1, 1, 1)
    for step in parse_schedule("split i 2 -> v0 w0\nsplit v0 1 -> v1 w1\njam w0"):
        function = step.apply(function)
    check(stages, function)


def test_copies_of_a_loop_without_iterations_are_none():
    jammed = apply_schedule(
        parse_function("function f(x: float32[2]) -> (y: float32[2]) { serial i < 0 { y[i] = x[i] } }"), "jam i"
    )
    assert names(jammed) == [] and not [one for one in walk_statements(jammed.body) if isinstance(one, Store)]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("serial j < i { y[i, j] = x[j] }", "the extent of 'j' is not the same in all lanes"),
        ("let e: int64 = i * i { serial j < e { y[i, j] = x[j] } }", "the extent of 'j' is not the same in all lanes"),
        ("allocate t: float32[i + 1] in scratch t[i] = x[i] y[i, 0] = t[i]", "the shape of 't' is not the same in all"),
        ("y[i, ramp(0, 1, 4)] = x[ramp(0, 1, 4)]", "in 'i' are vectors already"),
    ],
)
def test_lanes_share_their_loops_and_hold_scalars(body, reason):
    function = parse_function(f"function f(x: float32[4]) -> (y: float32[2, 4]) {{ serial i < 2 {{ {body} }} }}")
    with pytest.raises(ScheduleError, match=f"^cannot 'vectorize i': {re.escape(reason)}"):
        apply_schedule(function, "vectorize i")


@pytest.mark.parametrize("step", ["vectorize j", "parallel j"])
def test_a_loop_inside_of_a_vector_is_none_of_its_own(step):
    _, function = SUBJECTS["chain"](2, 3, 1)
    (vectorize,), (inner,) = parse_schedule("vectorize i"), parse_schedule(step)
    with pytest.raises(ScheduleError) as caught:
        inner.apply(vectorize.apply(function))
    assert caught.value.message == (f"cannot '{step}': 'j' is inside of 'i', whose iterations are the lanes of vectors")


@pytest.mark.parametrize("steps", ["bind i block.x\nbind j block.x", "bind j block.x\nbind i block.x"])
def test_loops_in_each_other_are_bound_to_levels_of_their_own(steps):
    _, function = SUBJECTS["chain"](2, 3, 1)
    bound, step = "ij" if steps.startswith("bind i") else "ji", steps.splitlines()[1]
    message = f"cannot '{step}': '{bound[0]}', in one nest with it, is bound to 'block.x' already"
    with pytest.raises(ScheduleError, match=f"^{re.escape(message)}$"):
        apply_schedule(function, steps)


def test_a_value_whose_parts_are_shared_is_walked_once():
    """Doubled sixty times, it has 2**60 leaves and sixty nodes."""
    function = parse_function("function f(x: float32[8]) -> (y: float32[8]) { serial i < 8 { y[i] = x[i] } }")
    (loop,) = (one for one in walk_statements(function.body) if isinstance(one, For))
    store = loop.body
    value = store.value
    for _ in range(60):
        value = Binary("add", value, value)
    body = with_loop(function.body, loop.variable, lambda one: replace(one, body=replace(store, value=value)))
    changed = Vectorize("i").change(replace(function, body=body))
    (kind,) = (one.kind for one in walk_statements(changed.body) if isinstance(one, For))
    assert kind == "vector"
