"""Products of one left factor side by side: a single sum of products over all their columns.

The constant right factors stand one after another, and a stage for each part picks its columns from the sums; what
followed a product follows its part. So the left factor is read once, and nothing is copied: a tile belongs to one part
(`graft.core.schedule.epilogue.Branch`) and is stored where that one wants it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from graft.core.operators import build as b
from graft.core.operators.table import Trait
from graft.core.schedule.epilogue import epilogue_of, fused_stages
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.product import Contraction, analyse
from graft.core.schedule.tiling import lanes_of, ranked_tiles
from graft.core.target import Target
from graft.core.tensor_ir.ir import Binary, Buffer, Expression, Load, Stage, Variable
from graft.core.tensor_ir.visit import substitute

MIN_FILLED = 0.85
"""So full should vectors of pixels be."""
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
    def leading(self) -> tuple[int, ...]:
        """The extents of all axes but the columns."""
        return self.product.shape[:-1]


def fits(width: int, dtype: str, target: Target) -> bool:
    """Whether a product of so many columns can stand beside others: it fills whole vectors."""
    return width % lanes_of(dtype, target) == 0


def beside_pays(height: int, widths: Sequence[int], dtype: str, target: Target) -> bool:
    """Whether products that fit are no slower side by side, by the cycles of their tiles.

    A tile must not reach from one product into the next, so some tiles are out of the question.
    """
    common = math.gcd(*widths)
    apart = sum(ranked_tiles(height, width, dtype, target)[0][0] for width in widths)
    fitting = (
        cycles for cycles, tile in ranked_tiles(height, sum(widths), dtype, target) if common % tile.columns == 0
    )
    return next(fitting) <= LONGEST * apart


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


def beside(kernels: Sequence[Kernel], name: str) -> Kernel | None:
    """Return the kernels as one; None unless all multiply one left factor by constants, summed in the same order."""
    parts = [part for kernel in kernels if (part := _part(kernel)) is not None]
    if len(parts) < max(2, len(kernels)) or not all(_alike(parts[0], other) for other in parts[1:]):
        return None
    return _joined(parts, name)


def _part(kernel: Kernel) -> _Part | None:
    """Take a kernel apart; None if it is no product with a plain constant as the right factor."""
    stages = fused_stages(kernel)
    epilogue = None if stages is None or kernel.anchor is not Trait.CONTRACTION else epilogue_of(stages, kernel.outputs)
    product = None if epilogue is None else analyse(epilogue)
    if stages is None or product is None or stages[0].epilogue is not None or product.columns != len(product.shape) - 1:
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
    return same_left and all(map(_same, (substitute(i, names) for i in other.right.indices), first.right.indices))


def _same(one: Expression, other: Expression) -> bool:
    return one is other


def _joined(parts: Sequence[_Part], name: str) -> Kernel:
    first = parts[0]
    along = next(axis for axis, index in enumerate(first.right.indices) if index is first.product.column)
    contents = np.concatenate([part.kernel.constants[part.right.buffer] for part in parts], axis=along)
    factor = Buffer("beside", first.right.buffer.dtype, tuple(map(b.index, contents.shape)))
    anchor = first.stages[0]
    sums = Buffer("sums", anchor.buffer.dtype, (*anchor.buffer.shape[:-1], b.index(contents.shape[along])))
    load = replace(first.right, buffer=factor)
    value = _with_right(anchor.value, first.right, load)
    origin = tuple(dict.fromkeys(node for part in parts for node in part.kernel.origin))
    stages = [replace(anchor, buffer=sums, value=value, origin=origin)]
    begin = 0
    for part in parts:
        own, *followers = part.stages
        axes = tuple(Variable(axis.name) for axis in own.axes)
        picked = b.load(sums, *axes[:-1], b.add(axes[-1], begin))
        stages += [Stage(own.buffer, axes, picked, origin=own.origin), *followers]
        begin += part.product.width
    inputs = dict.fromkeys(
        factor if buffer is part.right.buffer else buffer for part in parts for buffer in part.kernel.inputs
    )
    constants = {buffer: array for part in parts for buffer, array in part.kernel.constants.items() if buffer in inputs}
    outputs = tuple(buffer for part in parts for buffer in part.kernel.outputs)
    return Kernel(
        name, tuple(inputs), outputs, tuple(stages), Trait.CONTRACTION, first.kernel.node, 0,
        {**constants, factor: contents}, origin,
    )  # fmt: skip


def _with_right(value: Expression, old: Load, new: Load) -> Expression:
    """Return a product with one of its two factors replaced."""
    assert isinstance(value, Binary), value
    return replace(value, right=new) if value.right is old else replace(value, left=new)
