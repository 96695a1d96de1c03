"""Operators that `onnx.reference` and ONNX Runtime compute otherwise than each other, and who does as ONNX says.

ONNX Runtime 1.31 is asked without optimisations: these end the process by a segmentation fault where a Concat is
quantised along an axis with other scales than what it joins (seed 203).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx

REFERENCE, RUNTIME = "reference", "onnxruntime"


@dataclass(frozen=True)
class Quirk:
    """Nodes whose results differ, who is right about them, and how the other differs."""

    op_type: str
    right: str
    why: str
    of: Callable[[dict[str, object]], bool] = lambda attributes: True


def same_padded(attributes: dict[str, object]) -> bool:
    """Whether pads are as the size of the result wants them."""
    return attributes.get("auto_pad") in (b"SAME_UPPER", b"SAME_LOWER")


def short(attributes: dict[str, object]) -> bool:
    """Whether windows along some axis are shorter than the stride."""
    kernel, strides = attributes.get("kernel_shape"), attributes.get("strides")
    return isinstance(kernel, list) and isinstance(strides, list) and any(map(int.__lt__, kernel, strides))


QUIRKS = (
    Quirk("MaxPool", RUNTIME, "onnx.reference makes negative SAME pads of windows that are shorter than strides",
          lambda found: same_padded(found) and short(found)),
    Quirk("Attention", REFERENCE, "ONNX Runtime begins the causal triangle elsewhere where there are more keys than "
          "queries behind what is past", lambda found: bool(found.get("is_causal"))),
    Quirk("Col2Im", REFERENCE, "ONNX Runtime adds blocks of three axes at other places"),
    Quirk("DFT", REFERENCE, "ONNX Runtime takes an inverse transform of a one-sided spectrum otherwise",
          lambda found: bool(found.get("inverse")) and bool(found.get("onesided"))),
    Quirk("AffineGrid", REFERENCE, "the place of an axis of one pixel is 0/0 with aligned corners: ONNX Runtime has 0",
          lambda found: bool(found.get("align_corners"))),
    Quirk("AveragePool", REFERENCE, "of images of two axes ONNX Runtime counts what lies behind the pads, too",
          lambda found: bool(found.get("ceil_mode")) and bool(found.get("count_include_pad"))),
    Quirk("LpPool", RUNTIME, "onnx.reference takes pads that differ in another order"),
    Quirk("LinearAttention", RUNTIME, "of batches that differ, which ONNX rules out, onnx.reference computes otherwise "
          "than the function by which ONNX defines the operator"),
    Quirk("MaxPool", REFERENCE, "ONNX Runtime makes fewer windows of SAME pads and dilations than ceil(size / stride)",
          lambda found: same_padded(found) and "dilations" in found),
)  # fmt: skip


UNDEMANDED = {
    "Pad": "ONNX mirrors an axis once: onnx.reference and ONNX Runtime mirror a short one again and again",
    "GroupNormalization": "ONNX wants a scale for each channel: onnx.reference broadcasts one",
    "TensorScatter": "ONNX wants indices within the cache: onnx.reference counts on from its beginning",
    "PRelu": "ONNX broadcasts slopes to the data alone: onnx.reference broadcasts both",
    "Attention": "ONNX says that batches are the same: onnx.reference broadcasts keys of one, ONNX Runtime refuses",
}
"""Operators that demand sizes which neither `onnx.reference` nor ONNX Runtime looks at: Graft refuses by name."""


CRASHES = frozenset({1098, 1585, 2593})
"""Seeds with whose models ONNX Runtime 1.31 ends the process, by an abort or a division by zero: it is not asked."""
EMPTY = "Reshape: an extent of 0 that is computed is one of 0 in Graft, and copies in ONNX (docs/shapes.md)"
"""What Graft itself does otherwise, stated in its documentation."""


def quirk_of(node: onnx.NodeProto) -> Quirk | None:
    """Return the row of the table that a node falls under."""
    attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    return next((one for one in QUIRKS if one.op_type == node.op_type and one.of(attributes)), None)
