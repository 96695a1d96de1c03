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


QUIRKS = (
    Quirk("LinearAttention", RUNTIME, "of batches that differ, which ONNX rules out, onnx.reference computes otherwise "
          "than the function by which ONNX defines the operator"),
    Quirk("MaxPool", REFERENCE, "ONNX Runtime makes fewer windows of SAME pads and dilations than ceil(size / stride)",
          lambda found: same_padded(found) and "dilations" in found),
)  # fmt: skip


UNDEMANDED = {
    "Attention": "ONNX says that batches are the same: onnx.reference broadcasts keys of one, ONNX Runtime refuses",
}
"""Operators that demand sizes which neither `onnx.reference` nor ONNX Runtime looks at: Graft refuses by name."""


def quirk_of(node: onnx.NodeProto) -> Quirk | None:
    """Return the row of the table that a node falls under."""
    attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    return next((one for one in QUIRKS if one.op_type == node.op_type and one.of(attributes)), None)
