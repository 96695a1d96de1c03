"""Convolutions as their anchors state them: which windows, which factor reads the image, in which orders of axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graft.core.schedule.kernel import Kernel
from graft.core.tensor_ir.anchors import VARIES, Window, Windows
from graft.core.tensor_ir.ir import Buffer, Cast, Constant, Expression, Load, Stage
from graft.core.tensor_ir.ordered_stages import uses_of
from graft.core.tensor_ir.verifying.anchor_rules import image_and_weights

FEW_CHANNELS = 4
"""Groups of fewer output channels are computed directly, and windows of neighbouring places are read together."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """An anchor that is a convolution, and its factors: ``pixel`` reads the image, ``weight`` the weights."""

    anchor: Stage
    window: Window
    pixel: Expression
    weight: Expression
    shape: tuple[int, ...]
    """The extents of the result, `VARIES` where they are known only when a kernel runs."""

    @property
    def windows(self) -> Windows:
        """The windows."""
        return self.window.windows

    @property
    def has_few_channels(self) -> bool:
        """Whether its groups have so few output channels that no product of matrices is worth its while."""
        return self.window.groups > 1 and self.window.outputs < FEW_CHANNELS

    def image(self, wide: str, dtype: str | None = None) -> Buffer | None:
        """Return the image if the pixel is its element (of type ``dtype``), made ``wide``, and zero outside."""
        return _plain(self.pixel, wide, dtype)

    def weights(self, kernel: Kernel, stages: Sequence[Stage], wide: str, dtype: str | None = None) -> Buffer | None:
        """Return the weights if they are a constant that no other of the stages reads, and the factor their element."""
        found = _plain(self.weight, wide, dtype)
        if found is None or found not in kernel.constants or uses_of(found, stages[1:]):
            return None
        return found


def convolution_of(stage: Stage, rank: int | None = None) -> Convolution | None:
    """Return the convolution that a stage says it is, with ``rank`` axes; None if it is none, or has no elements."""
    parts = image_and_weights(stage)
    shape = tuple(int(extent.value) if isinstance(extent, Constant) else VARIES for extent in stage.buffer.shape)
    if parts is None or not isinstance(stage.structure, Window) or 0 in shape:
        return None
    if rank is not None and len(shape) != rank:
        return None
    return Convolution(stage, stage.structure, *parts, shape)


def _plain(factor: Expression, wide: str, dtype: str | None) -> Buffer | None:
    """The buffer of which a factor is an element, as ``wide``; None if it is more, or not of type ``dtype``."""
    if factor.type.dtype != wide:
        return None
    element = factor.value if isinstance(factor, Cast) else factor
    return element.buffer if isinstance(element, Load) and dtype in (None, element.buffer.dtype) else None
