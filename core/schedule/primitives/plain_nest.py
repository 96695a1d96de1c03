"""Stages as the plainest loops: where a schedule begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from graft.core.schedule.primitives.statements import LINE, multiply_add, scratch
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.statements import allocate, loops_over
from graft.core.tensor_ir.visit import substitute
from graft.core.types import INT64
from graft.errors import ScheduleError


def plain_nest(
    name: str, stages: Sequence[ir.Stage], inputs: Sequence[ir.Buffer], outputs: Sequence[ir.Buffer]
) -> ir.Function:
    """Return the stages one after another, each loop with a name of its own.

    A reduction is three nests: ``i.first`` sets the initial value, ``i`` and ``k`` reduce, ``i.last`` is the epilogue.
    Stages may write one buffer one after another, each in place; what begins with what is there has no first nest.
    Raises ScheduleError for a stage with an order of its own: a scan, a scatter, a selection.
    """
    for stage in stages:
        if stage.order is not None:
            what = type(stage.order).__name__.lower()
            raise ScheduleError(f"the stage of '{stage.buffer.name}' is a {what}, which has an order of its own")
    names = _Names()
    body: ir.Statement = ir.Block(tuple(nest for stage in stages for nest in _nests(stage, names)))
    kept = dict.fromkeys(stage.buffer for stage in stages if stage.buffer not in outputs)
    body = allocate([*reversed([*names.totals.values()]), *kept], body)
    origin = tuple(dict.fromkeys(one for stage in stages for one in stage.origin))
    return ir.Function(name, (*inputs, *outputs), len(outputs), body, origin)


def element(stage: ir.Stage) -> ir.Statement:
    """Return what computes one element of a stage, a reduction in a register."""
    reduction = stage.reduction
    if reduction is None:
        return ir.Store(stage.buffer, stage.axes, stage.value)

    def finish(total: ir.Expression) -> ir.Statement:
        known = {} if stage.epilogue_variable is None else {stage.epilogue_variable: total}
        return ir.Store(stage.buffer, stage.axes, substitute(stage.epilogue or total, known))

    def term(total: ir.Expression) -> ir.Expression:
        return ir.Binary(reduction.operator, total, stage.value)

    axes = [(axis.variable, axis.extent) for axis in reduction.axes]
    return reduced_element(reduction.initial, axes, term, finish)


def reduced_element(
    initial: ir.Expression,
    axes: Iterable[tuple[ir.Variable, ir.Expression]],
    term: Callable[[ir.Expression], ir.Expression],
    finish: Callable[[ir.Expression], ir.Statement],
    around: Callable[[ir.Statement], ir.Statement] = lambda store: store,
) -> ir.Statement:
    """Return what reduces one element in a register: ``term`` is what becomes of it, ``finish`` takes the result.

    ``around`` gives what stands in the loops beside the store of a term.
    """
    total = ir.Buffer("total", initial.type.dtype, (ir.Constant(1, INT64),), None, "register", LINE)
    home = (ir.Constant(0, INT64),)
    own = ir.Load(total, home)
    loop = loops_over(axes, around(ir.Store(total, home, term(own))))
    return ir.Allocate(total, ir.Block((ir.Store(total, home, initial), loop, finish(own))))


Stores: TypeAlias = Callable[[Sequence[ir.Expression], ir.Expression], Sequence[ir.Store]]
"""What becomes of a sum: the stores at a place of it."""


def plain_sum(
    name: str,
    sums: ir.Stage,
    finish: Stores,
    axes: Sequence[str],
    reduced: Sequence[str],
    parameters: tuple[Sequence[ir.Buffer], Sequence[ir.Buffer]],
    copies: bool = False,
) -> ir.Function:
    """Return a sum of products, and what is done with it, as loops that are named for what their axes are.

    ``axes`` and ``reduced`` are names of the stage's axes and of those that it sums over, ``parameters`` the inputs and
    the outputs. For an axis ``x`` three nests have a loop: ``x.zero`` sets the buffer ``total`` to the initial value,
    ``x.sum`` adds the products, fused ones if they are floats, and ``x`` stores what ``finish`` says: of ``total``, or
    if that ``copies`` of another buffer, ``sums``, which a fourth one, ``x.copy``, copies it to.
    """
    reduction = sums.reduction
    assert reduction is not None and isinstance(sums.value, ir.Binary) and sums.value.operator == "mul", name
    shape, dtype = sums.buffer.shape, sums.value.type.dtype
    total, copy = ir.Buffer("total", dtype, shape, None, "register", LINE), scratch("sums", dtype, *shape)
    terms = [axis.variable for axis in reduction.axes]
    before, inner, between, after = (
        [ir.Variable(axis + one) for axis in axes] for one in (".zero", ".sum", ".copy", "")
    )
    own = [ir.Variable(axis) for axis in reduced]
    renamed = dict(zip([*sums.axes, *terms], [*inner, *own], strict=True))
    left, right = (substitute(one, renamed) for one in (sums.value.left, sums.value.right))
    added = multiply_add(left, right, ir.Load(total, tuple(inner)))
    start = substitute(reduction.initial, dict(zip(sums.axes, before, strict=True)))
    extents = [substitute(axis.extent, renamed) for axis in reduction.axes]

    def nest(over: Sequence[ir.Variable], body: ir.Statement, inside: Sequence[ir.Expression] = ()) -> ir.Statement:
        return loops_over(zip(over, [*shape, *inside], strict=True), body)

    nests = [
        nest(before, ir.Store(total, tuple(before), start)),
        nest([*inner, *own], ir.Store(total, tuple(inner), added), extents),
    ]
    if copies:
        nests.append(nest(between, ir.Store(copy, tuple(between), ir.Load(total, tuple(between)))))
    result = ir.Load(copy if copies else total, tuple(after))
    nests.append(nest(after, ir.Block(tuple(finish(after, result)))))
    inputs, outputs = parameters
    body = allocate([total, *([copy] if copies else [])], ir.Block(tuple(nests)))
    return ir.Function(name, (*inputs, *outputs), len(outputs), body, sums.origin)


class _Names:
    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.totals: dict[ir.Buffer, ir.Buffer] = {}

    def variables(self, axes: Sequence[ir.Variable], suffix: str = "") -> list[ir.Variable]:
        """Return variables for axes, whose names nothing else has."""
        made = []
        for axis in axes:
            name, number = axis.name + suffix, 1
            while name in self.taken:
                number += 1
                name = f"{axis.name}{suffix}.{number}"
            self.taken.add(name)
            made.append(ir.Variable(name))
        return made


def _nests(stage: ir.Stage, names: _Names) -> list[ir.Statement]:
    def nest(
        suffix: str, target: ir.Buffer, value: ir.Expression, reduced: Sequence[tuple[ir.Variable, ir.Expression]] = ()
    ) -> ir.Statement:
        own = names.variables([*stage.axes, *(axis for axis, _ in reduced)], suffix)
        place = tuple(own[: len(stage.axes)])
        moved = substitute(value, dict(zip([*stage.axes, *(axis for axis, _ in reduced)], own, strict=True)))
        extents = [*stage.buffer.shape, *(extent for _, extent in reduced)]
        return loops_over(zip(own, extents, strict=True), ir.Store(target, place, moved))

    reduction = stage.reduction
    if reduction is None:
        return [nest("", stage.buffer, stage.value)]
    total = stage.buffer
    if stage.epilogue is not None:
        dtype = stage.value.type.dtype
        total = names.totals[stage.buffer] = ir.Buffer(
            f"{stage.buffer.name}.total", dtype, stage.buffer.shape, None, "scratch"
        )
    sums = ir.Binary(reduction.operator, ir.Load(total, stage.axes), stage.value)
    found = [nest("", total, sums, [(axis.variable, axis.extent) for axis in reduction.axes])]
    if reduction.initial != ir.Load(total, stage.axes):
        found.insert(0, nest(".first", total, reduction.initial))
    if stage.epilogue is not None and stage.epilogue_variable is not None:
        result = substitute(stage.epilogue, {stage.epilogue_variable: ir.Load(total, stage.axes)})
        found.append(nest(".last", stage.buffer, result))
    return found
