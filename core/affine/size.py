"""How large an extent is, written out: what bounds the time and the memory of all that is done with it.

The operations of the algebra take time that grows with their operands, and results that may be several times as large;
so a chain of them would double at each step. Who computes shapes keeps no extent beyond `MOST_OPERATIONS`: a symbol of
its own stands for it, which is bound when the value exists.
"""

from __future__ import annotations

from functools import lru_cache

from graft.core.affine.expressions import CACHED
from graft.runtime.extents import MAXIMUM, Extent, Operation

MOST_OPERATIONS = 64


@lru_cache(CACHED)
def operations(extent: Extent) -> int:
    """Return how many operations an extent has, written out; more than are kept where a number is beyond `MAXIMUM`."""
    if isinstance(extent, Operation):
        return 1 + operations(extent.left) + operations(extent.right)
    return MOST_OPERATIONS + 1 if isinstance(extent, int) and abs(extent) > MAXIMUM else 0


def is_large(extent: Extent) -> bool:
    """Whether an extent is beyond what is kept."""
    return operations(extent) > MOST_OPERATIONS
