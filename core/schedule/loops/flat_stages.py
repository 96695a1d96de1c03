"""Flat stages: every access is one linear index, and loops that walk memory together are one loop.

Schedules work on this form, since what matters to a loop is by how many elements each access moves with each axis.
A buffer of any shape becomes a one-dimensional buffer of the same memory; parameters of the scheduled function are
such flat buffers, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from graft.core.schedule.loops.inline import constant_shape
from graft.core.schedule.primitives.step import delinearize
from graft.core.tensor_ir.ir import Axis, Binary, BinaryOperator, Buffer, Constant, Expression, Load, Stage, Variable
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import ExpressionMap, children, free_variables, loads, substitution
from graft.core.types import INT64


@dataclass(frozen=True, slots=True)
class LoopAxis:
    """A loop to be made: its variable and its constant extent.

    ``count``, where it is given, is the number of iterations, which then is at most the extent.
    """

    variable: Variable
    extent: int
    count: Expression | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A value that a reduction computes anyway, stored beside it; in the reduced value it is ``variable``."""

    variable: Variable
    target: Buffer
    place: Expression
    value: Expression


@dataclass(frozen=True, slots=True)
class FlatStage:
    """A stage whose buffers are one-dimensional: ``target[place] = value`` for all ``axes``, reduced over ``reduced``.

    ``operator`` is "" where nothing is reduced. ``rows`` are the axes that several stages share.
    """

    target: Buffer
    place: Expression
    axes: tuple[LoopAxis, ...]
    value: Expression
    reduced: tuple[LoopAxis, ...] = ()
    operator: BinaryOperator | None = None
    initial: Expression | None = None
    epilogue_variable: Variable | None = None
    epilogue: Expression | None = None
    stored: Stored | None = None

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """Everything that is evaluated: value, initial value, epilogue, what is stored beside."""
        stored = None if self.stored is None else self.stored.value
        return tuple(part for part in (self.value, self.initial, self.epilogue, stored) if part is not None)

    def map(self, function: Callable[[Expression], Expression]) -> FlatStage:
        """Return the stage with a function applied to its place and expressions."""
        initial = None if self.initial is None else function(self.initial)
        epilogue = None if self.epilogue is None else function(self.epilogue)
        place, value = function(self.place), function(self.value)
        reduced = tuple(
            axis if axis.count is None else replace(axis, count=function(axis.count)) for axis in self.reduced
        )
        stored = self.stored
        if stored is not None:
            stored = replace(stored, place=function(stored.place), value=function(stored.value))
        return replace(
            self, place=place, value=value, initial=initial, epilogue=epilogue, reduced=reduced, stored=stored
        )


class Layout:
    """The flat buffers of a kernel: one per buffer, of which the first ``rows`` dimensions are left out on request."""

    def __init__(self, rows: int = 0, per_row: Iterable[Buffer] = ()) -> None:
        self.rows = rows
        self.per_row = set(per_row)
        self._flat: dict[Buffer, tuple[Buffer, tuple[int, ...]]] = {}

    def flat(self, buffer: Buffer) -> Buffer:
        """Return the flat buffer of a buffer."""
        return self._entry(buffer)[0]

    def place(self, buffer: Buffer, indices: Sequence[Expression]) -> Expression:
        """Return the linear index of an element."""
        result: Expression = Constant(0, INT64)
        for index, stride in zip(indices, self._entry(buffer)[1], strict=True):
            result = Binary("add", result, Binary("mul", index, Constant(stride, INT64)))
        return result

    def _entry(self, buffer: Buffer) -> tuple[Buffer, tuple[int, ...]]:
        if buffer not in self._flat:
            shape = constant_shape(buffer)
            assert shape is not None, f"buffer '{buffer.name}' has a symbolic shape"
            dropped = self.rows if buffer in self.per_row else 0
            strides = [0] * dropped + [prod(shape[axis + 1 :]) for axis in range(dropped, len(shape))]
            size = prod(shape[dropped:])
            if buffer.strides is not None:
                strides = [int(stride.value) for stride in buffer.strides if isinstance(stride, Constant)]
                size = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
            flat = Buffer(buffer.name, buffer.dtype, (Constant(size, INT64),), None, buffer.memory, buffer.alignment)
            self._flat[buffer] = (flat, tuple(strides))
        return self._flat[buffer]

    def expression_map(self, then: Callable[[Expression], Expression]) -> ExpressionMap:
        """Return the map that makes every load flat; ``then`` is applied to the nodes so made."""

        def rule(node: Expression) -> Expression:
            if isinstance(node, Load):
                return Load(self.flat(node.buffer), (then(self.place(node.buffer, node.indices)),), node.mask)
            return node

        return ExpressionMap(rule)


