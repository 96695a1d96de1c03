"""The choice of a kernel's schedule: the first strategy of a table that takes it."""

from __future__ import annotations

from dataclasses import replace

from graft.core.machine.target import Target
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.parameters import Parameters
from graft.core.schedule.strategies.table import TABLE
from graft.core.schedule.strategy import Anchor, Strategy, StrategyTable
from graft.errors import CompileError


def schedule(
    kernel: Kernel, target: Target, parameters: Parameters | None = None, strategies: StrategyTable = TABLE
) -> Scheduled:
    """Return the kernel in loops for a target, with ``parameters`` where its strategy has such knobs.

    The schedule names its strategy and says why the rows before it refused. Raises CompileError if no row takes the
    kernel: a table without a last resort.
    """
    anchor, refusals = Anchor(kernel, parameters), dict[str, Reject]()
    for row, refused, cycles in strategies.answers(anchor, target):
        found = row.built(anchor, target) if refused is None else refused
        if isinstance(found, Scheduled):
            return replace(found, strategy=row.name, refusals=refusals, cycles=cycles)
        refusals[row.name] = found
    said = "; ".join(f"{name}: {reject}" for name, reject in refusals.items()) or "there is none for its anchor"
    raise CompileError(f"no strategy takes kernel '{kernel.name}' ({kernel.anchor.name.lower()}): {said}")


def strategy_of(
    kernel: Kernel, target: Target, parameters: Parameters | None = None, strategies: StrategyTable = TABLE
) -> Strategy | None:
    """Return the strategy that applies to a kernel first, without building anything; None if there is none."""
    answers = strategies.answers(Anchor(kernel, parameters), target)
    return next((row for row, refused, _ in answers if refused is None), None)


def rounds(kernel: Kernel, target: Target, strategies: StrategyTable = TABLE) -> bool:
    """Return whether a kernel's float32 factors are rounded to bfloat16, without building anything."""
    anchor = Anchor(kernel)
    rows = (row for row, refused, _ in strategies.answers(anchor, target) if refused is None)
    return next((said for row in rows if (said := row.rounds(anchor, target)) is not None), False)
