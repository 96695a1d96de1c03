"""Sliding windows: from ONNX's attributes of Conv and pooling to oneDNN's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Window:
    """Per spatial axis: size, stride, dilation (oneDNN counts from 0), padding in front and behind.

    ``overhang`` says whether the padding behind was enlarged because the output is rounded up (``ceil_mode``).
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilates: tuple[int, ...]
    padding_l: tuple[int, ...]
    padding_r: tuple[int, ...]
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
    attributes: Mapping[str, Any], kernel: Sequence[int], source: Sequence[int], target: Sequence[int]
) -> Window:
    """Return the window of a Conv or pooling operator with spatial sizes ``source`` and ``target``.

    ONNX: ``target = (source + pads - effective kernel) // stride + 1``, rounded up with ``ceil_mode``; with
    ``auto_pad`` SAME the target is ``ceil(source / stride)`` and the padding follows.
    """
    count = len(kernel)
    strides = tuple(attributes.get("strides") or (1,) * count)
    dilations = tuple(attributes.get("dilations") or (1,) * count)
    extents = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    needed = [
        (after - 1) * stride + extent - before
        for before, after, stride, extent in zip(source, target, strides, extents, strict=True)
    ]
    front, behind = _pads(attributes, needed)
    enlarged = tuple(max(given, total - left) for given, total, left in zip(behind, needed, front, strict=True))
    return Window(
        kernel=tuple(kernel),
        strides=strides,
        dilates=tuple(dilation - 1 for dilation in dilations),
        padding_l=front,
        padding_r=enlarged,
        overhang=enlarged != behind,
    )


def _pads(attributes: Mapping[str, Any], needed: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    count = len(needed)
    auto_pad = attributes.get("auto_pad", "NOTSET")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        totals = [max(total, 0) for total in needed]
        smaller = tuple(total // 2 for total in totals)
        larger = tuple(total - half for total, half in zip(totals, smaller, strict=True))
        return (smaller, larger) if auto_pad == "SAME_UPPER" else (larger, smaller)
    pads = tuple(attributes.get("pads") or ()) if auto_pad == "NOTSET" else ()
    return (pads[:count], pads[count:]) if pads else ((0,) * count, (0,) * count)
