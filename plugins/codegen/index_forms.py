"""Indices in generated code as linear forms over the texts of what cannot be taken apart: loop indices, quotients.

Accesses that differ by a constant then share one address computation, and a constant step from lane to lane is seen
whatever way it was written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from graft.core.affine.linear import Linear
from graft.core.tensor_ir.ir import Binary, Broadcast, Constant, Expression, Ramp, Variable

Form: TypeAlias = Linear[str]
MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
"""The comparison that says the same of operands that are exchanged."""


def index_form(
    index: Expression, bound: Callable[[Variable], Form | None], atom: Callable[[Expression], Form]
) -> Form | None:
    """Return the form of an index, None for a vector that has no constant step.

    ``bound`` has the forms of let-bound vectors, ``atom`` gives that of a scalar that is no sum.
    """
    # No `match`, and the most frequent first: this is asked of every index that is emitted.
    if isinstance(index, Constant):
        return Linear(int(index.value))
    if isinstance(index, Variable):
        return atom(index) if index.type.lanes == 1 else bound(index)
    if isinstance(index, Binary) and index.operator in _LINEAR:
        first, second = index_form(index.left, bound, atom), index_form(index.right, bound, atom)
        if index.operator != "mul":
            sign = 1 if index.operator == "add" else -1
            return None if first is None or second is None else first.plus(second, sign)
        if first is not None and second is not None:
            for factor, form in ((first, second), (second, first)):
                if factor.is_constant:
                    return form.times(factor.constant)
    elif isinstance(index, Ramp):
        base = index_form(index.base, bound, atom)
        assert base is not None, "the base of a ramp is a scalar"
        return base.plus(Linear(lane=index.stride))
    elif isinstance(index, Broadcast):
        return index_form(index.value, bound, atom)
    return None if index.type.lanes > 1 else atom(index)


_LINEAR = frozenset({"add", "sub", "mul"})
