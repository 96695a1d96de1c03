"""The schedule of a stage: the template's steps for a tiling, taken on its plain loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graft.core.schedule.primitives.schedule_text import take
from graft.core.schedule.primitives.step import Step
from graft.core.tensor_ir.ir import Function
from graft.core.tensor_ir.verifying.verifier import verify
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.intrinsics import Intrinsic, machine
from graft.plugins.accelerator.nests import nest_of
from graft.plugins.accelerator.stages import Stage
from graft.plugins.accelerator.template import steps_of
from graft.plugins.accelerator.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A function, the intrinsics that it calls, and the steps that were taken on it."""

    function: Function
    intrinsics: Mapping[str, Intrinsic]
    steps: tuple[Step, ...]


def scheduled(stage: Stage, tiling: Tiling, configuration: Configuration) -> Scheduled:
    """Return a stage's loops in tiles, its operands in the accelerator's memories, its loops over lanes instructions.

    What steps are taken here never changes the order of dependent accesses, so none is asked about; the whole is
    verified for the machine.
    """
    nest = nest_of(stage, configuration)
    steps = tuple(steps_of(stage, nest, tiling))
    function = take(nest.function, steps)
    verify(function, machine(configuration))
    return Scheduled(function, {one.name: one for one in nest.intrinsics.values()}, steps)
