"""Kernels by schedules that are given as text: by a user, or by what tuning found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graft.core.machine.target import Target
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.collapse import with_sources
from graft.core.schedule.primitives.packing import Pack
from graft.core.schedule.primitives.rewrite import Rewrite
from graft.core.schedule.primitives.schedule_text import numbered_steps, print_schedule, with_names
from graft.core.schedule.primitives.step import Step
from graft.core.schedule.primitives.vectorize import lowered
from graft.core.schedule.products.plain_kernel import plain_products, sum_of
from graft.core.schedule.templates.rewrites import Rewrites, Rewritten
from graft.core.schedule.templates.tiled_nests import plain_nests
from graft.core.tensor_ir.ir import Buffer, Function
from graft.core.tensor_ir.verifying.machine_check import machine_fault
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import walk_statements
from graft.errors import CompileError, ScheduleError

NAME = "given"


def by_steps(kernel: Kernel, text: str, target: Target, rewrites: Rewrites) -> Scheduled:
    """Return a kernel after the steps of a text, each of which proves that it is legal; first it may be rewritten.

    Raises ScheduleError that names the kernel, the line, the step and the reason where one cannot be taken, and that
    names what the machine lacks. What `verify` says is asked once, behind all steps, and step by step if it refuses.
    """
    try:
        function, packed, taken, own = _after(kernel, text, target, rewrites)
        verify(function)
    except (CompileError, ScheduleError):
        function, packed, taken, own = _after(kernel, text, target, rewrites, is_verified=True)
    faults = (machine_fault(one, target.machine) for one in walk_statements(function.body))
    if fault := next(filter(None, faults), ""):
        raise ScheduleError(f"the schedule of kernel '{kernel.name}': {fault}", kernel=kernel.name)
    function = replace(lowered(function), origin=kernel.origin)
    return with_sources(Scheduled(function, packed, strategy=NAME, steps=print_schedule(taken)), own.sources)


def _after(
    kernel: Kernel, text: str, target: Target, rewrites: Rewrites, *, is_verified: bool = False
) -> tuple[Function, dict[Buffer, np.ndarray], list[Step], Rewritten]:
    """Return the function after the steps of a text, what these pack, they themselves, and what they begin with."""
    line = 0
    taken, packed, own = list[Step](), dict[Buffer, np.ndarray](), Rewritten(kernel, {})
    try:
        function = _plain(own)
        for number, step in numbered_steps(with_names(text, [one.name for one in kernel.inputs])):
            line = number
            if isinstance(step, Rewrite) and not taken:
                own = _rewritten(kernel, step, target, rewrites)
                function = _plain(own)
                packed = {one: own.kernel.constants[one] for one in own.kernel.constants if one not in kernel.constants}
            elif is_verified:
                function = step.apply(function)
            else:
                step.check(function)
                function = step.change(function)
            if isinstance(step, Pack):
                packed |= _packed(own.kernel, step)
            taken.append(step)
    except ScheduleError as error:
        place = "" if "line" in error.facts or not line else f"line {line}: "
        raise ScheduleError(
            f"the schedule of kernel '{kernel.name}': {place}{error.message}", kernel=kernel.name, line=line
        ) from error
    return function, packed, taken, own


def _plain(own: Rewritten) -> Function:
    sums = sum_of(own.kernel)
    return plain_nests(own.kernel) if sums is None else plain_products(own.kernel, sums, own.multiply)


def _rewritten(kernel: Kernel, step: Rewrite, target: Target, rewrites: Rewrites) -> Rewritten:
    """Return the kernel that a schedule begins with."""
    if step.name not in rewrites:
        step.fail(f"there is no such rewrite; there are {', '.join(rewrites)}")
    found = rewrites[step.name](kernel, target)
    if found is None:
        step.fail("it is not for this kernel")
    return found


def _packed(kernel: Kernel, step: Pack) -> dict[Buffer, np.ndarray]:
    """Return the constant that a step packs, as the function wants it."""
    buffer = next((one for one in kernel.inputs if one.name == step.buffer), None)
    if buffer is None or buffer not in kernel.constants:
        step.fail(f"'{step.buffer}' is no constant, and is packed once, when the model is compiled")
    return {buffer: step.contents(kernel.constants[buffer])}
