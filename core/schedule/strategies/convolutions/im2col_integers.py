"""Convolutions of integers with their channels last as products of patches and weights, where memory is small.

Patches (`graft.core.schedule.products.patches`) are runs of bytes here, of which a few are copied at a time; what
follows is a product of rows and a constant matrix. An image whose channels come first is transposed before. A machine
with caches has memory for a copy of the image with a border instead, which `direct_nhwc` reads where it lies.
"""

from __future__ import annotations

from graft.core.machine.target import Target
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.collapse import collapse_rows, with_sources
from graft.core.schedule.parameters import ContractionParameters
from graft.core.schedule.primitives.statements import scratch
from graft.core.schedule.products.epilogue import fused_stages
from graft.core.schedule.products.patched_product import patched_product
from graft.core.schedule.products.patches import patches_of
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, Anchor, Answer, Strategy, of_kernel

BLOCK_BYTES = 2048
"""Patches that are copied at a time where there is no cache."""


def schedule_patches(kernel: Kernel, target: Target) -> Scheduled | None:
    """Return the kernel as copies of patches and a product; None if it is of another form."""
    stages = fused_stages(kernel)
    window = None if stages is None else patches_of(kernel, stages)
    if stages is None or window is None:
        return None
    product = window.product(kernel, stages, scratch("patches", window.source.dtype, *window.shape[:3], window.terms))
    collapsed, sources = collapse_rows(product) or (product, {})
    patched = patched_product(collapsed, window, target, ContractionParameters(block_bytes=BLOCK_BYTES))
    scheduled = None if patched is None or patched.starts.of_left is not None else patched.scheduled()
    if scheduled is None:
        return None
    blocks = with_sources(scheduled, sources)
    packed = window.packed(kernel, blocks.packed)
    return Scheduled(lambda: window.reading(kernel, blocks.function), packed, knobs=blocks.knobs)


def _applies(anchor: Anchor, target: Target) -> Answer:
    found = anchor.convolution
    if found is None or found.anchor.value.type.dtype != "int32" or found.window.groups != 1:
        return Reject("shape", "no convolution of integers without groups")
    if target.machine.caches:
        return Reject("size", "there is memory for a copy of the image")
    return True if found.window.stores_channels_last else Reject("layout", "channels are not last")


STRATEGY = Strategy("im2col_integers", CONVOLUTIONS, of_kernel(schedule_patches), _applies)
