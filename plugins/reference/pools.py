"""Pools as ONNX defines them.

`onnx.reference` shifts windows by half of what `ceil_mode` adds behind the image, takes pads that differ in another
order, and has other windows where dilated ones are padded automatically.
"""

# mypy: disallow_untyped_calls=False
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from onnx.reference.op_run import OpRun


def auto_pads(
    auto_pad: str | None, extents: Sequence[int], reach: Sequence[int], strides: Sequence[int]
) -> list[int] | None:
    """Return what ``auto_pad`` adds before and behind each spatial axis, None where pads are given."""
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        return [0] * 2 * len(reach) if auto_pad == "VALID" else None
    wanted = [
        max(0, (-(-extent // stride) - 1) * stride + taps - extent)
        for extent, taps, stride in zip(extents, reach, strides, strict=True)
    ]
    begins = [(pad + (auto_pad == "SAME_LOWER")) // 2 for pad in wanted]
    return [*begins, *(pad - begin for pad, begin in zip(wanted, begins, strict=True))]


@dataclass(frozen=True)
class Windows:
    """The attributes of a pool; a window's elements are its last axis."""

    kernel_shape: Sequence[int]
    strides: Sequence[int] | None = None
    dilations: Sequence[int] | None = None
    pads: Sequence[int] | None = None
    auto_pad: str | None = None
    ceil_mode: int | None = None

    def places(self, extents: Sequence[int]) -> tuple[list[np.ndarray], list[int]]:
        """Return by axis the places that each window reads, and how much of the padded image is behind the image."""
        ones = [1] * len(extents)
        strides, dilations = self.strides or ones, self.dilations or ones
        reach = [(taps - 1) * by + 1 for taps, by in zip(self.kernel_shape, dilations, strict=True)]
        fixed = auto_pads(self.auto_pad, extents, reach, strides)
        pads = fixed or self.pads or [0] * 2 * len(extents)
        rounds_up = bool(self.ceil_mode) and fixed is None
        found = []
        for axis, (extent, stride) in enumerate(zip(extents, strides, strict=True)):
            before, room = pads[axis], extent + pads[axis] + pads[len(extents) + axis] - reach[axis]
            count = int((room + (stride - 1 if rounds_up else 0)) / stride) + 1  # towards 0, as onnx infers shapes
            if (count - 1) * stride >= extent + before and rounds_up:
                count -= 1  # no window begins behind the image
            starts = np.arange(max(count, 0)) * stride - before
            found.append(starts[:, None] + np.arange(self.kernel_shape[axis]) * dilations[axis])
        return found, list(pads[len(extents) :])

    def taken(self, x: np.ndarray, fill: float) -> np.ndarray:
        """Return the elements of all windows of ``x``, with ``fill`` for what is outside."""
        places, _ = self.places(x.shape[2:])
        for axis, at in enumerate(places):
            here, extent = 2 + axis, x.shape[2 + axis]
            before, behind = max(0, -at.min(initial=0)), max(0, at.max(initial=0) + 1 - extent)
            widths = [(before, behind) if one == here else (0, 0) for one in range(x.ndim)]
            x = np.moveaxis(np.take(np.pad(x, widths, constant_values=fill), at + before, here), here + 1, -1)
        return x.reshape(*x.shape[: 2 + len(places)], int(np.prod(self.kernel_shape)))

    def counts(self, extents: Sequence[int], *, padding: bool) -> np.ndarray:
        """Return how many elements each window has in the image, with its padding or without."""
        places, behind = self.places(extents)
        limits = [extent + (more if padding else 0) for extent, more in zip(extents, behind, strict=True)]
        rows = [((at < limit) & (padding | (at >= 0))).sum(1) for at, limit in zip(places, limits, strict=True)]
        return reduce(np.multiply.outer, rows)


class AveragePool(OpRun):
    """A mean of what is in the image, or in the padded image, a window without anything of it being 0/0."""

    op_domain = ""

    def _run(self, x, count_include_pad=None, **settings):  # type: ignore[no-untyped-def]
        windows = Windows(**settings)
        counts = windows.counts(x.shape[2:], padding=bool(count_include_pad))
        return ((_sum(windows.taken(x, 0)) / counts).astype(x.dtype),)


class LpPool(OpRun):
    """The norm of each window."""

    op_domain = ""

    def _run(self, x, p=2, **settings):  # type: ignore[no-untyped-def]
        return (np.power(_sum(np.abs(Windows(**settings).taken(x, 0)) ** p), 1 / p).astype(x.dtype),)


def _sum(windows: np.ndarray) -> np.ndarray:
    return np.asarray(windows.sum(-1, dtype=np.promote_types(windows.dtype, np.float32)))


class MaxPool(OpRun):
    """The largest of each window, and the first place where it is."""

    op_domain = ""

    def _run(self, x, storage_order=None, **settings):  # type: ignore[no-untyped-def]
        windows, lowest = Windows(**settings), np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
        values = windows.taken(x, lowest)
        if len(self.onnx_node.output) < 2:
            return (values.max(-1),)
        extents = x.shape[2:]
        numbers = np.arange(np.prod(extents)).reshape(extents, order="F" if storage_order else "C")
        numbers = numbers + np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * len(extents)) * numbers.size
        places = windows.taken(numbers, -1)
        first = np.where(places < 0, lowest, values).argmax(-1)[..., None]  # in the image, where it can be
        return values.max(-1), np.take_along_axis(places, first, -1)[..., 0]
