"""Convolutions of integers with their channels last as products of patches and weights, where memory is small.

Patches (`graft.core.schedule.products.patches`) are runs of bytes here, of which a few are copied at a time; what
follows is a product of rows and a constant matrix. An image whose channels come first is transposed before. A machine
with caches has memory for a copy of the image with a border instead, which `direct_nhwc` reads where it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.collapse import collapse_rows, with_sources
from graft.core.schedule.parameters import ContractionParameters
from graft.core.schedule.primitives.statements import column_mask, ramp, scratch
from graft.core.schedule.products.epilogue import fused_stages
from graft.core.schedule.products.patched_product import patched_product
from graft.core.schedule.products.patches import Patches, plain_convolution, with_rows
from graft.core.schedule.products.tiling import lanes_of
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, Anchor, Answer, Strategy, of_kernel
from graft.core.tensor_ir.ir import Block, Buffer, Expression, For, Function, Load, Stage, Statement, Store, Variable
from graft.core.tensor_ir.statements import allocate

BLOCK_BYTES = 2048
"""Patches that are copied at a time where there is no cache."""


def schedule_patches(kernel: Kernel, target: Target) -> Scheduled | None:
    """Return the kernel as copies of patches and a product; None if it is of another form."""
    stages = fused_stages(kernel)
    window = None if stages is None else _window(kernel, stages)
    if stages is None or window is None:
        return None
    product = window.product(kernel, stages, scratch("patches", window.source.dtype, *window.shape[:3], window.terms))
    collapsed, sources = collapse_rows(product) or (product, {})
    patched = patched_product(collapsed, window, target, ContractionParameters(block_bytes=BLOCK_BYTES))
    if patched is None or patched.starts.of_left is not None:
        return None
    blocks = with_sources(patched.scheduled(), sources)
    packed = window.packed(kernel, blocks.packed)
    return Scheduled(lambda: window.reading(kernel, blocks.function), packed, knobs=blocks.knobs)


class _Window(Patches):
    """A convolution without border."""

    def reading(self, kernel: Kernel, product: Function) -> Function:
        """Return the function of the product with the image as it comes as its parameter, turned first if need be."""
        if self.image.memory != "scratch":
            return Patches.reading(self, kernel, product)
        function = Patches.reading(replace(self, image=self.source), kernel, product)
        return replace(function, body=allocate((self.image,), Block((self._turned(), function.body))))

    def _turned(self) -> Statement:
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


def _pieces(length: int, most: int) -> list[tuple[int, int, Expression | None]]:
    """Return begin, lanes and mask of the vectors that cover a run; the last may overlap the one before."""
    if length < most:
        lanes = 1 << (length - 1).bit_length()
        return [(0, lanes, None if lanes == length else column_mask(0, length, lanes))]
    begins = [*range(0, length - most, most), length - most]
    return [(begin, most, None) for begin in begins]


def _window(kernel: Kernel, stages: Sequence[Stage]) -> _Window | None:
    """Take a convolution apart; None unless its result has channels last and no window leaves the image."""
    plain = plain_convolution(kernel, stages, "int32")
    if plain is None or plain[0].windows.leaves or not plain[0].window.stores_channels_last:
        return None
    window, source = plain[0].window, plain[1]
    if window.reads_channels_last or b.dims(source)[-1] == window.inputs == 1:
        return _Window(*plain, with_rows(source))
    if not window.reads_channels_first:
        return None
    batch, channels, height, width = b.dims(source)
    return _Window(*plain, scratch("transposed", source.dtype, batch, height, width * channels))


def _applies(anchor: Anchor, target: Target) -> Answer:
    found = anchor.convolution
    if found is None or found.anchor.value.type.dtype != "int32" or found.window.groups != 1:
        return Reject("shape", "no convolution of integers without groups")
    if target.machine.caches:
        return Reject("size", "there is memory for a copy of the image")
    return True if found.window.stores_channels_last else Reject("layout", "channels are not last")


STRATEGY = Strategy("im2col_integers", CONVOLUTIONS, of_kernel(schedule_patches), _applies)
