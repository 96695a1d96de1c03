"""Vectors of images near their borders: zeros where they lie beyond one that is known only when a kernel runs."""

from __future__ import annotations

from collections.abc import Sequence

from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.statements import wide
from graft.core.schedule.primitives.vectorize import both
from graft.core.tensor_ir.ir import Buffer, Expression, Load


def bordered(
    source: Buffer, indices: Sequence[Expression], checked: Sequence[int], mask: Expression | None, *, masks: bool
) -> Expression:
    """Return the vector at ``indices``, zeros where an index into one of the axes in ``checked`` lies outside.

    The last index is a vector. On a machine without ``masks`` another element is read there, so that there must be one.
    """
    lanes, places, conditions = indices[-1].type.lanes, list(indices), list[Expression]()
    for axis in checked:
        place, extent = indices[axis], source.shape[axis]
        conditions += [b.greater_equal(place, 0), b.less(place, extent)]
        places[axis] = b.maximum(b.minimum(place, b.subtract(extent, 1)), 0)
    inside = b.all_of(conditions)
    if inside is None:
        return Load(source, tuple(indices), mask)
    if masks:
        return Load(source, tuple(indices), both(mask, wide(inside, lanes)))
    return b.select(wide(inside, lanes), Load(source, tuple(places), mask), 0)
