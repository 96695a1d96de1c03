"""Stages as the plainest loops: where a schedule begins."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.plain_selection import selection_nest
from graft.core.schedule.primitives.statements import LINE, multiply_add, scratch
from graft.core.schedule.primitives.vectorize import instantiate
from graft.core.tensor_ir import ir
from graft.core.tensor_ir import ordered_stages as ordered
from graft.core.tensor_ir.statements import allocate, bind, loops_over
from graft.core.tensor_ir.visit import ExpressionMap, loads, map_statement, substitute, substitution, walk_statements
from graft.core.types import INT64


def plain_nest(
    name: str,
    stages: Sequence[ir.Stage],
    inputs: Sequence[ir.Buffer],
    outputs: Sequence[ir.Buffer],
    behind: Sequence[ir.Statement] = (),
) -> ir.Function:
    """Return the stages one after another, each loop with a name of its own, and what stands ``behind`` them.

    A reduction is three nests: ``i.first`` sets the initial value, ``i`` and ``k`` reduce, ``i.last`` is the epilogue.
    Stages may write one buffer one after another, each in place; what begins with what is there has no first nest.
    What a scan, a scatter and a selection are: `scan_nest`, `updates`, `selection_nest`.
    """
    names = _Names()
    nests = (nest for one in ordered.stage_loops(stages) for nest in _nests(one, names))
    body: ir.Statement = ir.Block((*nests, *behind))
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


# ---- Stages with an order ----


def scan_nest(group: Sequence[ir.Stage], stored: Collection[ir.Buffer]) -> ir.Statement:
    """Return the loops of a scan: lines one after the other, or where these need each other, position after position.

    The loops have the names of the axes; of lines, the last values are in registers, and what is ``stored`` in memory.
    """
    return _line_after_line(group, stored) if runs_in_lines(group) else _by_position(group)


def runs_in_lines(group: Sequence[ir.Stage]) -> bool:
    """Whether each line along the carried axis can be computed by itself, its last elements in registers."""
    shape, dimension = group[0].buffer.shape, ordered.carried_dimension(group[0])
    own = {stage.buffer for stage in group}
    return all(
        stage.reduction is None
        and stage.buffer.shape == shape
        and ordered.carried_dimension(stage) == dimension
        and all(
            index is axis
            for load in loads(*ordered.stage_expressions(stage))
            if load.buffer in own
            for place, (index, axis) in enumerate(zip(load.indices, stage.axes, strict=True))
            if place != dimension
        )
        for stage in group
    )


def _line_after_line(group: Sequence[ir.Stage], stored: Collection[ir.Buffer]) -> ir.Statement:
    scan, dimension, shape = ordered.scan_of(group[0]), ordered.carried_dimension(group[0]), group[0].buffer.shape
    found = [ordered.reads_before(group, load) for one in group for load in loads(*ordered.stage_expressions(one))]
    carried = [stage for stage in group if stage in found]
    home = (b.index(0),)
    totals = {
        one.buffer: ir.Buffer(f"last_{one.buffer.name}", one.buffer.dtype, (b.index(1),), None, "register")
        for one in carried
    }
    axes = [ir.Variable(axis.name) for axis in group[0].axes]
    rows = [(axis, extent) for place, (axis, extent) in enumerate(zip(axes, shape, strict=True)) if place != dimension]
    time, at = axes[dimension], list[ir.Expression](axes)
    if scan.reverse:
        at[dimension] = b.subtract(b.subtract(shape[dimension], 1), time)
    before = {stage.buffer: ir.Variable("before", stage.value.type) for stage in carried}
    now = {stage.buffer: ir.Variable("now", stage.value.type) for stage in group}

    def rule(node: ir.Expression) -> ir.Expression:
        if not isinstance(node, ir.Load) or node.buffer not in now:
            return node
        return now[node.buffer] if ordered.reads_before(group, node) is None else before[node.buffer]

    def value(stage: ir.Stage) -> ir.Expression:
        return substitute(ExpressionMap(rule)(stage.value), dict(zip(stage.axes, at, strict=True)))

    stores = [ir.Store(one.buffer, tuple(at), now[one.buffer]) for one in group if one.buffer in stored]
    stores += [ir.Store(total, home, now[buffer]) for buffer, total in totals.items()]
    bound = [(before[buffer], ir.Load(total, home)) for buffer, total in totals.items()]
    body = bind([*bound, *((now[stage.buffer], value(stage)) for stage in group)], ir.Block(tuple(stores)))
    starts = [
        ir.Store(totals[stage.buffer], home, ordered.at_first(stage, ir.Load(stage.buffer, tuple(axes))))
        for stage in carried
    ]
    line = ir.Block((*starts, loops_over([(time, shape[dimension])], body)))
    return loops_over(rows, allocate([*totals.values()], line))


def _by_position(group: Sequence[ir.Stage]) -> ir.Statement:
    scan, extent = ordered.scan_of(group[0]), b.counts(group[0].buffer)[ordered.carried_dimension(group[0])]

    def at(stages: Sequence[ir.Stage], step: ir.Expression) -> ir.Statement:
        place = b.subtract(b.subtract(b.extent(extent), 1), step) if scan.reverse else step
        return ir.Block(tuple(stage_nest(stage, {scan.carried: place}) for stage in stages))

    if extent == 0:
        return ir.Block(())
    first, step = at(ordered.with_carried(group, ordered.at_first), b.index(0)), ir.Variable(scan.carried.name)
    rest = loops_over([(step, b.subtract(b.extent(extent), 1))], at(group, b.add(step, 1)))
    whole = ir.Block((first, rest))
    return whole if isinstance(extent, int) else ir.If(b.greater(extent, 0), whole)


def updates(stage: ir.Stage, scatter: ir.Scatter) -> ir.Statement:
    """Return the loops over the updates of a scatter, behind those that fill its buffer."""
    value = scatter.update
    if scatter.operator != "set":
        value = b.binary(scatter.operator, ir.Load(stage.buffer, scatter.indices), value)
    axes = [(axis.variable, axis.extent) for axis in scatter.axes]
    return loops_over(axes, ir.Store(stage.buffer, scatter.indices, value))


def stage_nest(stage: ir.Stage, fixed: Mapping[ir.Variable, ir.Expression] | None = None) -> ir.Statement:
    """Return the loops of one stage, without its order. Axes in ``fixed`` have one position only."""
    axes = {axis: ir.Variable(axis.name) for axis in stage.axes if axis not in (fixed or {})}
    pairs = zip(stage.axes, stage.buffer.shape, strict=True)
    body = map_statement(element(stage), substitution({**axes, **(fixed or {})}))
    return loops_over([(axes[axis], extent) for axis, extent in pairs if axis in axes], body)


# ---- Sums of products ----

Stores: TypeAlias = Callable[[Sequence[ir.Expression], ir.Expression], Sequence[ir.Store]]
"""What becomes of a sum: the stores at a place of it."""
Product: TypeAlias = Callable[[ir.Expression, ir.Expression, ir.Expression], ir.Expression]


def plain_sum(
    name: str,
    sums: ir.Stage,
    finish: Stores,
    axes: Sequence[str],
    reduced: Sequence[str],
    parameters: tuple[Sequence[ir.Buffer], Sequence[ir.Buffer]],
    copies: bool = False,
    multiply: Product = multiply_add,
    suffix: str = "",
) -> ir.Function:
    """Return a sum of products, and what is done with it, as loops that are named for what their axes are.

    ``axes`` and ``reduced`` are names of the stage's axes and of those that it sums over, ``parameters`` the inputs and
    the outputs. For an axis ``x`` three nests have a loop: ``x.zero`` sets the buffer ``total`` to the initial value,
    ``x.sum`` adds the products, fused ones if they are floats, and ``x`` stores what ``finish`` says: of ``total``, or
    if that ``copies`` of another buffer, ``sums``, which a fourth one, ``x.copy``, copies it to. ``multiply`` adds a
    product to a sum. Names of axes, and of the two buffers, end with ``suffix``.
    """
    reduction = sums.reduction
    assert reduction is not None and isinstance(sums.value, ir.Binary) and sums.value.operator == "mul", name
    shape, dtype = sums.buffer.shape, reduction.initial.type.dtype
    total = ir.Buffer(f"total{suffix}", dtype, shape, None, "register", LINE)
    copy = scratch(f"sums{suffix}", dtype, *shape)
    terms = [axis.variable for axis in reduction.axes]
    before, inner, between, after = (
        [ir.Variable(axis + suffix + one) for axis in axes] for one in (".zero", ".sum", ".copy", "")
    )
    own = [ir.Variable(axis + suffix) for axis in reduced]
    renamed = dict(zip([*sums.axes, *terms], [*inner, *own], strict=True))
    left, right = (substitute(one, renamed) for one in (sums.value.left, sums.value.right))
    added = multiply(left, right, ir.Load(total, tuple(inner)))
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

    def own(self, body: ir.Statement) -> ir.Statement:
        """Return a copy of loops with variables whose names nothing else has."""
        copy = instantiate(body, {})
        old = [one.variable for one in walk_statements(copy) if isinstance(one, ir.For)]
        new = dict(zip(old, self.variables(old), strict=True))

        def rule(one: ir.Statement) -> ir.Statement:
            return replace(one, variable=new[one.variable]) if isinstance(one, ir.For) else one

        return map_statement(copy, substitution(new), rule)


def _nests(group: Sequence[ir.Stage], names: _Names) -> list[ir.Statement]:
    stage, *_ = group
    match stage.order:
        case ir.Scan():
            return [names.own(scan_nest(group, [one.buffer for one in group]))]
        case ir.Scatter():
            return [names.own(stage_nest(stage)), names.own(updates(stage, stage.order))]
        case ir.Selection():
            return [names.own(selection_nest(stage, stage.order))]

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
