"""The operands of layers: tensors of bytes and constants as integers, or why they are none."""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from dataclasses import dataclass
from enum import Enum

import numpy as np
import onnx_ir as ir

from graft.core.passes.integer.quantized_tensors import RANGES, Quantization, dequantized
from graft.core.reject import Reject
from graft.core.rewriting.node_rewrite import constant_of, static_shape
from graft.plugins.accelerator.frontend.layers import Activation, Array

UNSIGNED = 128
"""What is subtracted from unsigned bytes, and from their zero points."""
MOST_WEIGHT = 255
"""The largest difference of two bytes of a type."""
MOST_SUM = 2**31 - 1


class Refusal(Exception):
    """Why a node is no layer."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.reject = Reject(code, text)


@dataclass(frozen=True, slots=True)
class Scope:
    """What tensors are called, and those of three axes, by these names, that are [batch, channels, length]."""

    name: Callable[[ir.Value], str]
    sequences: Container[str] = ()

    def is_sequence(self, value: ir.Value) -> bool:
        """Whether a tensor is known to have its channels behind the batch."""
        return self.name(value) in self.sequences


class Form(Enum):
    """How the axes of a tensor are seen: channels behind the batch, or last; any form has them last below four axes."""

    ANY = 0
    CHANNELS = 1
    MATRIX = 2


def shift(dtype: ir.DataType | None) -> int:
    """Return what is subtracted from bytes of a type, so that they are signed."""
    return UNSIGNED if dtype is ir.DataType.UINT8 else 0


def per_tensor(found: Quantization | None, what: str) -> Quantization:
    """Return a meaning that is known and the same for the whole tensor; raise Refusal for another one."""
    if found is None:
        raise Refusal("constant-required", f"scale or zero point of {what} is no constant of a supported type")
    if not found.per_tensor:
        raise Refusal("attribute", f"{what} has a scale for each channel; one for the tensor is needed")
    return found


def shape_of(value: ir.Value) -> tuple[int, ...]:
    """Return the extents of a tensor, none of which is a symbol or zero; raise Refusal where one is."""
    shape = static_shape(value)
    if shape is None:
        raise Refusal("dynamic-shape", f"the shape of '{value.name}' is not known at compile time")
    if not all(shape):
        raise Refusal("shape", f"'{value.name}' has no elements")
    return shape


def view_of(shape: tuple[int, ...], form: Form) -> tuple[int, int, int, int]:
    """Return batch, channels, height and width; the last axis of three with channels is the height.

    Raise Refusal for another number of axes.
    """
    if form is not Form.MATRIX and len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    if form is Form.CHANNELS and len(shape) == 3:
        return shape[0], shape[1], shape[2], 1
    if len(shape) < 2 or len(shape) > 4 or form is Form.CHANNELS:
        needed = "3 or 4" if form is Form.CHANNELS else "2 to 4"
        raise Refusal("rank", f"a tensor has {len(shape)} axes, and {needed} are supported")
    return math.prod(shape[:-2]), shape[-1], shape[-2], 1


def activation_of(value: ir.Value, meaning: Quantization, scope: Scope, form: Form = Form.ANY) -> Activation:
    """Return a tensor of bytes that means numbers."""
    found = shape_of(value)
    batch, channels, height, width = view_of(found, form)
    is_sequence = form is Form.CHANNELS and len(found) == 3 and height > 1
    scale, zero = float(meaning.factor), meaning.point - shift(value.dtype)
    return Activation(scope.name(value), channels, height, width, batch, scale, zero, is_sequence)


def operand_of(value: ir.Value | None, scope: Scope, form: Form = Form.ANY) -> Activation:
    """Return the bytes that an operand is dequantised from; raise Refusal where there are none."""
    found = dequantized(value)
    if found is None or value is None:
        raise Refusal("dtype", f"an operand is not dequantised from bytes: {'absent' if value is None else value.name}")
    if found[0].dtype not in RANGES:
        raise Refusal("dtype", f"'{found[0].name}' is no tensor of bytes")
    return activation_of(found[0], per_tensor(found[1], f"'{found[0].name}'"), scope, form)


def weights_of(found: tuple[ir.Value, Quantization] | None, axis: int) -> tuple[Array, Array]:
    """Return constant weights less their zero points, the output channels first, and their scales.

    Raise Refusal where they are computed, or of a type or with scales that the machine has not.
    """
    array = None if found is None else constant_of(found[0])
    if found is None or array is None:
        raise Refusal("constant-required", "the weights are computed at run time")
    if found[0].dtype not in RANGES:
        raise Refusal("dtype", f"the weights are {found[0].dtype}, and bytes are multiplied")
    meaning = found[1]
    if not meaning.per_tensor and meaning.axis % array.ndim != axis % array.ndim:
        raise Refusal("attribute", f"the weights have scales along axis {meaning.axis}, not for each output channel")
    array = np.moveaxis(array.astype(np.int16), axis, 0)
    if meaning.zero.any():
        array = array - meaning.zero.reshape(-1, *[1] * (array.ndim - 1)).astype(np.int16)
    return array, meaning.scale.reshape(-1)


def bias_of(value: ir.Value | None, channels: int, scale: Array) -> Array:
    """Return a bias as integers of the sums' scale; what is not whole is refused."""
    if value is None:
        return np.zeros(channels, np.int32)
    found, scale = dequantized(value), np.broadcast_to(scale, channels)
    array = constant_of(value if found is None else found[0])
    if array is None or array.size not in (1, channels):
        raise Refusal("constant-required", "the bias is no constant of one number for each output channel")
    whole = array.reshape(-1)
    if found is not None:
        same = np.allclose(found[1].scale.reshape(-1), scale, rtol=1e-5, atol=0) and not found[1].zero.any()
        if same and found[0].dtype is ir.DataType.INT32:
            return np.broadcast_to(whole, channels).astype(np.int32)
        whole = ((whole - found[1].zero) * found[1].scale).reshape(-1)
    exact = np.broadcast_to(whole.astype(np.float64), channels) / scale.astype(np.float64)
    if not np.array_equal(exact, np.rint(exact)) or np.abs(exact).max() >= 2**31:
        raise Refusal("accuracy", "the bias is no whole multiple of the product of the operands' scales")
    return exact.astype(np.int32)


def check_sums(weights: Array) -> None:
    """Refuse sums that could leave 32 bits."""
    if weights[0].size * MOST_WEIGHT * MOST_WEIGHT <= MOST_SUM:
        return
    most = int(np.abs(weights).reshape(len(weights), -1).sum(axis=1, dtype=np.int64).max()) * MOST_WEIGHT
    if most > MOST_SUM:
        raise Refusal("size", f"sums of products may reach {most}, and accumulators hold {MOST_SUM}")
