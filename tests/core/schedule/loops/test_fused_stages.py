"""Stages that are inlined, those that stay, and the axes that they have in common."""

from graft.core.schedule.loops.fused_stages import common_rows, fuse, leading_tables
from graft.core.tensor_ir.parser import parse_stages
from tests.core.schedule.strategies.nests.test_fused_rows import SOFTMAX
from tests.core.schedule.strategies.nests.test_generic_nest import TABLES


def test_what_depends_on_one_axis_alone_is_a_table() -> None:
    assert [table.buffer.name for table in leading_tables(parse_stages(TABLES))] == ["place", "weight"]


def test_cheap_stages_are_inlined_and_reductions_stay() -> None:
    text = SOFTMAX.replace("x[i, k]", "t[i, k]").replace(
        "stage top", "stage t: float32[6, 40] at (a, c) = abs(x[a, c])\nstage top"
    )
    stages = parse_stages(text)
    assert [one.buffer.name for one in stages] == ["t", "top", "total", "y"]
    assert [one.buffer.name for one in fuse(stages, [stages[-1].buffer])] == ["top", "total", "y"]


def test_stages_agree_on_the_rows_in_which_they_read_each_other() -> None:
    assert common_rows(parse_stages(SOFTMAX)) == 1
    other = SOFTMAX.replace("exp(x[m, n] - top[m])", "exp(x[m, n] - top[5 - m])")
    assert common_rows(parse_stages(other)) == 0
