"""The choice of a kernel's schedule by the trait of its anchor."""

from __future__ import annotations

from graft.core.machine.target import Target
from graft.core.operators.table import Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.parameters import Parameters
from graft.core.schedule.strategies.clipped_windows import schedule_pooling
from graft.core.schedule.strategies.fused_elementwise import schedule_elementwise
from graft.core.schedule.strategies.fused_rows import schedule_row_wise
from graft.core.schedule.strategies.generic_nest import schedule_generic
from graft.core.schedule.strategies.recurrent_layers import schedule_recurrent
from graft.core.schedule.strategies.sequential_loops import schedule_sequential
from graft.core.schedule.strategies.split_reduction import schedule_reduction
from graft.core.tensor_ir.ordered_stages import is_sequential

INTEGER = ("MatMulInteger", "ConvInteger")
"""Operators that products of quantised tensors are made of."""


def schedule(kernel: Kernel, target: Target, parameters: Parameters | None = None) -> Scheduled:
    """Return the kernel in loops for a target, with ``parameters`` where its schedule is of their family.

    The schedules of contractions, attention and convolutions are imported when they are first needed; where they do
    not fit (None) the generic schedule takes the kernel.
    """
    if any(map(is_sequential, kernel.stages)):
        return schedule_recurrent(kernel, target) or schedule_sequential(kernel, target)
    scheduled: Scheduled | None
    match kernel.anchor:
        case Trait.CONTRACTION | Trait.CONVOLUTION if kernel.node is not None and kernel.node.op_type in INTEGER:
            from graft.core.schedule.strategies.nhwc_integers import schedule_integers

            scheduled = schedule_integers(kernel, target)
        case Trait.CONTRACTION:
            from graft.core.schedule.strategies.blocked_product import schedule_contraction

            scheduled = schedule_contraction(kernel, target, parameters)
        case Trait.ATTENTION if "attention" in target.without:
            return schedule_generic(kernel, target)
        case Trait.ATTENTION:
            from graft.core.schedule.strategies.fused_attention import schedule_attention

            scheduled = schedule_attention(kernel, target, parameters)
        case Trait.CONVOLUTION:
            from graft.core.schedule.strategies.direct_convolution import schedule_convolution

            scheduled = schedule_convolution(kernel, target, parameters)
        case Trait.ELEMENTWISE | Trait.INJECTIVE:
            return schedule_elementwise(kernel, target)
        case Trait.REDUCTION:
            return schedule_reduction(kernel, target)
        case Trait.POOLING:
            return schedule_pooling(kernel, target)
        case Trait.ROW_WISE:
            return schedule_row_wise(kernel, target)
        case _:
            return schedule_generic(kernel, target)
    return scheduled or schedule_generic(kernel, target)
