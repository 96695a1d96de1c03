from collections.abc import Sequence

import pytest

from graft.core.machine.machine import Machine
from graft.core.machine.rows import X86_64_V3, X86_64_V4
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.schedule.loops import column_reduction, loop_frames, nest
from graft.core.schedule.loops.flat_stages import LoopAxis
from graft.core.schedule.primitives.schedule_text import print_schedule
from graft.core.schedule.primitives.step import Step
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.ir import Function, Statement, Variable
from tests.core.schedule.strategies.nests.test_machines import CARD, KERNELS, MACHINES, kernel_of


def test_steps_take_their_numbers_from_the_machine() -> None:
    axes = (LoopAxis(Variable("i"), 40), LoopAxis(Variable("j"), 37))
    steps = loop_frames.blocked(axes, 8, 8, X86_64_V3, threads=True)
    assert print_schedule(steps) == (
        "split j 8 -> j.block j tail j.rest\nparallel i\nvectorize j\n"
        "split j.rest 4 -> j.rest.vector j.rest.lane tail j.rest.tail\nvectorize j.rest.lane\njam j.rest.vector\n"
        "unroll j.rest.tail\n"
    )
    steps = loop_frames.blocked(axes, 64, 16, X86_64_V4)
    assert print_schedule(steps) == "split j 16 -> j.vector j.lane\nvectorize j.lane\njam j.vector\n"
    steps = loop_frames.shared(axes, CARD)
    assert print_schedule(steps) == (
        "fuse i j -> task\nsplit task 8 -> task task.lane\nbind task.lane lane.x\nbind task block.x\n"
    )


def test_of_axes_that_vary_threads_share_those_around_but_blocks_where_these_may_be_few() -> None:
    n, c, s = Variable("n"), Variable("c"), Variable("s")
    images, channels = LoopAxis.over(Variable("i"), n), LoopAxis.over(Variable("i"), b.multiply(n, 64))
    row = LoopAxis.over(Variable("j"), s)
    large = LoopAxis.over(Variable("j"), b.multiply(b.multiply(c, s), 64), 1 << 20)
    assert [axis.least for axis in (images, channels, row, large)] == [1, 64, 1, 64]

    def shared(*axes: LoopAxis) -> list[str]:
        text = print_schedule(loop_frames.blocked(axes, 16, 16, X86_64_V4, threads=True))
        return [line.removeprefix("parallel ") for line in text.splitlines() if line.startswith("parallel")]

    assert shared(channels, large) == shared(channels, row) == shared(images, row) == ["i"]
    assert shared(images, large) == shared(row) == ["j.block"]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
@pytest.mark.parametrize("name", KERNELS)
def test_no_step_that_strategies_take_unchecked_would_be_refused(
    name: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(body: Statement, steps: Sequence[Step], axes: Sequence[LoopAxis] = ()) -> Statement:
        function = Function("nest", (), 0, body)
        for step in steps:
            step.check(function)
            function = step.change(function)
            count.append(step)
        return function.body

    count: list[Step] = []
    for module in (loop_frames, nest, column_reduction):
        monkeypatch.setattr(module, "taken", taken)
    schedule(kernel_of(name), Target(machine))
    assert count