def flatten(stage: Stage, layout: Layout, simplifier: Simplifier, rows: Sequence[LoopAxis] = ()) -> FlatStage:
    """Return the flat form of a stage; its first axes are replaced by those in ``rows``."""
    shape = constant_shape(stage.buffer)
    assert shape is not None, f"stage of '{stage.buffer.name}' has a symbolic shape"
    axes = [LoopAxis(variable, extent) for variable, extent in zip(stage.axes, shape, strict=True)]
    reduction = stage.reduction
    shared = {axis.variable: row.variable for axis, row in zip(axes, rows, strict=False)}
    rename, flat = substitution(shared), layout.expression_map(lambda index: index)

    def convert(expression: Expression) -> Expression:
        return simplifier(flat(rename(expression)))

    for axis in (*axes, *rows):
        simplifier.with_range(axis.variable, (0, axis.extent - 1))
    reduced = [] if reduction is None else [_reduced_axis(axis, convert, simplifier) for axis in reduction.axes]
    for axis in reduced:
        simplifier.with_range(axis.variable, (0, axis.extent - 1))
    return FlatStage(
        target=layout.flat(stage.buffer),
        place=simplifier(rename(layout.place(stage.buffer, stage.axes))),
        axes=tuple(axes[len(rows) :]),
        value=convert(stage.value),
        reduced=tuple(reduced),
        operator=None if reduction is None else reduction.operator,
        initial=None if reduction is None else convert(reduction.initial),
        epilogue_variable=stage.epilogue_variable,
        epilogue=None if stage.epilogue is None else convert(stage.epilogue),
    )


def _reduced_axis(axis: Axis, convert: Callable[[Expression], Expression], simplifier: Simplifier) -> LoopAxis:
    if isinstance(axis.extent, Constant):
        return LoopAxis(axis.variable, int(axis.extent.value))
    count = convert(axis.extent)
    bounds = simplifier.interval(count)
    assert bounds is not None, f"the extent of reduction axis '{axis.variable.name}' has no bound"
    return LoopAxis(axis.variable, bounds[1], count)


def constant_extent(extent: Expression) -> int:
    """Return an extent that must be constant."""
    assert isinstance(extent, Constant), "the extent of a reduction axis is symbolic"
    return int(extent.value)


def stride(index: Expression, variable: Variable, simplifier: Simplifier) -> int | None:
    """Return by how much an index moves with a variable: 0 if it does not, None if not by a constant."""
    form = simplifier.form(simplifier(index))
    result = 0
    for number, coefficient in form.terms.items():
        atom = simplifier.atom(number)
        if atom is variable:
            result = coefficient
        elif variable in free_variables(atom):
            return None
    return result


def irregular(stage: FlatStage, simplifier: Simplifier) -> set[Variable]:
    """Return the variables that a stage uses other than as constant strides of unmasked or masked accesses."""
    found: set[Variable] = set()
    done: set[int] = set()

    def visit(node: Expression) -> None:
        if id(node) in done:
            return
        done.add(id(node))
        if isinstance(node, Variable):
            found.add(node)
        elif isinstance(node, Load):
            visit_index(node.indices[0])
            if node.mask is not None:
                visit(node.mask)
        else:
            for operand in children(node):
                visit(operand)

    def visit_index(index: Expression) -> None:
        for number in simplifier.form(simplifier(index)).terms:
            atom = simplifier.atom(number)
            if not isinstance(atom, Variable):
                visit(atom)

    for expression in stage.expressions:
        visit(expression)
    visit_index(stage.place)
    return found


def collapse(
    axes: Sequence[LoopAxis], stages: Sequence[FlatStage], simplifier: Simplifier
) -> tuple[tuple[LoopAxis, ...], tuple[FlatStage, ...]]:
    """Join neighbouring axes that every access of the stages walks as one; axes of one iteration vanish.

    Returns the new axes and the stages rewritten to them (their own ``axes`` and ``reduced`` are left alone).
    """
    kept = [axis for axis in axes if axis.extent != 1 or axis.count is not None]
    fixed: set[Variable] = set().union(*(irregular(stage, simplifier) for stage in stages))
    walked = [place for stage in stages for place in accesses(stage)]
    groups: list[list[LoopAxis]] = []
    for axis in kept:
        whole = groups and groups[-1][-1].count is None and axis.count is None
        if whole and not {axis.variable, groups[-1][-1].variable} & fixed:
            before = groups[-1][-1].variable
            moves = [(stride(p, before, simplifier), stride(p, axis.variable, simplifier)) for p in walked]
            if all(inner is not None and outer == inner * axis.extent for outer, inner in moves):
                groups[-1].append(axis)
                continue
        groups.append([axis])
    values: dict[Variable, Expression] = {axis.variable: Constant(0, INT64) for axis in axes if axis not in kept}
    result: list[LoopAxis] = []
    for group in groups:
        if len(group) == 1:
            result.append(group[0])
            continue
        joint = LoopAxis(Variable("_".join(axis.variable.name for axis in group)), prod(axis.extent for axis in group))
        simplifier.with_range(joint.variable, (0, joint.extent - 1))
        places = delinearize(joint.variable, [axis.extent for axis in group[1:]])
        values |= {axis.variable: place for axis, place in zip(group, places, strict=True)}
        result.append(joint)
    change = substitution(values)
    return tuple(result), tuple(stage.map(lambda part: simplifier(change(part))) for stage in stages)


def accesses(stage: FlatStage) -> list[Expression]:
    """Return the linear indices of all loads of a stage, and of its store."""
    return [load.indices[0] for load in loads(*stage.expressions)] + [stage.place]


def collapse_own(stage: FlatStage, simplifier: Simplifier) -> FlatStage:
    """Return the stage with its own axes and reduced axes collapsed."""
    axes, (stage,) = collapse(stage.axes, [stage], simplifier)
    reduced, (stage,) = collapse(stage.reduced, [stage], simplifier)
    return replace(stage, axes=axes, reduced=reduced)
