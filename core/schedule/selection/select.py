"""The choice of a kernel's schedule: the first strategy of a table that takes it."""

from __future__ import annotations

from graft.core.machine.target import Target
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.parameters import Parameters
from graft.core.schedule.selection.table import TABLE
from graft.core.schedule.strategies.strategy import Anchor, Strategy, StrategyTable


def schedule(
    kernel: Kernel, target: Target, parameters: Parameters | None = None, strategies: StrategyTable = TABLE
) -> Scheduled:
    """Return the kernel in loops for a target, with ``parameters`` where its strategy has such knobs.

    The schedule names its strategy and says why the rows before it refused. Raises CompileError if no row takes the
    kernel: a table without a last resort.
    """
    return strategies.scheduled(Anchor(kernel, parameters), target)


def strategy_of(
    kernel: Kernel, target: Target, parameters: Parameters | None = None, strategies: StrategyTable = TABLE
) -> Strategy | None:
    """Return the strategy that applies to a kernel first, without building anything; None if there is none."""
    return strategies.first(Anchor(kernel, parameters), target)


def rounds(kernel: Kernel, target: Target, strategies: StrategyTable = TABLE) -> bool:
    """Return whether a kernel's float32 factors are rounded to bfloat16, without building anything."""
    return strategies.rounds(Anchor(kernel), target)
