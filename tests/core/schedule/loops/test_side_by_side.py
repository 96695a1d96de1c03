"""Stages in one loop along one axis that varies; those that cannot be are left apart."""

from __future__ import annotations

from graft.core.machine.rows import X86_64_V4
from graft.core.operators.definition import build as b
from graft.core.schedule.loops.flat_stages import FlatStage, Layout, flatten
from graft.core.schedule.loops.side_by_side import side_by_side
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import walk_statements

EXTENT = ir.Variable("n")
X, Y, Z = (ir.Buffer(name, "float32", (EXTENT,)) for name in "xyz")
OTHER, KNOWN = (ir.Buffer("z", "float32", (extent,)) for extent in (ir.Variable("m"), b.index(64)))
SIMPLIFIER = Simplifier()
LAYOUT = Layout(SIMPLIFIER)


def stage(target: ir.Buffer, read: ir.Buffer, before: int = 0) -> FlatStage:
    """A stage that takes the square root of what stands so many elements before its own."""
    axis = ir.Variable(f"i_{target.name}")
    value = ir.Unary("sqrt", ir.Load(read, (b.subtract(axis, before),)))
    return flatten(ir.Stage(target, (axis,), value), LAYOUT)


def test_stages_of_one_extent_are_one_loop_that_threads_share() -> None:
    body = side_by_side([stage(Y, X), stage(Z, X)], SIMPLIFIER, X86_64_V4)
    assert body is not None
    loops = [one for one in walk_statements(body) if isinstance(one, ir.For) and one.kind != "vector"]
    assert [loop.kind for loop in loops] == ["parallel", "serial"]
    for loop in loops:
        stored = [one.buffer.name for one in walk_statements(loop) if isinstance(one, ir.Store)]
        assert stored == ["y", "z"]


def test_stages_of_other_extents_or_that_read_neighbours_are_none() -> None:
    first = stage(Y, X)
    for others in ([], [stage(OTHER, X)], [stage(KNOWN, X)], [stage(Z, Y, before=1)]):
        assert side_by_side([first, *others], SIMPLIFIER, X86_64_V4) is None


def test_what_reads_the_stage_before_at_its_own_place_goes_along() -> None:
    assert side_by_side([stage(Y, X), stage(Z, Y)], SIMPLIFIER, X86_64_V4) is not None
