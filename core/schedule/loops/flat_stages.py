"""Flat stages: every access is one linear index, and loops that walk memory together are one loop.

Schedules work on this form, since what matters to a loop is by how many elements each access moves with each axis.
A buffer of any shape becomes a one-dimensional buffer of the same memory; parameters of the scheduled function are
such flat buffers, too.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from math import prod
from types import MappingProxyType

from graft.core.schedule.loops.inline import stage_expressions
from graft.core.schedule.primitives.statements import wide
from graft.core.tensor_ir.ir import (
    Axis,
    Binary,
    BinaryOperator,
    Buffer,
    Constant,
    Expression,
    Function,
    Load,
    Stage,
    Variable,
)
from graft.core.tensor_ir.rewriting.simplify import LARGEST, Simplifier
from graft.core.tensor_ir.visit import ExpressionMap, children, free_variables, loads, map_accesses, substitution
from graft.core.types import INT64

USUAL = 256
"""Iterations that are counted for an axis whose extent is known only when a kernel runs."""
FAR = 1 << 40
"""The stride of an access whose neighbours lie apart by what is known only when a kernel runs."""


@dataclass(frozen=True, slots=True)
class LoopAxis:
    """A loop to be made: its variable and its extent.

    ``count``, where it is given, is the number of iterations, which then is at most the extent and may differ from
    place to place; of an axis that ``is_open`` it is one number that is known only when a kernel runs, and the extent
    is what choices count for it.
    """

    variable: Variable
    extent: int
    count: Expression | None = None
    is_open: bool = False

    @classmethod
    def over(cls, variable: Variable, extent: Expression, usual: int = USUAL) -> LoopAxis:
        """Return the axis of an extent, which may be a number."""
        if isinstance(extent, Constant):
            return cls(variable, int(extent.value))
        return cls(variable, usual, extent, True)

    @property
    def iterations(self) -> Expression:
        """The number of iterations."""
        return Constant(self.extent, INT64) if self.count is None else self.count

    @property
    def is_known(self) -> bool:
        """Whether the number of iterations is."""
        return self.count is None

    @property
    def is_whole(self) -> bool:
        """Whether the number of iterations is the same everywhere."""
        return self.count is None or self.is_open

    @property
    def range(self) -> tuple[int, int]:
        """The smallest and the largest value of the variable."""
        return 0, (LARGEST if self.is_open else self.extent) - 1

    @property
    def least(self) -> int:
        """The iterations that there are in any case, where no extent is 0."""
        if not self.is_open:
            return self.extent
        factors, least = [self.iterations], 1
        while factors:
            match factors.pop():
                case Binary("mul", left, right):
                    factors += [left, right]
                case Constant(value):
                    least *= int(value)
        return least


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
    """The flat buffers of a kernel: one per buffer, of which the first ``rows`` dimensions are left out on request.

    Some may have their ``homes`` in others of the same shape.
    """

    def __init__(
        self,
        simplifier: Simplifier,
        rows: int = 0,
        per_row: Iterable[Buffer] = (),
        homes: Mapping[Buffer, Buffer] = MappingProxyType({}),
    ) -> None:
        self.simplifier = simplifier
        self.homes = homes
        self.rows = rows
        self.per_row = set(per_row)
        self._flat: dict[Buffer, tuple[Buffer, tuple[Expression, ...]]] = {}

    def flat(self, buffer: Buffer) -> Buffer:
        """Return the flat buffer of a buffer."""
        return self._entry(buffer)[0]

    def place(self, buffer: Buffer, indices: Sequence[Expression]) -> Expression:
        """Return the linear index of an element."""
        result: Expression = Constant(0, INT64)
        apart: list[Expression] = []  # vectors of elements that lie apart by what is known only when a kernel runs
        for index, step in zip(indices, self._entry(buffer)[1], strict=True):
            if index.type.lanes > 1 and not isinstance(step, Constant):
                apart.append(Binary("mul", index, wide(step, index.type.lanes)))
            else:
                result = Binary("add", result, self._moved(index, step))
        for vector in apart:
            result = Binary("add", wide(self.simplifier(result), vector.type.lanes), vector)
        return result

    def _moved(self, index: Expression, step: Expression) -> Expression:
        """Return an index times a stride: where that is no number, a sum of products, so that each axis has its own."""
        if isinstance(step, Constant):
            return Binary("mul", index, step)
        form = self.simplifier.form(self.simplifier(index))
        result = product([Constant(form.constant, INT64), step])
        for number, factor in form.terms.items():
            result = Binary("add", result, product([Constant(factor, INT64), self.simplifier.atom(number), step]))
        return result

    def _entry(self, buffer: Buffer) -> tuple[Buffer, tuple[Expression, ...]]:
        buffer = self.homes.get(buffer, buffer)
        if buffer not in self._flat:
            for symbol in free_variables(*buffer.shape, *(buffer.strides or ())):
                self.simplifier.with_range(symbol, (0, LARGEST))
            shape = tuple(map(self.simplifier, buffer.shape))
            dropped = self.rows if buffer in self.per_row else 0
            own, zero = shape[dropped:], Constant(0, INT64)
            strides = (*(zero for _ in range(dropped)), *(product(own[axis + 1 :]) for axis in range(len(own))))
            size = product(own)
            if buffer.strides is not None:
                strides, one = buffer.strides, Constant(1, INT64)
                last = [
                    product([Binary("sub", extent, one), step]) for extent, step in zip(shape, strides, strict=True)
                ]
                size = self.simplifier(_sum([one, *last]))
            tensor = None if isinstance(size, Constant) else buffer.outside
            flat = Buffer(buffer.name, buffer.dtype, (size,), None, buffer.memory, buffer.alignment, tensor)
            self._flat[buffer] = (flat, strides)
        return self._flat[buffer]

    def function(self, function: Function) -> Function:
        """Return a function in which all buffers that are flat here are flat everywhere."""

        def change(buffer: Buffer, indices: Sequence[Expression]) -> tuple[Buffer, tuple[Expression, ...]]:
            return self.flat(buffer), (self.simplifier(self.place(buffer, indices)),)

        parameters = tuple(self.flat(one) if one in self._flat else one for one in function.parameters)
        return replace(function, parameters=parameters, body=map_accesses(function.body, self._flat, change))

    def expression_map(self, then: Callable[[Expression], Expression]) -> ExpressionMap:
        """Return the map that makes every load flat; ``then`` is applied to the nodes so made."""

        def rule(node: Expression) -> Expression:
            if isinstance(node, Load):
                return Load(self.flat(node.buffer), (then(self.place(node.buffer, node.indices)),), node.mask)
            return node

        return ExpressionMap(rule)


def product(factors: Iterable[Expression]) -> Expression:
    """Return a product of extents and at most one index: always the same expression for the same factors."""
    number, others = 1, list[Expression]()
    todo = list(factors)
    while todo:
        one = todo.pop(0)
        if isinstance(one, Constant):
            number *= int(one.value)
        elif isinstance(one, Binary) and one.operator == "mul":
            todo[:0] = [one.left, one.right]
        else:
            others.append(one)
    others.sort(key=str)
    if number == 0 or not others:
        return Constant(number, INT64)
    result = reduce(partial(Binary, "mul"), others)
    return result if number == 1 else Binary("mul", result, Constant(number, INT64))


def flatten(stage: Stage, layout: Layout, rows: Sequence[LoopAxis] = ()) -> FlatStage:
    """Return the flat form of a stage; its first axes are replaced by those in ``rows``."""
    simplifier = layout.simplifier
    axes = [LoopAxis.over(one, extent) for one, extent in zip(stage.axes, stage.buffer.shape, strict=True)]
    reduction = stage.reduction
    shared = {axis.variable: row.variable for axis, row in zip(axes, rows, strict=False)}
    rename, flat = substitution(shared), layout.expression_map(lambda index: index)

    def convert(expression: Expression) -> Expression:
        return simplifier(flat(rename(expression)))

    for load in loads(*stage_expressions(stage)):  # which makes the extents known that there are
        layout.flat(load.buffer)
    layout.flat(stage.buffer)
    for axis in (*axes, *rows):
        simplifier.with_range(axis.variable, axis.range)
    own = {*stage.axes, *(row.variable for row in rows)}
    reduced = [] if reduction is None else [_reduced_axis(axis, convert, simplifier, own) for axis in reduction.axes]
    for axis in reduced:
        simplifier.with_range(axis.variable, axis.range)
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


def _reduced_axis(
    axis: Axis, convert: Callable[[Expression], Expression], simplifier: Simplifier, places: Container[Variable]
) -> LoopAxis:
    count = convert(axis.extent)
    if not any(one in places for one in free_variables(count)):
        return LoopAxis.over(axis.variable, count)
    bounds = simplifier.interval(count)
    assert bounds is not None, f"the extent of reduction axis '{axis.variable.name}' has no bound"
    return LoopAxis(axis.variable, bounds[1], count)


def constant_extent(extent: Expression) -> int:
    """Return an extent that must be constant."""
    assert isinstance(extent, Constant), "the extent of a reduction axis is symbolic"
    return int(extent.value)


def stride(index: Expression, variable: Variable, simplifier: Simplifier) -> int | None:
    """Return by how much an index moves with a variable: 0 if it does not, None if not alike everywhere.

    `FAR` stands for a stride that is known only when a kernel runs.
    """
    step = moves(index, variable, simplifier)
    return None if step is None else int(step.value) if isinstance(step, Constant) else FAR


def moves(index: Expression, variable: Variable, simplifier: Simplifier) -> Expression | None:
    """Return by how much an index moves with a variable, over extents; None if not alike everywhere."""
    form = simplifier.form(simplifier(index))
    found = list[Expression]()
    for number, coefficient in form.terms.items():
        atom = simplifier.atom(number)
        others = _others(atom, variable)
        if others is None:
            return None
        if others:
            found.append(product([Constant(coefficient, INT64), *others]))
    return _sum(found)


def _sum(terms: Sequence[Expression]) -> Expression:
    total: Expression = Constant(0, INT64)
    for number, term in enumerate(terms):
        total = Binary("add", total, term) if number else term
    return total


def _others(atom: Expression, variable: Variable) -> list[Expression] | None:
    """Return the factors beside a variable in a product: none if it is not in it, None if it is elsewhere, too."""
    if atom is variable:
        return [Constant(1, INT64)]
    if variable not in free_variables(atom):
        return []
    if not isinstance(atom, Binary) or atom.operator != "mul":
        return None
    left, right = _others(atom.left, variable), _others(atom.right, variable)
    if left is None or right is None or (left and right):
        return None
    return [*left, atom.right] if left else [*right, atom.left]


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
            visit_product(simplifier.atom(number))

    def visit_product(atom: Expression) -> None:
        """Look at what is no factor of its own in a product of extents and an axis."""
        if isinstance(atom, Binary) and atom.operator == "mul":
            visit_product(atom.left)
            visit_product(atom.right)
        elif not isinstance(atom, Variable):
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
    counts = (axis.iterations for stage in stages for axis in stage.reduced if not axis.is_whole)
    fixed |= free_variables(*counts)
    walked = [place for stage in stages for place in accesses(stage)]
    groups: list[list[LoopAxis]] = []
    for axis in kept:
        whole = groups and groups[-1][-1].is_whole and axis.is_whole
        if whole and not {axis.variable, groups[-1][-1].variable} & fixed:
            before = groups[-1][-1].variable
            if all(_walks_on(place, before, axis, simplifier) for place in walked):
                groups[-1].append(axis)
                continue
        groups.append([axis])
    zero = Constant(0, INT64)
    values: dict[Variable, Expression] = {axis.variable: zero for axis in axes if axis not in kept}
    result: list[LoopAxis] = []
    for group in groups:
        if len(group) == 1:
            result.append(group[0])
            continue
        name, usual = "_".join(axis.variable.name for axis in group), prod(axis.extent for axis in group)
        joint = LoopAxis.over(Variable(name), product(axis.iterations for axis in group), usual)
        simplifier.with_range(joint.variable, joint.range)
        # Every access moves with an axis as far as with all iterations of the next: the last one goes on instead.
        values |= {axis.variable: zero for axis in group[:-1]} | {group[-1].variable: joint.variable}
        result.append(joint)
    change = substitution(values)
    return tuple(result), tuple(stage.map(lambda part: simplifier(change(part))) for stage in stages)


def _walks_on(place: Expression, before: Variable, axis: LoopAxis, simplifier: Simplifier) -> bool:
    """Whether a step along the axis before another is as long as all steps along this one."""
    outer, inner = moves(place, before, simplifier), moves(place, axis.variable, simplifier)
    return outer is not None and inner is not None and outer == product([inner, axis.iterations])


def accesses(stage: FlatStage) -> list[Expression]:
    """Return the linear indices of all loads of a stage, and of its store."""
    return [load.indices[0] for load in loads(*stage.expressions)] + [stage.place]


def collapse_own(stage: FlatStage, simplifier: Simplifier) -> FlatStage:
    """Return the stage with its own axes and reduced axes collapsed."""
    axes, (stage,) = collapse(stage.axes, [stage], simplifier)
    reduced, (stage,) = collapse(stage.reduced, [stage], simplifier)
    return replace(stage, axes=axes, reduced=reduced)
