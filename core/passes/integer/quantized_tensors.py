"""What the passes over quantised models share: scales and zero points of a node, and nodes put before another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graft.core.rewriting.node_rewrite import attribute_of, constant_of, is_operator
from graft.core.rewriting.writer import Writer

RANGES = {ir.DataType.UINT8: (0, 255), ir.DataType.INT8: (-128, 127)}
"""The least and the largest number of the types that integer arithmetic is for."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """What a number of a quantised tensor stands for: ``(number - zero) * scale``.

    ``scale`` is float32 and ``zero`` int64, both of one element, or of one for each place along ``axis``.
    """

    scale: np.ndarray
    zero: np.ndarray
    axis: int = 1

    @property
    def per_tensor(self) -> bool:
        """Whether one scale and one zero point hold for all elements."""
        return self.scale.size == 1 and self.zero.size == 1

    @property
    def point(self) -> int:
        """The zero point of the whole tensor."""
        return int(self.zero.reshape(-1)[0])

    @property
    def factor(self) -> np.float32:
        """The scale of the whole tensor."""
        return np.float32(self.scale.reshape(-1)[0])

    def equals(self, other: Quantization) -> bool:
        """Whether both map numbers in the same way to the whole tensor."""
        both = self.per_tensor and other.per_tensor
        return both and self.factor == other.factor and self.point == other.point


def quantization_of(node: ir.Node | None, operator: str) -> Quantization | None:
    """Return scale and zero point of a QuantizeLinear or DequantizeLinear node, where they are constant.

    None for any other node, for blocks, for scales that are not float32, and for integers other than of 8 or 32 bits.
    """
    if node is None or not is_operator(node, operator) or attribute_of(node, "block_size", 0):
        return None
    integer = node.inputs[0] if operator == "DequantizeLinear" else node.outputs[0]
    assert integer is not None, f"'{node.name}' has no input"
    if integer.dtype not in (*RANGES, ir.DataType.INT32):
        return None
    return quantization(node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None, attribute_of(node, "axis", 1))


def quantization(scale: ir.Value | None, zero: ir.Value | None, axis: int) -> Quantization | None:
    """Return the quantisation of a constant float32 scale and a constant zero point (None for 0)."""
    factors, points = constant_of(scale), constant_of(zero)
    if factors is None or factors.dtype != np.float32 or factors.ndim > 1 or (zero is not None and points is None):
        return None
    points = np.zeros(factors.shape, np.int64) if points is None else points.astype(np.int64)
    return Quantization(factors, points, axis)


def dequantized(value: ir.Value | None) -> tuple[ir.Value, Quantization] | None:
    """Return the integers, and what they stand for, of a value that DequantizeLinear computes; else None."""
    node = None if value is None else value.producer()
    found = quantization_of(node, "DequantizeLinear")
    if node is None or found is None or node.inputs[0] is None:
        return None
    return node.inputs[0], found


def activation(value: ir.Value | None) -> tuple[ir.Value, Quantization] | None:
    """Return the integers of 8 bits, with one scale, that a value is dequantised from; else None."""
    found = dequantized(value)
    if found is None or found[0].dtype not in RANGES or not found[1].per_tensor:
        return None
    return found


@dataclass(slots=True)
class Emitter(Writer):
    """Puts nodes over quantised tensors before a node, which they are to replace."""

    def quantize(self, value: ir.Value, scale: float, zero: int, dtype: ir.DataType) -> ir.Value:
        """Return a value of one scale and zero point, quantised."""
        factor = self.constant("scale", np.array(scale, np.float32))
        point = self.constant("zero", np.array(zero, dtype.numpy()))
        return self.emit("QuantizeLinear", [value, factor, point], dtype, value.shape)

    def dequantize(self, value: ir.Value, quantized: Quantization) -> ir.Value:
        """Return what numbers of one scale and zero point stand for."""
        assert value.dtype is not None, f"'{value.name}' has no type"
        factor = self.constant("scale", np.array(quantized.factor, np.float32))
        point = self.constant("zero", np.array(quantized.point, value.dtype.numpy()))
        return self.emit("DequantizeLinear", [value, factor, point], ir.DataType.FLOAT, value.shape)
