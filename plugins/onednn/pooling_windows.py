"""Sliding windows: from ONNX's attributes of Conv and pooling to oneDNN's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graft.core.affine.expressions import add, floordiv, is_at_least, maximum, multiply, subtract
from graft.runtime.extents import Extent


@dataclass(frozen=True, slots=True)
class Window:
    """Per spatial axis: size, stride, dilation (oneDNN counts from 0), padding in front and behind.

    Padding, and the size of a window over all of an image, depend on the image's extents. ``overhang`` says whether the
    padding behind was enlarged because the last window reaches further, or may: the output is rounded up
    (``ceil_mode``), or counts a window that is wider than its image.
    """

    kernel: tuple[Extent, ...]
    strides: tuple[int, ...]
    dilates: tuple[int, ...]
    padding_l: tuple[Extent, ...]
    padding_r: tuple[Extent, ...]
    overhang: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the form that the loader reads."""
        return {
            "strides": list(self.strides),
            "dilates": list(self.dilates),
            "padding_l": list(self.padding_l),
            "padding_r": list(self.padding_r),
        }


def window(
    attributes: Mapping[str, Any], kernel: Sequence[Extent], source: Sequence[Extent], target: Sequence[Extent]
) -> Window:
    """Return the window of a Conv or pooling operator with spatial sizes ``source`` and ``target``.

    ONNX: ``target = (source + pads - effective kernel) // stride + 1``, rounded up with ``ceil_mode``; with
    ``auto_pad`` SAME the target is ``ceil(source / stride)`` and the padding follows.
    """
    count = len(kernel)
    strides = tuple(attributes.get("strides") or (1,) * count)
    dilations = tuple(attributes.get("dilations") or (1,) * count)
    extents = [add(multiply(subtract(size, 1), dilation), 1) for size, dilation in zip(kernel, dilations, strict=True)]
    needed = [
        add(multiply(subtract(after, 1), stride), subtract(extent, before))
        for before, after, stride, extent in zip(source, target, strides, extents, strict=True)
    ]
    front, behind = _pads(attributes, needed)
    wanted = [subtract(total, left) for total, left in zip(needed, front, strict=True)]
    enlarged = tuple(
        given if is_at_least(subtract(given, more), 0) else maximum(given, more)
        for given, more in zip(behind, wanted, strict=True)
    )
    return Window(
        kernel=tuple(kernel),
        strides=strides,
        dilates=tuple(dilation - 1 for dilation in dilations),
        padding_l=front,
        padding_r=enlarged,
        overhang=enlarged != behind,
    )


def _pads(attributes: Mapping[str, Any], needed: Sequence[Extent]) -> tuple[tuple[Extent, ...], tuple[Extent, ...]]:
    count = len(needed)
    auto_pad = attributes.get("auto_pad", "NOTSET")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        totals = [maximum(total, 0) for total in needed]
        smaller = tuple(floordiv(total, 2) for total in totals)
        larger = tuple(subtract(total, half) for total, half in zip(totals, smaller, strict=True))
        return (smaller, larger) if auto_pad == "SAME_UPPER" else (larger, smaller)
    pads = tuple(attributes.get("pads") or ()) if auto_pad == "NOTSET" else ()
    return (pads[:count], pads[count:]) if pads else ((0,) * count, (0,) * count)
