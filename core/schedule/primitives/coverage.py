"""Whether the parts that iterations of loops compute of a buffer make up all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graft.core.affine.linear import Linear
from graft.core.schedule.primitives.dependence import divisions
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import free_variables


def covers(
    path: Sequence[ir.Statement],
    begin: Sequence[ir.Expression],
    size: Sequence[int],
    shape: Sequence[ir.Expression],
    simplifier: Simplifier,
) -> bool:
    """Whether boxes of one ``size``, of which each iteration has one, hold every element of a buffer of a ``shape``.

    ``begin`` says where the box of an iteration begins; ``path`` are the loops, conditions and ``let`` that lead to it.
    """
    counts = _counts(path, simplifier)
    forms = [simplifier.form(simplifier(one)) for one in begin]
    ends = [simplifier.form(simplifier(one)) for one in shape]
    used = [simplifier.atom(number) for form in forms for number in form.terms]
    idle = [count for variable, count in counts.items() if variable not in used]
    if len(set(used)) < len(used) or any(not isinstance(one, ir.Constant) or one.value < 1 for one in idle):
        return False
    for one in path:
        if isinstance(one, ir.If) and not _cuts_outside(one, forms, ends, simplifier):
            return False
    return all(
        _reaches(form, extent, end, counts, simplifier) for form, extent, end in zip(forms, size, ends, strict=True)
    )


def _counts(path: Sequence[ir.Statement], simplifier: Simplifier) -> dict[ir.Variable, ir.Expression]:
    """Return how many values variables take, each with all those of the others: of loops, or of parts of fused ones."""
    extents = {one.variable: simplifier(one.extent) for one in path if isinstance(one, ir.For)}
    counts = {one: extent for one, extent in extents.items() if free_variables(extent).isdisjoint(extents)}
    parts = sorted(divisions(path), key=lambda part: part[2])
    for whole in [variable for variable in counts if any(part[1] is variable for part in parts)]:
        extent, below = counts.pop(whole), 1
        for variable, other, divisor, width in parts:
            if other is whole and divisor == below:
                counts[variable] = ir.Constant(width, extent.type) if width else _quotient(extent, divisor, simplifier)
                below *= width
    return counts


def _quotient(extent: ir.Expression, divisor: int, simplifier: Simplifier) -> ir.Expression:
    form = simplifier.form(extent)
    if form.constant % divisor or any(factor % divisor for factor in form.terms.values()):
        return simplifier(ir.Binary("div", extent, ir.Constant(divisor, extent.type)))
    terms = {number: factor // divisor for number, factor in form.terms.items()}
    return simplifier.build(Linear(form.constant // divisor, terms))


def _cuts_outside(
    one: ir.If, forms: Sequence[Linear[int]], ends: Sequence[Linear[int]], simplifier: Simplifier
) -> bool:
    """Whether a condition keeps out nothing but boxes that begin behind the end of a dimension."""
    if one.else_body is not None or not isinstance(one.condition, ir.Binary) or one.condition.operator != "lt":
        return False
    left, right = simplifier.form(simplifier(one.condition.left)), simplifier.form(simplifier(one.condition.right))
    return any(
        _is_positive(form.plus(end, -1).plus(left, -1).plus(right), simplifier)
        for form, end in zip(forms, ends, strict=True)
    )


def _reaches(
    form: Linear[int],
    size: int,
    end: Linear[int],
    counts: Mapping[ir.Variable, ir.Expression],
    simplifier: Simplifier,
) -> bool:
    """Whether boxes that begin where a form says leave no gap from 0 to an end."""
    reach = Linear[int](size)
    for number, factor in sorted(form.terms.items(), key=lambda term: term[1]):
        atom = simplifier.atom(number)
        count = counts.get(atom) if isinstance(atom, ir.Variable) else None
        if count is None or reach.terms or not 0 < factor <= reach.constant:
            return False
        reach = reach.plus(Linear(-factor)).plus(_at_least(count, factor, simplifier))
    return form.constant <= 0 and _is_positive(reach.plus(Linear(form.constant)).plus(end, -1), simplifier)


def _at_least(count: ir.Expression, factor: int, simplifier: Simplifier) -> Linear[int]:
    """Return a lower bound of a count of iterations times a factor."""
    match count:
        case ir.Binary("div", whole, ir.Constant(divisor)) if factor % int(divisor) == 0:
            return simplifier.form(whole).plus(Linear(1 - int(divisor))).times(factor // int(divisor))
    return simplifier.form(count).times(factor)


def _is_positive(form: Linear[int], simplifier: Simplifier) -> bool:
    """Whether a form is 0 or more."""
    bounds = simplifier.interval(simplifier.build(form))
    return bounds is not None and bounds[0] >= 0
