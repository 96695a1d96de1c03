import re

import pytest

from graft.core.schedule.primitives.schedule_text import apply_schedule
from graft.core.tensor_ir.ir import Allocate
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.visit import walk_statements
from graft.errors import ScheduleError
from tests.core.schedule.primitives.nests import check, matmul


def test_double_buffering_fills_the_next_place_while_this_one_is_used():
    stages, function = matmul(4, 4, 12)
    steps = "split k 4 -> k0 k1\nreorder k0 i j k1\ncache_read a at k0 in scratch -> near\npipeline k0 near"
    piped = apply_schedule(function, steps)
    (near,) = [one.buffer for one in walk_statements(piped.body) if isinstance(one, Allocate)]
    assert [int(extent.value) for extent in near.shape] == [2, 4, 4]
    check(stages, piped)


@pytest.mark.parametrize(
    ("before", "body", "behind", "reason"),
    [
        ("", "y[0] = x[i] z[i] = y[0]", "", "'y' is no memory that is allocated in 'i' or around it"),
        ("{t}", "t[0] = x[i] z[i] = t[0]", "y[0] = t[0]", "'t' is used outside of 'i'"),
        ("{t}", "t[i] = x[i] z[i] = t[max(i - 1, 0)]", "", "iterations of 'i' do not fill 't' alike"),
        ("{t}", "if i < 1 { t[0] = x[i] } z[i] = t[0]", "", "iterations of 'i' do not fill 't' alike"),
        ("{t}", "t[0] = x[i] + t[0] z[i] = t[0]", "", "iterations of 'i' do not fill 't' alike"),
    ],
)
def test_a_cache_keeps_nothing_from_one_iteration_to_the_next(before, body, behind, reason):
    before = before.format(t="allocate t: float32[4] in scratch")
    function = parse_function(
        f"function f(x: float32[4]) -> (y: float32[1], z: float32[4]) {{ {before} serial i < 4 {{ {body} }} {behind} }}"
    )
    step = f"pipeline i {'t' if before else 'y'}"
    with pytest.raises(ScheduleError, match=f"^{re.escape(f'cannot {step!r}: {reason}')}$"):
        apply_schedule(function, step)
