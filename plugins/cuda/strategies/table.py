"""The table of strategies for devices, in order of preference."""

from __future__ import annotations

from graft.core.schedule.strategies.strategy import StrategyTable
from graft.plugins.cuda.strategies import attention, elements, plain, products, rows

TABLE = StrategyTable(
    (
        attention.STRATEGY,
        products.STRATEGY,
        rows.STRATEGY,
        elements.STRATEGY,
        plain.STRATEGY,
        # stages whose elements depend on each other
        plain.IN_ORDER,
    )
)
