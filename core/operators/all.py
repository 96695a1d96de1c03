"""Every family of operators: importing this module fills `graft.core.operators.table.OPERATORS`."""

from graft.core.operators import (
    activation,
    elementwise,
    indexing,
    manipulation,
    view,
)
from graft.core.operators.table import OPERATORS

FAMILIES = (
    activation,
    elementwise,
    indexing,
    manipulation,
    view,
)

__all__ = ["FAMILIES", "OPERATORS"]
