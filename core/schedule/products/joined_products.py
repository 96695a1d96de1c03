"""Products of one left factor side by side: a single sum of products over all their columns.

The constant right factors stand one after another, and a stage for each part picks its columns from the sums; what
followed a product follows its part. So the left factor is read once, and nothing is copied: every vector of a tile
belongs to one part (`graft.core.schedule.products.epilogue.Branch`) and is stored where that one wants it. Where what
follows one product reads the result of another, columns take turns, a vector of each: then a tile has the sums of both,
and what is only read here is never stored (a gate and what it lets through).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from operator import is_

import numpy as np

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.products.epilogue import epilogue_of, fused_stages, turn
from graft.core.schedule.products.product_axes import Contraction, analyse
from graft.core.schedule.products.tiling import lanes_of, ranked_tiles
from graft.core.tensor_ir.anchors import VARIES
from graft.core.tensor_ir.ir import Binary, Buffer, Expression, Load, Stage, Variable
from graft.core.tensor_ir.visit import substitute

MIN_FILLED = 0.85
"""So full should vectors of pixels be."""
MOST_TURNS = 3
"""Products that take turns in one tile."""
LONGEST = 1.01
"""The cycles that products side by side may take, relative to what they take one after another."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A product that is to stand beside others: its kernel, its stages, and how it was taken apart."""

    kernel: Kernel
    stages: tuple[Stage, ...]
    product: Contraction

    @property
    def right(self) -> Load:
        """The load of the constant factor."""
        assert isinstance(self.product.right, Load), self.product.right
        return self.product.right

    @property
    def leading(self) -> tuple[Expression, ...]:
        """The extents of all axes but the columns."""
        return self.product.extents[:-1]


def fits(width: int, dtype: str, target: Target) -> bool:
    """Whether a product of so many columns can stand beside others: it fills whole vectors."""
    return width % lanes_of(dtype, target) == 0


def beside_pays(height: int, widths: Sequence[int], dtype: str, target: Target, *, turns: bool = False) -> bool:
    """Whether products that fit are no slower side by side, by the cycles of their tiles.

    If they take ``turns``, a tile must have as many vectors of each, so some tiles are out of the question.
    """
    if turns and (len(set(widths)) > 1 or len(widths) > MOST_TURNS):
        return False
    step = len(widths) * lanes_of(dtype, target) if turns else 1
    apart = sum(ranked_tiles(height, width, dtype, target)[0][0] for width in widths)
    ranked = ranked_tiles(height, sum(widths), dtype, target)
    return next(cycles for cycles, tile in ranked if tile.columns % step == 0) <= LONGEST * apart


