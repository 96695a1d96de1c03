"""Sums of products taken apart: which axes are rows, columns and outer loops, and what the two factors are."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graft.core.operators import build as b
from graft.core.schedule.epilogue import Epilogue
from graft.core.schedule.inline import constant_shape
from graft.core.schedule.tiling import Reduced
from graft.core.tensor_ir.ir import Binary, Constant, Expression, Variable
from graft.core.tensor_ir.visit import free_variables


@dataclass(frozen=True, slots=True)
class Contraction:
    """A sum of products taken apart; ``rows`` is None where no axis belongs to the left factor alone."""

    epilogue: Epilogue
    left: Expression
    right: Expression
    rows: int | None
    columns: int
    outer: tuple[int, ...]
    shape: tuple[int, ...]
    depth: tuple[Reduced, ...]

    @property
    def axes(self) -> tuple[Variable, ...]:
        """One variable per axis of the output."""
        return self.epilogue.anchor.axes

    @property
    def height(self) -> int:
        """The number of rows."""
        return 1 if self.rows is None else self.shape[self.rows]

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.shape[self.columns]

    @property
    def terms(self) -> int:
        """The number of products in each sum."""
        return math.prod(loop.extent for loop in self.depth)

    @property
    def column(self) -> Variable:
        """The variable of the columns."""
        return self.axes[self.columns]

    def term(self) -> Expression:
        """Return the number of the current product within its sum."""
        number: Expression = b.index(0)
        for loop in self.depth:
            number = b.add(b.multiply(number, loop.extent), loop.variable)
        return number

    @property
    def batch(self) -> int:
        """The number of products of matrices."""
        return math.prod(self.shape[axis] for axis in self.outer)


def analyse(epilogue: Epilogue) -> Contraction | None:
    """Take the anchor of a kernel apart, or return None if it is not a product of two factors.

    The columns are the innermost output axis; one factor must depend on them (the right one) and the other not.
    """
    stage = epilogue.anchor
    assert stage.reduction is not None
    shape = constant_shape(stage.buffer)
    extents = tuple(axis.extent for axis in stage.reduction.axes)
    if shape is None or not all(isinstance(extent, Constant) for extent in extents) or 0 in shape:
        return None
    if not isinstance(stage.value, Binary) or stage.value.operator != "mul" or not shape:
        return None
    depth = tuple(
        Reduced(axis.variable, int(axis.extent.value))
        for axis in stage.reduction.axes
        if isinstance(axis.extent, Constant)
    )
    left, right = stage.value.left, stage.value.right
    columns = max((axis for axis, extent in enumerate(shape) if extent > 1), default=len(shape) - 1)
    if stage.axes[columns] in free_variables(left):
        left, right = right, left
    in_left, in_right = free_variables(left), free_variables(right)
    if stage.axes[columns] in in_left or (shape[columns] > 1 and stage.axes[columns] not in in_right):
        return None
    own = [axis for axis, v in enumerate(stage.axes) if v in in_left and v not in in_right and shape[axis] > 1]
    rows = own[-1] if own else None
    outer = tuple(axis for axis in range(len(shape)) if axis not in (rows, columns))
    return Contraction(epilogue, left, right, rows, columns, outer, shape, depth)
