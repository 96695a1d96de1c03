"""A sum of products as matrices: which axes are rows, columns, batches and terms, and how an element of each is found.

Rows are the axes of one factor alone, columns those of the other, which has the innermost axis of the result. Several
axes are one in row-major order: the pixels of a convolution are columns, its channels and positions of the window terms
(implicit GEMM), and nothing is copied into patches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from graft.core.operators.definition import build as b
from graft.core.operators.definition.build import Count
from graft.core.schedule.loops.flat_stages import stride
from graft.core.schedule.products.epilogue import Epilogue, epilogue_of
from graft.core.schedule.strategies.strategy import Anchor
from graft.core.tensor_ir.ir import Cast, Expression, Load, Stage, Variable
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.verifying.anchor_rules import factors_of
from graft.core.tensor_ir.visit import free_variables, loads, substitute
from graft.core.types import Type
from graft.plugins.cuda.strategies.frames import places


@dataclass(frozen=True)
class Axes:
    """Some axes as one."""

    variables: tuple[Variable, ...]
    extents: tuple[Count, ...]

    @cached_property
    def count(self) -> Count:
        """The product of the extents."""
        return b.product_of(self.extents)

    def at(self, number: Expression) -> dict[Variable, Expression]:
        """Return the index of each axis at a number of all of them."""
        return dict(zip(self.variables, places(number, self.extents), strict=True))

    def known(self, usual: int) -> int:
        """Return the count, or what is usual where it varies."""
        return self.count if isinstance(self.count, int) else usual


@dataclass(frozen=True)
class Factor:
    """One factor of the products: its expression, and its own axes beside the terms."""

    value: Expression
    own: Axes
    terms: Axes

    @cached_property
    def exact(self) -> Expression:
        """The factor before it is made wider, if that is all that is done to it."""
        value = self.value
        return value.value if isinstance(value, Cast) and _is_narrow(value.value.type) else value

    @cached_property
    def plain(self) -> Load | None:
        """The load that the factor is, if it is one without a mask."""
        value = self.exact
        return value if isinstance(value, Load) and value.mask is None else None

    def step(self, axes: Axes) -> int | None:
        """Return by how many elements the next place along some axes lies behind, None where that differs."""
        read = next((load for load in loads(self.value)), None)
        if read is None or not axes.variables or not read.indices:
            return None
        simplifier, inner = Simplifier(), axes.variables[-1]
        steps = [stride(index, inner, simplifier) for index in read.indices]
        return None if any(steps[:-1]) or None in steps else steps[-1]

    @property
    def goes_by_terms(self) -> bool:
        """Whether neighbours in memory are neighbouring terms."""
        return self.step(self.terms) == 1 or self.step(self.own) != 1

    def groups(self, lanes: int) -> bool:
        """Whether ``lanes`` neighbours lie in one piece, wherever a group of them begins."""
        load = self.plain
        axes = self.terms if self.goes_by_terms else self.own
        if load is None or self.step(axes) != 1 or load.buffer.strides is not None:
            return False
        last, extent = load.buffer.shape[-1], axes.extents[-1]
        whole = b.counted(last)
        return isinstance(extent, int) and extent % lanes == 0 and isinstance(whole, int) and whole % lanes == 0

    def value_at(self, places_: dict[Variable, Expression], *, exact: bool) -> Expression:
        """Return the factor at some place."""
        return substitute(self.exact if exact else self.value, places_)


def _is_narrow(kind: Type) -> bool:
    return kind.dtype in ("float16", "bfloat16", "int8", "uint8")


@dataclass(frozen=True)
class Product:
    """A sum of products taken apart."""

    epilogue: Epilogue
    stage: Stage
    rows: Factor
    columns: Factor
    batch: Axes

    @property
    def terms(self) -> Axes:
        """The axes that are summed over."""
        return self.rows.terms

    @property
    def total(self) -> Type:
        """The type of the sums."""
        return self.epilogue.initial.type

    def point(self, at: dict[Variable, Expression]) -> tuple[Expression, ...]:
        """Return the indices of an element of the result."""
        return tuple(at[axis] for axis in self.stage.axes)

    @property
    def stores_neighbours(self) -> bool:
        """Whether neighbouring columns are neighbours in the result."""
        return self.columns.own.variables[-1:] == self.stage.axes[-1:]


def product_of(anchor: Anchor) -> Product | None:
    """Return the sum of products that a kernel is around; None for any other."""
    stages = anchor.stages
    epilogue = stages and epilogue_of(stages, anchor.kernel.outputs)
    if not epilogue or epilogue.branches or epilogue.picks:
        return None
    stage = epilogue.anchor
    factors, reduction = factors_of(stage), stage.reduction
    if factors is None or factors[2] or reduction is None or not stage.axes or stage.value.type.is_custom:
        return None
    left, right, _ = factors
    in_left, in_right = free_variables(left), free_variables(right)
    extents = dict(zip(stage.axes, b.counts(stage.buffer), strict=True))
    inner = next((axis for axis in reversed(stage.axes) if extents[axis] != 1), stage.axes[-1])
    if inner in in_left and inner not in in_right:
        left, right, in_left, in_right = right, left, in_right, in_left
    mine = [axis for axis in stage.axes if axis in in_left and axis not in in_right]
    theirs = [axis for axis in stage.axes if axis in in_right and axis not in in_left]
    others = [axis for axis in stage.axes if axis not in mine and axis not in theirs]
    terms = Axes(
        tuple(axis.variable for axis in reduction.axes), tuple(b.counted(axis.extent) for axis in reduction.axes)
    )

    def axes(variables: Sequence[Variable]) -> Axes:
        return Axes(tuple(variables), tuple(extents[axis] for axis in variables))

    return Product(epilogue, stage, Factor(left, axes(mine), terms), Factor(right, axes(theirs), terms), axes(others))
