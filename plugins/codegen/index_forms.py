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
    match index:
        case Ramp(base, stride, _):
            form = index_form(base, bound, atom)
            assert form is not None, "the base of a ramp is a scalar"
            return form.plus(Linear(lane=stride))
        case Broadcast(inner, _):
            return index_form(inner, bound, atom)
        case Constant(number, _):
            return Linear(int(number))
        case Variable() if index.type.lanes > 1:
            return bound(index)
        case Binary("add" | "sub" as operator, left, right):
            first, second = index_form(left, bound, atom), index_form(right, bound, atom)
            return None if first is None or second is None else first.plus(second, 1 if operator == "add" else -1)
        case Binary("mul", left, right):
            first, second = index_form(left, bound, atom), index_form(right, bound, atom)
            if first is not None and second is not None:
                for factor, form in ((first, second), (second, first)):
                    if factor.is_constant:
                        return form.times(factor.constant)
    return None if index.type.lanes > 1 else atom(index)
