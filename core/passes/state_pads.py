"""Padding that follows from an image's extents, as TensorFlow's exporters leave it, computed by nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from graft.core.operators.definition.table import Trait
from graft.core.rewriting.node_pass import NodePass, Rewriter
from graft.core.rewriting.node_rewrite import attribute_of, has_trait
from graft.core.rewriting.writer import Writer


@dataclass(frozen=True)
class StatePads(NodePass):
    """Write ``auto_pad`` of a convolution with strides, of an image of unknown size, as a Pad by what the extents tell.

    What is padded is ``max((ceil(n / s) - 1) * s + (k - 1) * d + 1 - n, 0)``, the larger half behind, or before with
    SAME_LOWER (ONNX's Conv).
    """

    name: ClassVar[str] = "state-pads"
    infers: ClassVar[bool] = True

    def rewrite(self, node: ir.Node, rewriter: Rewriter) -> bool:
        """Rewrite a node as the class says."""
        found = _window(node)
        image = node.inputs[0] if found is not None else None
        if found is None or image is None or image.shape is None:
            return False
        kernel, upper = found
        write, rank = Writer(node, rewriter.names), len(kernel)
        strides, dilations = (attribute_of(node, name, [1] * rank) for name in ("strides", "dilations"))
        size = write("Shape", image, start=2)
        step = write.ints(*strides)
        up = write("Add", size, write.ints(*(one - 1 for one in strides)))
        last = write("Sub", write("Div", up, step), write.ints(1))  # the number of the last window: -1 if there is none
        reach = write.ints(*((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)))
        lack = write("Sub", write("Add", write("Mul", last, step), reach), size)
        whole = write("Max", lack, write.ints(0))
        half = write("Div", whole, write.ints(2))
        rest = write("Sub", whole, half)
        pads = write.concatenated(*((half, rest) if upper else (rest, half)), axis=0)
        shape, axes = ir.Shape([*image.shape[:2], *[None] * rank]), write.ints(*range(2, 2 + rank))
        padded = write.emit("Pad", [image, pads, _around(node, image, write), axes], image.dtype, shape)
        operands, result = [padded, *node.inputs[1:]], node.outputs[0]
        write.replace(write.again(operands, result.dtype, result.shape, auto_pad="VALID"))
        return True


def _window(node: ir.Node) -> tuple[list[int], bool] | None:
    """Return the extents of the window and whether more is padded behind; None of nodes that stay."""
    mode = attribute_of(node, "auto_pad", "NOTSET")
    is_convolution = has_trait(node, Trait.CONVOLUTION) and node.domain in ("", "ai.onnx")
    if mode not in ("SAME_UPPER", "SAME_LOWER") or not is_convolution:
        return None
    image = node.inputs[0]
    if image is None or image.shape is None or image.dtype is None:
        return None
    if max(attribute_of(node, "strides", [1])) < 2:
        return None
    if all(isinstance(extent, int) for extent in image.shape[2:]):
        return None
    weights = _weights(node, len(image.shape))
    kernel = None if weights is None or weights.shape is None else list(weights.shape[2:])
    if kernel is None or not all(isinstance(extent, int) for extent in kernel):
        return None
    return [int(extent) for extent in kernel if isinstance(extent, int)], mode == "SAME_UPPER"


def _weights(node: ir.Node, rank: int) -> ir.Value | None:
    """Return the operand of an image's rank beside the image."""
    others = (value for value in node.inputs[1:] if value is not None and value.shape is not None)
    return next((value for value in others if len(value.shape or ()) == rank), None)


def _around(node: ir.Node, image: ir.Value, write: Writer) -> ir.Value | None:
    """Return what lies around an image: the zero point of one of integers."""
    is_float = image.dtype is not None and image.dtype.is_floating_point()
    point = node.inputs[2] if not is_float and len(node.inputs) > 2 else None
    return None if point is None else write("Reshape", point, write.ints())
