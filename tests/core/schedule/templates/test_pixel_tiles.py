"""The template of convolutions with channels last: its steps are legal, and have a text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from graft.core.machine.rows import ROWS
from graft.core.machine.target import Target
from graft.core.schedule.primitives.loop_kinds import Parallel
from graft.core.schedule.primitives.loop_order import Reorder
from graft.core.schedule.primitives.schedule_text import parse_schedule, print_schedule
from graft.core.schedule.primitives.step import Step
from graft.core.schedule.products.epilogue import fused_stages
from graft.core.schedule.strategies.convolutions.direct_nhwc import direct_sums, schedule_images
from graft.core.schedule.templates import pixel_tiles
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import buffers_read, walk_statements
from tests.core.schedule.strategies.convolutions.varying_images import Kind, kernel_of, with_channels_last

KINDS: dict[str, Kind] = {
    "a window in one part": ((20, 5, 3, 3), {"pads": [1, 1, 1, 1]}),
    "a long sum": ((16, 70, 3, 3), {}),
    "groups and channels that are left over": ((18, 40, 5, 3), {"group": 2, "strides": [2, 1]}),
    "many channels": ((80, 300, 1, 1), {}),
}


def proven(function: ir.Function, steps: Iterable[Step]) -> ir.Function:
    """Take steps, each of which is checked, as is the function that it makes.

    Tables say where the pixels of a tile lie, and the last two tiles share some, whose sums are alike: in which order
    tiles come, and that threads may share them, is the template's to say.
    """
    made = {one.buffer for one in walk_statements(function.body) if isinstance(one, ir.Allocate)}
    read = [one for one in buffers_read(function.body) if one not in made and one not in function.parameters]
    whole = replace(function, parameters=(*function.parameters[:1], *read, *function.parameters[1:]))
    for step in steps:
        if not isinstance(step, Parallel | Reorder):
            step.check(whole)
        whole = step.change(whole)
        verify(whole)
    return whole


@pytest.mark.parametrize("size", [(), (7, 9)])
@pytest.mark.parametrize("kind", KINDS)
def test_each_step_is_legal(kind: str, size: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = with_channels_last(kernel_of(*KINDS[kind], size=size)[0])
    stages, target = fused_stages(kernel), Target(ROWS["x86-64-v4"], 1)
    assert stages is not None
    plain = schedule_images(kernel, stages, target)
    monkeypatch.setattr(pixel_tiles, "take", proven)
    checked = schedule_images(kernel, stages, target)
    assert plain is not None and checked is not None
    assert str(plain.function) == str(checked.function)


def test_steps_are_text() -> None:
    kernel = with_channels_last(kernel_of((88, 600, 1, 1), {})[0])
    stages = fused_stages(kernel)
    direct = None if stages is None else direct_sums(kernel, stages, Target(ROWS["x86-64-v3"], 1))
    assert direct is not None
    for most in (0, 4):
        steps = tuple(direct.steps(most))
        assert parse_schedule(print_schedule(steps)) == steps
        assert sum(str(step).startswith("merge") for step in steps) == 1  # tiles of whole vectors, and the others
        assert sum(str(step).startswith("subtotal") for step in steps) == 2
