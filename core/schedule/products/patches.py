"""Convolutions of integers as products of patches and weights (im2col).

A patch is what one pixel of the output is computed from, in one row: for each row of the window, runs of channels that
lie together in the image. An image whose channels come first is transposed before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.primitives.statements import column_mask, ramp, scratch
from graft.core.schedule.products.convolution import Convolution, convolution_of, is_read
from graft.core.schedule.products.tiling import lanes_of
from graft.core.tensor_ir.anchors import Windows
from graft.core.tensor_ir.ir import Block, Buffer, Expression, For, Function, Load, Stage, Statement, Store, Variable
from graft.core.tensor_ir.statements import allocate


@dataclass(frozen=True, slots=True)
class Patches:
    """A convolution of integers taken apart: weights ``[o, c, kh, kw]``, output ``[n, h, w, o]``."""

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

    def reading(self, kernel: Kernel, product: Function) -> Function:
        """Return the function of the product with the image as it comes as its parameter, perhaps transposed first."""
        is_transposed = self.image.memory == "scratch"
        given = self.source if is_transposed else self.image
        pairs = zip((*kernel.inputs, *kernel.outputs), product.parameters, strict=True)
        body = allocate((self.image,), Block((self._transposed(), product.body))) if is_transposed else product.body
        return replace(product, parameters=tuple(given if old is self.source else own for old, own in pairs), body=body)

    def _transposed(self) -> Statement:
        """Return the loops that put the channels of an image last."""
        batch, channels, height, width = b.dims(self.source)
        n, c, h, w = (Variable(name) for name in "nchw")
        store = Store(self.image, (n, h, b.add(b.multiply(w, channels), c)), Load(self.source, (n, c, h, w)))
        body: Statement = For(c, b.index(channels), "serial", For(w, b.index(width), "serial", store))
        return For(n, b.index(batch), "parallel", For(h, b.index(height), "parallel", body))

    def patch(
        self, rows: Buffer, row: Sequence[Expression], at: tuple[Variable, Variable, Variable], target: Target
    ) -> Statement:
        """Return what copies the patch of pixel ``at`` of the output into a row."""
        n, h, w = at
        window, strides, dilations = self.windows.kernel, self.windows.strides, self.windows.dilations
        channels = self.channels
        runs = (1, window[1] * channels) if dilations[1] == 1 else (window[1], channels)
        statements: list[Statement] = []
        for down in range(window[0]):
            line = b.add(b.multiply(h, strides[0]), down * dilations[0])
            for number in range(runs[0]):
                first = b.multiply(b.add(b.multiply(w, strides[1]), number * dilations[1]), channels)
                place = (down * runs[0] + number) * runs[1]
                for begin, lanes, mask in _pieces(runs[1], lanes_of("uint8", target)):
                    read = Load(self.image, (n, line, ramp(b.add(first, begin), lanes)), mask)
                    statements.append(Store(rows, (*row, ramp(b.index(place + begin), lanes)), read, mask))
        return Block(tuple(statements))


def patches_of(kernel: Kernel, stages: Sequence[Stage]) -> Patches | None:
    """Take a convolution of integers apart; None unless its result has channels last and no window leaves the image."""
    found = convolution_of(stages[0], 4)
    if found is None or found.window.groups != 1 or found.anchor.epilogue is not None:
        return None
    source, weights, window = found.image("int32"), found.weights(kernel, stages, "int32"), found.window
    if source is None or weights is None or is_read(stages[1:], source):
        return None
    if found.windows.leaves or not window.stores_channels_last:
        return None
    extents = (b.index(math.prod(b.dims(weights)[1:])), b.index(found.shape[3]))
    matrix = Buffer(f"{weights.name}_matrix", weights.dtype, extents)
    if window.reads_channels_last or b.dims(source)[-1] == window.inputs == 1:
        n, h, w, c = b.dims(source)
        runs = replace(source, shape=(b.index(n), b.index(h), b.index(w * c)))  # the pixels of a row
        return Patches(found, source, weights, matrix, runs)
    if not window.reads_channels_first:
        return None
    n, c, h, w = b.dims(source)
    return Patches(found, source, weights, matrix, scratch("transposed", source.dtype, n, h, w * c))


def _pieces(length: int, most: int) -> list[tuple[int, int, Expression | None]]:
    """Return begin, lanes and mask of the vectors that cover a run; the last may overlap the one before."""
    if length < most:
        lanes = 1 << (length - 1).bit_length()
        return [(0, lanes, None if lanes == length else column_mask(0, length, lanes))]
    begins = [*range(0, length - most, most), length - most]
    return [(begin, most, None) for begin in begins]
