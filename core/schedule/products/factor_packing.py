"""Constant factors of a contraction laid out at compile time in the order in which register tiles read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.products.product_axes import Contraction
from graft.core.schedule.products.tiling import RegisterTile, Split
from graft.core.tensor_ir.anchors import VARIES
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.ir import Buffer, Expression, Load, Stage
from graft.core.tensor_ir.visit import children, free_variables, loads, substitute, walk_expressions


@dataclass(frozen=True, slots=True)
class PackedFactor:
    """A factor in a flat buffer: one matrix per index of the outer ``axes``, of ``extents``, that it depends on."""

    source: Buffer
    buffer: Buffer
    contents: np.ndarray
    axes: tuple[int, ...]
    extents: tuple[int, ...]
    tail: np.ndarray | None = None
    """More numbers behind the matrices."""

    @property
    def stored(self) -> np.ndarray:
        """All that the buffer holds."""
        return self.contents if self.tail is None else np.concatenate([self.contents, self.tail])

    def with_tail(self, tail: np.ndarray) -> PackedFactor:
        """Return the factor with more numbers behind those that it has."""
        whole = tail.reshape(-1) if self.tail is None else np.concatenate([self.tail, tail.reshape(-1)])
        buffer = replace(self.buffer, shape=(b.index(self.contents.size + whole.size),))
        return replace(self, buffer=buffer, tail=whole)

    def begin(self, outer: Mapping[int, Expression]) -> Expression:
        """Return where the matrix of an outer index begins."""
        number: Expression = b.index(0)
        size = self.contents.size
        for axis, extent in zip(self.axes, self.extents, strict=True):
            number = b.add(b.multiply(number, extent), outer[axis])
            size //= extent
        return b.multiply(number, size)


def pack_right(
    kernel: Kernel, parts: Contraction, tile: RegisterTile, padded: int, is_streamed: bool = False
) -> PackedFactor | None:
    """Pack a constant right factor into panels of ``tile.columns``, each ``[terms, columns]``; None if it is not one.

    The last panel may be narrower; columns are padded with zeros to ``padded``. With ``is_streamed`` a panel is
    ``[vectors, terms, lanes]``: as many streams as vectors, which memory delivers faster than a single one.
    """
    found = evaluate(kernel, parts, parts.right, parts.left, parts.columns)
    if found is None:
        return None
    source, matrix, axes = found
    matrix = np.moveaxis(matrix, -2, -1)
    fill = [(0, 0)] * (matrix.ndim - 1) + [(0, padded - parts.width)]
    whole = np.pad(matrix, fill)
    pieces = [whole[..., begin : begin + tile.columns] for begin in range(0, padded, tile.columns)]
    if is_streamed:
        lanes, leading = tile.lanes, matrix.shape[:-2]
        pieces = [piece.reshape(*leading, parts.terms, -1, lanes).swapaxes(-2, -3) for piece in pieces]
    return _packed(source, pieces, axes, parts)


def pack_left(kernel: Kernel, parts: Contraction, split: Split) -> PackedFactor | None:
    """Pack a constant left factor into tiles as high as ``split`` says, each ``[terms, height]``, if it is one.

    Rows must be one axis, of known extent.
    """
    if parts.rows is None or parts.before or parts.height == VARIES:
        return None
    found = evaluate(kernel, parts, parts.left, parts.right, parts.rows)
    if found is None:
        return None
    source, matrix, axes = found
    bounds = np.cumsum([0] + [size for count, size in split.sizes for _ in range(count)])
    pieces = [np.swapaxes(matrix[..., low:high, :], -1, -2) for low, high in pairwise(bounds)]
    return _packed(source, pieces, axes, parts)


def _packed(source: Buffer, pieces: list[np.ndarray], axes: tuple[int, ...], parts: Contraction) -> PackedFactor:
    leading = tuple(parts.shape[axis] for axis in axes)
    contents = np.concatenate([piece.reshape(*leading, -1) for piece in pieces], axis=-1).reshape(-1)
    dtype = parts.left.type.dtype
    buffer = Buffer(f"{source.name}_packed", dtype, (b.index(contents.size),))
    return PackedFactor(source, buffer, np.ascontiguousarray(contents), axes, leading)


def _computes(node: Expression) -> bool:
    """Whether a node is an operation on numbers of a custom datatype, or gives one."""
    return not isinstance(node, Load) and any(one.type.is_custom for one in (node, *children(node)))


def evaluate(
    kernel: Kernel, parts: Contraction, factor: Expression, other: Expression, own: int
) -> tuple[Buffer, np.ndarray, tuple[int, ...]] | None:
    """Return (constant, factor as ``[outer axes..., own axis, terms]``, outer axes), None if it is not one constant's.

    Nothing else may read the constant, since it is replaced.
    """
    used = {load.buffer for load in loads(factor)}
    if len(used) != 1 or not used <= kernel.constants.keys():
        return None
    (source,) = used
    if any(_computes(node) for node in walk_expressions(factor)):
        return None  # arithmetic or casts of a custom datatype, which the interpreter does not know
    others = [other, *(stage.value for stage in parts.epilogue.every)]
    if any(load.buffer is source for load in loads(*others)):
        return None
    free = free_variables(factor)
    axes = tuple(axis for axis in parts.outer if parts.axes[axis] in free and parts.shape[axis] != 1)
    places = (*(parts.axes[axis] for axis in (*axes, own)), *(loop.variable for loop in parts.depth))
    extents = (*(parts.shape[axis] for axis in (*axes, own)), *(loop.extent for loop in parts.depth))
    if VARIES in extents:
        return None
    zeros = {variable: b.index(0) for variable in parts.axes if variable not in places}
    whole = Buffer("factor", factor.type.dtype, tuple(map(b.index, extents)), memory="scratch")
    stage = Stage(whole, places, substitute(factor, zeros))
    values = run_stages([stage], {source: kernel.constants[source]})[whole]
    return source, values.reshape(*extents[: len(axes) + 1], parts.terms), axes
