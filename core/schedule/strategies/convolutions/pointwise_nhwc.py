"""The schedules of convolutions of single pixels: a product of rows and weights, where channels are last.

Where they are first and extents vary, it is one of weights and the pixels of each row, which are read in place.
"""

from __future__ import annotations

from dataclasses import replace

from graft.core.machine.target import Target
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.narrowing import pixel_of
from graft.core.schedule.parameters import Parameters
from graft.core.schedule.products.tiling import lanes_of
from graft.core.schedule.strategies.contractions import blocked_product
from graft.core.schedule.strategies.convolutions.channel_order import saved
from graft.core.schedule.strategies.convolutions.direct_convolution import channels_innermost
from graft.core.schedule.strategies.strategy import CONVOLUTIONS, OTHER_FORM, Anchor, Answer, Preference, Strategy
from graft.core.tensor_ir.anchors import VARIES, Window
from graft.core.tensor_ir.ir import Load

LEAST_ROWS = 4
"""Output channels for which weights are the rows of a product: of one it took three times `register_tiles`' time."""


def as_product(anchor: Anchor) -> Kernel | None:
    """Return the kernel as a product; None if it is no such convolution."""
    found = anchor.convolution
    if found is None or anchor.stages is None or pixel_of(found.pixel) is None or not isinstance(found.weight, Load):
        return None
    stages = (channels_innermost(anchor.stages[0], found.window), *anchor.stages[1:])
    return replace(anchor.kernel, stages=stages, anchor_stage=0, anchor=Trait.CONTRACTION)


def _applies(anchor: Anchor, target: Target) -> Answer:
    window = None if anchor.convolution is None else anchor.convolution.window
    if window is None or window.inputs == 1 or not window.is_pointwise:
        return Reject("shape", "no convolution of single pixels without groups")
    is_last = window.reads_channels_last and window.stores_channels_last
    return True if is_last else Reject("layout", "channels are not last")


def _applies_first(anchor: Anchor, target: Target) -> Answer:
    found = anchor.convolution
    if found is None or found.window.inputs == 1 or not found.window.is_pointwise:
        return Reject("shape", "no convolution of single pixels without groups")
    if found.window.outputs < LEAST_ROWS:
        return Reject("size", "a pixel has few channels")
    if found.shape[-1] != VARIES and found.shape[-1] < lanes_of("float32", target):
        return Reject("size", "a row has few pixels")
    if target.precision != "float32":
        return Reject("dtype", "only what is packed before is rounded, and pixels are not")
    is_first = found.window.reads_channels_first and not found.window.stores_channels_last
    return True if is_first else Reject("layout", "channels are not first")


def _build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    product = as_product(anchor)
    if product is None:
        return OTHER_FORM
    return blocked_product.STRATEGY.build(replace(anchor, kernel=product), target)


def _candidates(anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    product = as_product(anchor) if _applies(anchor, target) else None
    return [] if product is None else blocked_product.candidates(replace(anchor, kernel=product), target, stage)


def _prefers(window: Window, target: Target) -> Preference | None:
    pairs = target.precision == "bf16" and not window.is_first  # of channels are multiplied
    return Preference("last", "last", gains=pairs, saves=saved(window, target)) if window.is_pointwise else None


def _rounds(anchor: Anchor, target: Target) -> bool | None:
    product = as_product(anchor)
    return None if product is None else blocked_product.rounds(replace(anchor, kernel=product), target)


STRATEGY = Strategy("pointwise_nhwc", CONVOLUTIONS, _build, _applies, _candidates, prefers=_prefers, rounds=_rounds)
FIRST = Strategy("pointwise_nchw", CONVOLUTIONS, _build, _applies_first, rounds=_rounds, varies=True)
