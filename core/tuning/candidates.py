"""The candidates for a kernel's parameters: what its strategies hold to be worth measuring.

Stage by stage, around the best so far: first the strategy and the register tile, then the blocks, then what is left.
"""

from __future__ import annotations

from collections.abc import Iterator

from graft.core.machine.target import Target
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.parameters import Parameters
from graft.core.schedule.select import strategy_of
from graft.core.schedule.strategies.table import TABLE
from graft.core.schedule.strategy import Anchor, StrategyTable
from graft.core.types import is_custom

STAGES = 3


def is_tunable(kernel: Kernel, strategies: StrategyTable = TABLE) -> bool:
    """Whether some strategy for a kernel's anchor has knobs."""
    sums = kernel.stages[kernel.anchor_stage].value.type if kernel.stages else None
    has_knobs = any(row.candidates is not None for row in strategies.of(kernel.anchor))
    custom = any(is_custom(stage.buffer.dtype) for stage in kernel.stages)
    return has_knobs and not custom and sums is not None and not sums.is_integer


def candidates(
    kernel: Kernel, target: Target, stage: int, best: Parameters | None, strategies: StrategyTable = TABLE
) -> list[Parameters]:
    """Return what to measure in a stage beside ``best``; a ``best`` of None is the schedule's own choice."""
    found = _first(kernel, target, strategies) if stage == 0 else _more(kernel, target, stage, best, strategies)
    return [one for one in dict.fromkeys(found) if one != best]


def _first(kernel: Kernel, target: Target, strategies: StrategyTable) -> Iterator[Parameters]:
    """What every strategy that has the kernel's form proposes, whether its own model finds it fast or not."""
    anchor = Anchor(kernel)
    for row in strategies.of(kernel.anchor):
        answer = row.applies(anchor, target)
        if row.candidates is not None and (answer is True or answer.code == "cost"):
            yield from row.candidates(anchor, target, 0)


def _more(
    kernel: Kernel, target: Target, stage: int, best: Parameters | None, strategies: StrategyTable
) -> Iterator[Parameters]:
    row = strategy_of(kernel, target, best, strategies)
    if row is not None and row.candidates is not None:
        yield from row.candidates(Anchor(kernel, best), target, stage)
