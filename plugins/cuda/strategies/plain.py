"""The last resort: a thread for each element of a result, which adds whatever is reduced one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from graft.core.machine.machine import KIB
from graft.core.machine.rows import THREADS, caches
from graft.core.machine.target import Target
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.fused_stages import CHEAP
from graft.core.schedule.loops.inline import inline_stages
from graft.core.schedule.loops.nest import operations
from graft.core.schedule.primitives.plain_nest import element
from graft.core.schedule.primitives.vectorize import instantiate
from graft.core.schedule.strategies.nests.fused_elementwise import overwritable
from graft.core.schedule.strategies.nests.generic_nest import with_epilogues
from graft.core.schedule.strategies.sequential.sequential_loops import schedule_sequential
from graft.core.schedule.strategies.strategy import Anchor, Answer, Strategy, of_kernel
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.ordered_stages import is_sequential, uses_of
from graft.core.tensor_ir.rewriting.simplify import simplify_statement
from graft.core.tensor_ir.statements import loops_over

EVERY = frozenset(Trait)


def joined_stages(stages: Sequence[ir.Stage], outputs: Sequence[ir.Buffer]) -> tuple[ir.Stage, ...]:
    """Return stages with those inlined that are cheap to repeat, or that one stage without a reduction reads once."""
    return with_epilogues(inline_stages(stages, outputs, _is_cheap(stages)), outputs)


def _is_cheap(stages: Sequence[ir.Stage]) -> Callable[[ir.Stage], bool]:
    def wanted(stage: ir.Stage) -> bool:
        reads = uses_of(stage.buffer, stages)
        return (len(reads) == 1 and reads[0].reduction is None) or operations(stage.value) <= CHEAP

    return wanted


def schedule_plain(kernel: Kernel, target: Target) -> Scheduled | None:
    """Return a nest of parallel loops for each stage; what lies between them is in the device's memory."""
    stages = joined_stages(kernel.stages, kernel.outputs)
    body: ir.Statement = ir.Block(tuple(element_nest(stage) for stage in stages))
    for stage in reversed(stages):
        if stage.buffer not in kernel.outputs:
            body = ir.Allocate(stage.buffer, body)
    return finished(kernel, body)


def finished(kernel: Kernel, body: ir.Statement, **knobs: int | str) -> Scheduled:
    """Return a kernel's function with loops of its own variables."""
    function = kernel.function(instantiate(simplify_statement(body), {}))
    return Scheduled(replace(function, in_place=overwritable(kernel)), knobs=knobs)


def element_nest(stage: ir.Stage) -> ir.Statement:
    """Return parallel loops over the elements of a stage."""
    return loops_over(zip(stage.axes, stage.buffer.shape, strict=True), element(stage), "parallel")


def scalar(target: Target) -> Target:
    """Return the target as strategies for processors see it: threads, no vectors."""
    memories = caches(32 * KIB, 256 * KIB)
    machine = replace(target.machine, vectors=(), masks=False, memories=memories, levels=THREADS)
    return replace(target, machine=machine)


def _independent(anchor: Anchor, target: Target) -> Answer:
    ordered = any(map(is_sequential, anchor.kernel.stages))
    return Reject("no-pattern", "its elements depend on each other") if ordered else True


def _in_order(kernel: Kernel, target: Target) -> Scheduled | None:
    return schedule_sequential(kernel, scalar(target))


STRATEGY = Strategy("cuda.plain", EVERY, of_kernel(schedule_plain), _independent, varies=None)
IN_ORDER = Strategy("cuda.in_order", EVERY, of_kernel(_in_order), varies=None)
