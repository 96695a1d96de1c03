"""Convolutions of integers with their channels last as products of patches and weights.

A patch is what one pixel of the output is computed from: for each row of the window a run of bytes that lie together in
the input. Patches are copied into scratch memory; what follows is a product of rows and a constant matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from graft.core.machine.target import Target
from graft.core.operators import build as b
from graft.core.operators.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.collapse import collapse_rows
from graft.core.schedule.loops.vectorize import instantiate
from graft.core.schedule.products.convolution import convolution_of, is_read
from graft.core.schedule.products.epilogue import fused_stages
from graft.core.schedule.products.tiling import column_mask, ramp
from graft.core.schedule.strategies.blocked_product import schedule_contraction
from graft.core.schedule.strategy import CONVOLUTIONS, Anchor, Answer, Strategy, of_kernel
from graft.core.tensor_ir.ir import (
    Allocate,
    Block,
    Buffer,
    Expression,
    For,
    Function,
    Load,
    Stage,
    Statement,
    Store,
    Variable,
)


def schedule_patches(kernel: Kernel, target: Target) -> Scheduled | None:
    """Return the kernel as a copy of patches and a product; None if it is of another form."""
    stages = fused_stages(kernel)
    window = None if stages is None else _window(kernel, stages)
    if stages is None or window is None:
        return None
    (n, h, w, outputs), terms = window.shape, window.terms
    patches = Buffer("patches", window.source.dtype, tuple(map(b.index, (n, h, w, terms))), None, "scratch", 64)
    weights = Buffer(window.weights.name, window.weights.dtype, (b.index(terms), b.index(outputs)))
    contents = kernel.constants[window.weights].transpose(2, 3, 1, 0).reshape(terms, outputs)

    def value(axes: Sequence[Expression], k: Sequence[Expression]) -> Expression:
        left = b.cast(b.load(patches, *axes[:-1], *k), "int32")
        return b.multiply(left, b.cast(b.load(weights, *k, axes[-1]), "int32"))

    anchor = replace(b.contract(stages[0].buffer, [terms], value), origin=stages[0].origin)
    changed = {window.source: patches, window.weights: weights}
    product = replace(
        kernel,
        inputs=tuple(changed.get(buffer, buffer) for buffer in kernel.inputs),
        stages=(anchor, *stages[1:]),
        anchor=Trait.CONTRACTION,
        anchor_stage=0,
        constants={
            **{buffer: array for buffer, array in kernel.constants.items() if buffer is not window.weights},
            weights: np.ascontiguousarray(contents),
        },
    )
    collapsed = collapse_rows(product) or (product, {})
    scheduled = schedule_contraction(collapsed[0], target)
    sources = {new: collapsed[1].get(new, new) for new in collapsed[0].inputs}
    packed = {sources[buffer]: array for buffer, array in scheduled.packed.items()}
    rows = next(new for new, old in sources.items() if old is patches)

    def build() -> Function:
        inner = scheduled.function
        image = window.image()
        parameters = tuple(
            image if buffer is window.source else own
            for buffer, own in zip((*kernel.inputs, *kernel.outputs), inner.parameters, strict=True)
        )
        # Two passes over a row may share their variables: fresh ones, so that each is bound once.
        body = Allocate(rows, Block((window.copy(image, rows, target), instantiate(inner.body, {}))))
        return replace(inner, parameters=parameters, body=body)

    own = {(window.weights if buffer is weights else buffer): array for buffer, array in packed.items()}
    return Scheduled(build, {window.weights: np.ascontiguousarray(contents), **own}, knobs=scheduled.knobs)


@dataclass(frozen=True, slots=True)
class _Window:
    """A convolution without border: the images ``[n, h, w, c]``, the weights ``[o, c, kh, kw]``, strides, dilations."""

    source: Buffer
    weights: Buffer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]

    @property
    def terms(self) -> int:
        """The number of products in each sum."""
        return math.prod(b.dims(self.weights)[1:])

    def image(self) -> Buffer:
        """Return the images with the pixels of a row as one run of elements."""
        n, h, w, c = b.dims(self.source)
        return replace(self.source, shape=(b.index(n), b.index(h), b.index(w * c)))

    def copy(self, image: Buffer, rows: Buffer, target: Target) -> Statement:
        """Return the loops that fill the patches, one for each pixel of the output."""
        (batch, height, width, _), channels = self.shape, b.dims(self.weights)[1]
        window = b.dims(self.weights)[2:]
        n, h, w = Variable("n"), Variable("h"), Variable("w")
        row = b.add(b.multiply(b.add(b.multiply(n, height), h), width), w)
        runs = (1, window[1] * channels) if self.dilations[1] == 1 else (window[1], channels)
        statements: list[Statement] = []
        for down in range(window[0]):
            line = b.add(b.multiply(h, self.strides[0]), down * self.dilations[0])
            for number in range(runs[0]):
                first = b.multiply(b.add(b.multiply(w, self.strides[1]), number * self.dilations[1]), channels)
                place = (down * runs[0] + number) * runs[1]
                for begin, lanes, mask in _pieces(runs[1], target.vector_bytes):
                    read = Load(image, (n, line, ramp(b.add(first, begin), lanes)), mask)
                    patch = (row,) if len(rows.shape) == 2 else (n, h, w)
                    statements.append(Store(rows, (*patch, ramp(b.index(place + begin), lanes)), read, mask))
        body: Statement = For(w, b.index(width), "serial", Block(tuple(statements)))
        return For(n, b.index(batch), "parallel", For(h, b.index(height), "parallel", body))


def _pieces(length: int, most: int) -> list[tuple[int, int, Expression | None]]:
    """Return begin, lanes and mask of the vectors that cover a run; the last may overlap the one before."""
    if length < most:
        lanes = 1 << (length - 1).bit_length()
        return [(0, lanes, None if lanes == length else column_mask(b.index(0), length, lanes))]
    begins = [*range(0, length - most, most), length - most]
    return [(begin, most, None) for begin in begins]


def _window(kernel: Kernel, stages: Sequence[Stage]) -> _Window | None:
    """Take a convolution apart; None unless its channels are last, it has one group, and no window leaves the image."""
    found = convolution_of(stages[0], 4)
    if found is None or found.window.groups != 1 or found.windows.leaves or found.anchor.epilogue is not None:
        return None
    source, weights = found.image("int32"), found.weights(kernel, stages, "int32")
    if source is None or weights is None or is_read(stages[1:], source):
        return None
    window, windows = found.window, found.windows
    if not window.stores_channels_last or not (window.reads_channels_last or b.dims(source)[-1] == window.inputs == 1):
        return None
    return _Window(source, weights, found.shape, windows.strides, windows.dilations)


def _applies(anchor: Anchor, target: Target) -> Answer:
    found = anchor.convolution
    if found is None or found.anchor.value.type.dtype != "int32" or found.window.groups != 1:
        return Reject("shape", "no convolution of integers without groups")
    return True if found.window.stores_channels_last else Reject("layout", "channels are not last")


STRATEGY = Strategy("im2col_integers", CONVOLUTIONS, of_kernel(schedule_patches), _applies)
