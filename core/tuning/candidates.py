"""The candidates for a kernel's parameters: what its strategies, and templates, hold to be worth measuring.

Stage by stage, around the best so far: first the strategy and the register tile, then the blocks, then what is left.
"""

from __future__ import annotations

from collections.abc import Iterator

from graft.core.machine.target import Target
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.parameters import Parameters
from graft.core.schedule.selection.select import strategy_of
from graft.core.schedule.selection.table import TABLE
from graft.core.schedule.strategies.strategy import Anchor, Strategy, StrategyTable
from graft.core.schedule.templates.space import Cost, schedules
from graft.core.schedule.templates.tiled_nests import ANCHORS
from graft.core.types import is_custom

STAGES = 3


def is_tunable(kernel: Kernel, strategies: StrategyTable = TABLE) -> bool:
    """Whether some strategy for a kernel's anchor, or a template, has knobs."""
    sums = kernel.stages[kernel.anchor_stage].value.type if kernel.stages else None
    has_knobs = any(row.candidates is not None for row in _rows(kernel, strategies))
    custom = any(is_custom(stage.buffer.dtype) for stage in kernel.stages)
    if sums is not None and sums.is_integer:
        has_knobs = any(
            row.candidates is not None and (row.is_for_integers or row.rewrites) for row in _rows(kernel, strategies)
        )
    return (has_knobs or kernel.anchor in {*ANCHORS, Trait.RECURRENT}) and not custom and sums is not None


def candidates(
    kernel: Kernel,
    target: Target,
    stage: int,
    best: Parameters | None,
    strategies: StrategyTable = TABLE,
    cost: Cost | None = None,
) -> list[Parameters]:
    """Return what to measure in a stage beside ``best``; a ``best`` of None is the schedule's own choice.

    ``cost`` ranks tiles of the template, instead of the model of cycles.
    """
    own = _first(kernel, target, strategies) if stage == 0 else _more(kernel, target, stage, best, strategies)
    steps = schedules(kernel, target, stage, best, cost, strategies.rewrites) if is_tunable(kernel, strategies) else ()
    return [one for one in dict.fromkeys((*own, *steps)) if one != best]


def _first(kernel: Kernel, target: Target, strategies: StrategyTable) -> Iterator[Parameters]:
    """What each strategy proposes and would take, whether its own model finds it fast or not."""
    for row in _rows(kernel, strategies):
        proposed = () if row.candidates is None else row.candidates(Anchor(kernel), target, 0)
        yield from (one for one in proposed if row.takes(Anchor(kernel, one), target))


def _rows(kernel: Kernel, strategies: StrategyTable) -> Iterator[Strategy]:
    """The strategies for a kernel's anchor and the kind of its extents."""
    return (row for row in strategies.of(kernel.anchor) if row.fits(Anchor(kernel)))


def _more(
    kernel: Kernel, target: Target, stage: int, best: Parameters | None, strategies: StrategyTable
) -> Iterator[Parameters]:
    row = strategy_of(kernel, target, best, strategies)
    if row is not None and row.candidates is not None:
        yield from row.candidates(Anchor(kernel, best), target, stage)