def stacking_pays(heights: Sequence[int], pixels: int, dtype: str, target: Target) -> bool:
    """Whether convolutions of so many channels each are no slower as one.

    Where vectors of pixels are too empty, vectors of channels are better: all of them must be full or none.
    """
    lanes = lanes_of(dtype, target)
    is_full = pixels / (-(-pixels // lanes) * lanes) >= MIN_FILLED
    full_channels = [height % lanes == 0 for height in heights]
    apart = sum(ranked_tiles(height, pixels, dtype, target)[0][0] for height in heights)
    together = ranked_tiles(sum(heights), pixels, dtype, target)[0][0]
    return together <= LONGEST * apart and (is_full or all(full_channels) or not any(full_channels))


def beside(kernels: Sequence[Kernel], name: str, target: Target, inner: Collection[Buffer] = ()) -> Kernel | None:
    """Return the kernels as one; None unless all multiply one left factor by constants, summed in the same order.

    A kernel may read what an earlier one computes, at the same place; what is in ``inner`` is not stored.
    """
    parts = [part for kernel in kernels if (part := _part(kernel)) is not None]
    if len(parts) < max(2, len(kernels)) or not all(_alike(parts[0], other) for other in parts[1:]):
        return None
    whole = _joined(parts, name, _turns(parts, target))
    whole = replace(whole, outputs=tuple(buffer for buffer in whole.outputs if buffer not in inner))
    return whole if epilogue_of(whole.stages, whole.outputs) is not None else None


def _turns(parts: Sequence[_Part], target: Target) -> int:
    """Return how many columns make a turn if a part reads what another one computes, else 0."""
    made = {buffer for part in parts for buffer in part.kernel.outputs}
    linked = any(buffer in made for part in parts for buffer in part.kernel.inputs)
    return lanes_of(parts[0].product.total.dtype, target) if linked else 0


def _part(kernel: Kernel) -> _Part | None:
    """Take a kernel apart; None if it is no product with a plain constant as the right factor."""
    stages = fused_stages(kernel)
    epilogue = None if stages is None or kernel.anchor is not Trait.CONTRACTION else epilogue_of(stages, kernel.outputs)
    product = None if epilogue is None else analyse(epilogue)
    if stages is None or product is None or stages[0].epilogue is not None:
        return None
    if product.columns != len(product.shape) - 1 or VARIES in (product.width, product.terms):
        return None
    right, loops = product.right, [loop.variable for loop in product.depth]
    if not isinstance(right, Load) or right.mask is not None or right.buffer not in kernel.constants:
        return None
    indices, wanted = list(right.indices), [product.column, *loops]
    if len(indices) != len(wanted) or not all(any(index is one for one in wanted) for index in indices):
        return None
    return _Part(kernel, stages, product)


def _alike(first: _Part, other: _Part) -> bool:
    """Whether two parts have the same left factor, and constants whose axes stand in the same order."""
    mine, theirs = first.product, other.product
    terms = [loop.extent for loop in mine.depth], [loop.extent for loop in theirs.depth]
    if first.leading != other.leading or terms[0] != terms[1]:
        return False
    names: dict[Variable, Expression] = dict(zip(theirs.axes, mine.axes, strict=True))
    names |= {a.variable: c.variable for a, c in zip(theirs.depth, mine.depth, strict=True)}
    same_left = substitute(theirs.left, names) == mine.left
    return same_left and all(map(is_, (substitute(i, names) for i in other.right.indices), first.right.indices))


def _joined(parts: Sequence[_Part], name: str, lanes: int) -> Kernel:
    """Return the parts as one kernel, with turns of ``lanes`` columns, or one behind the other if that is 0."""
    first = parts[0]
    along = next(axis for axis, index in enumerate(first.right.indices) if index is first.product.column)
    arrays = [part.kernel.constants[part.right.buffer] for part in parts]
    contents = _in_turns(arrays, along, lanes) if lanes else np.concatenate(arrays, axis=along)
    factor = Buffer("beside", first.right.buffer.dtype, tuple(map(b.index, contents.shape)))
    anchor = first.stages[0]
    sums = Buffer("sums", anchor.buffer.dtype, (*anchor.buffer.shape[:-1], b.index(contents.shape[along])))
    value = _with_right(anchor.value, first.right, replace(first.right, buffer=factor))
    origin = tuple(dict.fromkeys(node for part in parts for node in part.kernel.origin))
    picks: list[Stage] = []
    begin = 0
    for number, part in enumerate(parts):
        axes = tuple(Variable(axis.name) for axis in part.stages[0].axes)
        column = turn(axes[-1], number, len(parts), lanes) if lanes else b.add(axes[-1], begin)
        picks.append(
            replace(part.stages[0], axes=axes, value=b.load(sums, *axes[:-1], column), reduction=None, structure=None)
        )
        begin += part.product.width
    stages = [replace(anchor, buffer=sums, value=value, origin=origin), *(picks if lanes else ())]
    for pick, part in zip(picks, parts, strict=True):
        stages += [*(() if lanes else (pick,)), *part.stages[1:]]
    outputs = tuple(buffer for part in parts for buffer in part.kernel.outputs)
    read = (buffer for part in parts for buffer in part.kernel.inputs if buffer not in outputs)
    weights = {part.right.buffer for part in parts}
    inputs = tuple(dict.fromkeys(factor if buffer in weights else buffer for buffer in read))
    constants = {buffer: array for part in parts for buffer, array in part.kernel.constants.items() if buffer in inputs}
    return Kernel(
        name, inputs, outputs, tuple(stages), Trait.CONTRACTION, first.kernel.node, 0,
        {**constants, factor: contents}, origin,
    )  # fmt: skip


def _in_turns(arrays: Sequence[np.ndarray], along: int, lanes: int) -> np.ndarray:
    """Return arrays of one shape as one, ``lanes`` elements along an axis from each in turn."""
    shape = arrays[0].shape
    cut = [array.reshape(*shape[:along], -1, lanes, *shape[along + 1 :]) for array in arrays]
    return np.stack(cut, axis=along + 1).reshape(*shape[:along], -1, *shape[along + 1 :])


def _with_right(value: Expression, old: Load, new: Load) -> Expression:
    """Return a product with one of its two factors replaced."""
    assert isinstance(value, Binary), value
    return replace(value, right=new) if value.right is old else replace(value, left=new)
