"""Operators that `onnx.reference` and ONNX Runtime compute otherwise than each other, and who does as ONNX says.

ONNX Runtime 1.31 is asked without optimisations, which end its process by a segmentation fault where a Concat is
quantised along an axis with other scales than what it joins (seed 203).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx

REFERENCE, RUNTIME, NOBODY = "reference", "onnxruntime", "nobody"


@dataclass(frozen=True)
class Quirk:
    """Nodes whose results differ, who is right about them, and how the other differs.

    Where `NOBODY` is right, and ONNX Runtime refuses, there is nothing to compare with.
    """

    op_type: str
    right: str
    why: str
    of: Callable[[dict[str, object]], bool] = lambda attributes: True


def same_padded(attributes: dict[str, object]) -> bool:
    """Whether pads of dilated windows are as the size of the result wants them."""
    return attributes.get("auto_pad") in (b"SAME_UPPER", b"SAME_LOWER") and "dilations" in attributes


def steps_over(attributes: dict[str, object]) -> bool:
    """Whether windows with SAME pads may leave out pixels between them."""
    return attributes.get("auto_pad") in (b"SAME_UPPER", b"SAME_LOWER") and "strides" in attributes


FEWER = "ONNX Runtime makes fewer windows of SAME pads and dilations than ceil(size / stride)"

QUIRKS = (
    Quirk("Attention", REFERENCE, "ONNX Runtime begins the causal triangle elsewhere where there are more keys than "
          "queries behind what is past", lambda found: bool(found.get("is_causal"))),
    Quirk("Attention", NOBODY, "beside a mask of one row for all queries onnx.reference takes one row of the triangle, "
          "ONNX Runtime refuses", lambda found: bool(found.get("is_causal"))),
    Quirk("Col2Im", REFERENCE, "ONNX Runtime adds blocks of three axes at other places"),
    Quirk("DFT", REFERENCE, "ONNX Runtime takes an inverse transform of a one-sided spectrum otherwise",
          lambda found: bool(found.get("inverse")) and bool(found.get("onesided"))),
    Quirk("AffineGrid", REFERENCE, "the place of one pixel between aligned corners is not defined: the first, -1, for "
          "onnx.reference, 1 for ONNX Runtime, 0 for PyTorch",
          lambda found: bool(found.get("align_corners"))),
    Quirk("AveragePool", REFERENCE, "of images of two axes ONNX Runtime counts what lies behind the pads, too",
          lambda found: bool(found.get("ceil_mode")) and bool(found.get("count_include_pad"))),
    Quirk("LinearAttention", RUNTIME, "of batches that differ, which ONNX rules out, onnx.reference computes otherwise "
          "than the function by which ONNX defines the operator"),
    Quirk("AveragePool", REFERENCE, FEWER, same_padded),
    Quirk("AveragePool", REFERENCE, "ONNX Runtime takes a negative number of SAME pads, where windows are smaller than "
          "strides (its MaxPool refuses that)", steps_over),
    Quirk("LpPool", REFERENCE, FEWER, same_padded),
    Quirk("MaxPool", REFERENCE, FEWER, same_padded),
    Quirk("MaxPool", REFERENCE, "of a window that is a stride wider than its image onnx's inference makes one, ONNX "
          "Runtime none", lambda found: bool(found.get("ceil_mode"))),
    Quirk("MaxUnpool", REFERENCE, "indices are of the image whose size follows from windows and strides, as in ONNX's "
          "own test; ONNX Runtime counts them in the larger image that is asked for"),
    Quirk("BatchNormalization", RUNTIME, "in files before opset 14 onnx.reference mixes the mean and variance of the "
          "batch with the given ones"),
    Quirk("Softmax", RUNTIME, "in files before opset 13 it is over all axes from the given one on; for onnx.reference "
          "over that one"),
    Quirk("Resize", RUNTIME, "of one pixel the place is 0 in ONNX, -0.5 in onnx.reference",
          lambda found: found.get("coordinate_transformation_mode") == b"pytorch_half_pixel"),
    Quirk("Resize", REFERENCE, "corners are those of the length before it is rounded down, as in ONNX's own test; ONNX "
          "Runtime takes it rounded", lambda found: found.get("coordinate_transformation_mode") == b"align_corners"),
)  # fmt: skip


UNDEMANDED = {
    "Pad": "ONNX mirrors an axis once: onnx.reference and ONNX Runtime mirror a short one again and again",
    "GroupNormalization": "ONNX wants a scale for each channel: onnx.reference broadcasts one",
    "TensorScatter": "ONNX wants indices within the cache: onnx.reference counts on from its beginning",
    "PRelu": "ONNX broadcasts slopes to the data alone: onnx.reference broadcasts both",
    "Reshape": "a computed 0 copies an extent of a tensor without elements: Graft refuses, onnx.reference copies",
    "Attention": "ONNX says that batches are the same: onnx.reference broadcasts keys of one, ONNX Runtime refuses",
}
"""Operators that demand sizes which neither `onnx.reference` nor ONNX Runtime looks at: Graft refuses by name."""


def quirks_of(node: onnx.NodeProto) -> list[Quirk]:
    """Return the rows of the table that a node falls under."""
    attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    return [one for one in QUIRKS if one.op_type == node.op_type and one.of(attributes)]
