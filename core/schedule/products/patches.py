"""Convolutions as products of patches and weights (im2col).

A patch is what one pixel of the output is computed from, in one row: for each row of the window, runs of channels that
lie together in the image.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.products.convolution import Convolution, convolution_of, is_read
from graft.core.tensor_ir.anchors import Windows
from graft.core.tensor_ir.ir import Buffer, Expression, Function, Stage, Statement, Variable


@dataclass(frozen=True, slots=True)
class Patches(ABC):
    """A convolution taken apart: images ``[n, h, w, c]``, weights ``[o, c, kh, kw]``, output ``[n, h, w, o]``."""

    found: Convolution
    source: Buffer
    weights: Buffer
    matrix: Buffer
    """The weights as ``[terms, outputs]``."""
    image: Buffer
    """The images as patches are copied from them."""

    @property
    def windows(self) -> Windows:
        """The windows."""
        return self.found.windows

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the output."""
        return self.found.shape

    @property
    def channels(self) -> int:
        """The channels of the image."""
        return b.dims(self.weights)[1]

    @property
    def terms(self) -> int:
        """The number of products in each sum."""
        return b.dims(self.matrix)[0]

    def product(self, kernel: Kernel, stages: Sequence[Stage], patches: Buffer) -> Kernel:
        """Return the kernel as the product of ``patches``, ``[n, h, w, terms]``, and the matrix of weights."""
        matrix, anchor = self.matrix, stages[0]
        wide = anchor.value.type.dtype

        def value(axes: Sequence[Expression], k: Sequence[Expression]) -> Expression:
            left, right = b.load(patches, *axes[:-1], *k), b.load(matrix, *k, axes[-1])
            return b.multiply(b.cast(left, wide), b.cast(right, wide))

        product = replace(b.contract(anchor.buffer, [self.terms], value), origin=anchor.origin)
        changed = {self.source: patches, self.weights: matrix}
        others = {buffer: array for buffer, array in kernel.constants.items() if buffer is not self.weights}
        return replace(
            kernel,
            inputs=tuple(changed.get(buffer, buffer) for buffer in kernel.inputs),
            stages=(product, *stages[1:]),
            anchor=Trait.CONTRACTION,
            anchor_stage=0,
            constants={**others, matrix: self.contents(kernel)},
        )

    def contents(self, kernel: Kernel) -> np.ndarray:
        """Return the matrix of weights."""
        return np.ascontiguousarray(kernel.constants[self.weights].transpose(2, 3, 1, 0).reshape(self.terms, -1))

    def packed(self, kernel: Kernel, product: Mapping[Buffer, np.ndarray]) -> dict[Buffer, np.ndarray]:
        """Return the packed constants of the convolution, given those of the product."""
        renamed = {self.weights if buffer is self.matrix else buffer: array for buffer, array in product.items()}
        return {self.weights: self.contents(kernel), **renamed}

    @abstractmethod
    def patch(
        self, rows: Buffer, row: Sequence[Expression], at: tuple[Variable, Variable, Variable], target: Target
    ) -> Statement:
        """Return what copies the patch of pixel ``at``, image, line and column, of the output into a row."""

    def reading(self, kernel: Kernel, product: Function) -> Function:
        """Return the function of the product with the image as its parameter in the place of patches."""
        pairs = zip((*kernel.inputs, *kernel.outputs), product.parameters, strict=True)
        return replace(product, parameters=tuple(self.image if old is self.source else own for old, own in pairs))


def with_rows(image: Buffer) -> Buffer:
    """Return images ``[n, h, w, c]`` with the pixels of a row as one run of elements."""
    n, h, w, c = b.dims(image)
    return replace(image, shape=(b.index(n), b.index(h), b.index(w * c)))


def plain_convolution(
    kernel: Kernel, stages: Sequence[Stage], wide: str, image: str | None = None, weights: str | None = None
) -> tuple[Convolution, Buffer, Buffer, Buffer] | None:
    """Return a convolution of one group, its image, its weights, and these as a matrix.

    ``wide`` is the type of the sums, ``image`` and ``weights`` that of the elements (None: any). None for any other
    convolution, and where what follows reads the image or the weights again.
    """
    found = convolution_of(stages[0], 4)
    if found is None or found.window.groups != 1 or found.anchor.epilogue is not None:
        return None
    source, constant = found.image(wide, image), found.weights(kernel, stages, wide, weights)
    if source is None or constant is None or is_read(stages[1:], source):
        return None
    extents = (b.index(math.prod(b.dims(constant)[1:])), b.index(found.shape[3]))
    return found, source, constant, Buffer(f"{constant.name}_matrix", constant.dtype, extents)
