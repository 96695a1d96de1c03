"""What a task is worth: by numbers, and by the extents that are known when it begins."""

from __future__ import annotations

from graft.core.operators.definition import build as b
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.interpreting.interpreter import static_value
from graft.plugins.codegen.emit_analysis import UNKNOWN_EXTENT, Work, grain_of, is_shared

TASK = 10_000
EXTENT = ir.Variable("n")
BUFFER = ir.Buffer("x", "float32", (b.index(64), EXTENT))
ROW, COLUMN = ir.Variable("i"), ir.Variable("j")


def loop(extent: ir.Expression, kind: ir.LoopKind = "serial") -> ir.For:
    value = ir.Unary("sqrt", ir.Load(BUFFER, (ROW, COLUMN)))
    return ir.For(COLUMN, extent, kind, ir.Store(BUFFER, (ROW, COLUMN), value))


def test_the_grain_counts_loops_by_the_extents_that_are_known() -> None:
    work, body = Work(), loop(EXTENT)
    each = work(body) // UNKNOWN_EXTENT
    grain = grain_of(body, work, TASK, {EXTENT: 0})
    for extent in (1, 100, 1_000_000):
        assert static_value(grain, {EXTENT: extent}) == max(1, TASK // (extent * each + 1))
    assert grain_of(body, work, TASK, {}) == b.index(TASK // work(body))
    assert grain_of(loop(b.index(7)), work, TASK, {}) == b.index(TASK // (7 * each))


def test_a_loop_with_an_extent_that_varies_may_be_worth_a_task() -> None:
    assert is_shared(loop(EXTENT, "parallel"), Work(), TASK)
    assert is_shared(loop(b.index(5_000), "parallel"), Work(), TASK)
    assert not is_shared(loop(b.index(5), "parallel"), Work(), TASK)
