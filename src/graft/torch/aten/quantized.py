"""Rows of operators on quantised tensors: those of PT2E (``quantized_decomposed``), `dequantized`, integer products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (registers the operators)

from graft.torch.aten.builder import EIGHTHS, Builder, Extent, Tensor, axis_of, numbers, require

aten, decomposed = torch.ops.aten, torch.ops.quantized_decomposed
CODES = (torch.int8, torch.uint8)
"""What activations are quantised as."""
NARROW = (*CODES, *EIGHTHS)
"""What weights are stored as."""


def dequantized(x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None = None) -> torch.Tensor:
    """Return ``(x - zero) * scale`` as float32; each has an extent of ``x`` or 1 on each axis, zero the type of ``x``.

    It stands in FX graphs for what torchao's tensors decompose into (`graft.torch.quantized`).
    """
    wide = x.to(torch.float32)
    return (wide if zero is None else wide - zero.to(torch.float32)) * scale


def _dequantized(b: Builder, out: Any, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    shared = [axis for axis in range(x.rank) if scale.extents[axis] != x.extents[axis]]
    own = [axis for axis in range(x.rank) if axis not in shared and x.extents[axis] != 1]
    layout: dict[str, Any] = {}
    extents: list[Extent] = []
    if len(own) == 1:
        layout, extents = {"axis": own[0]}, [x.extents[own[0]]]
    elif own:
        require(shared == [x.rank - 1] and x.rank == 3, "scales that vary along several axes")
        return b.reshaped(_in_blocks(b, x, scale, zero), x.extents)
    points = None if zero is None else b.reshaped(b.expanded(zero, scale.extents), extents)
    return b.op("DequantizeLinear", x, b.reshaped(scale, extents), points, dtype=torch.float32, **layout)


def _in_blocks(b: Builder, x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """Return a matrix of numbers that came as [rows, blocks, numbers], each block with a scale."""
    rows, blocks, size = numbers(x.extents, "the extent of a block")
    scales = b.reshaped(scale, [rows, blocks])
    held = [None if one is None else _held(one) for one in (x, zero)]
    if held[0] is not None and (zero is None or held[1] is not None) and all(map(_are_of_4_bits, held)):
        matrix = _of_4_bits(b, held[0].reshape(rows, -1))
        points = None if held[1] is None else _of_4_bits(b, np.broadcast_to(held[1], scale.extents).reshape(rows, -1))
    else:
        matrix = b.reshaped(x, [rows, blocks * size])
        points = None if zero is None else b.reshaped(b.expanded(zero, scale.extents), [rows, blocks])
    return b.op("DequantizeLinear", matrix, scales, points, dtype=torch.float32, axis=1, block_size=size)


def _held(x: Tensor) -> np.ndarray | None:
    """Return the numbers of a constant, None for what is known only at run time."""
    value: ir.Value | None = x.value
    while value is not None and (node := value.producer()) is not None and node.op_type == "Reshape":
        value = node.inputs[0]
    return None if value is None or value.const_value is None else value.const_value.numpy().reshape(x.extents)


def _are_of_4_bits(values: np.ndarray | None) -> bool:
    return values is None or (values.dtype == np.int8 and bool((values >= -8).all() and (values <= 7).all()))


def _of_4_bits(b: Builder, values: np.ndarray) -> Tensor:
    """Return a constant of 4 bits a number, which PyTorch has no type for: torchao holds such numbers as int8."""
    found = b.array(values, torch.int8)
    array = values.astype(ir.DataType.INT4.numpy())
    found.value.type = ir.TensorType(ir.DataType.INT4)
    found.value.const_value = ir.Tensor(array, dtype=ir.DataType.INT4, name=found.value.name)
    return found


# ---- PT2E ----


def _parameters(b: Builder, x: Tensor, scale: Any, zero: Any, dtype: torch.dtype, axes: Sequence[int]) -> Any:
    """Return scales and zero points as ONNX takes them: one, or one for each index of an axis."""
    require(dtype in CODES, f"numbers quantised as {str(dtype).removeprefix('torch.')}")
    require(x.dtype in (torch.float32, *CODES), "quantised numbers that are not of float32")
    extents = [x.extents[axis] for axis in axes]
    scales = b.operand(scale, torch.float32)
    points = None if zero is None else b.operand(zero, dtype)
    return [one if one is None or one.rank == len(extents) else b.reshaped(one, extents) for one in (scales, points)]


def _quantize(b: Builder, x: Tensor, parameters: Any, low: int, high: int, dtype: torch.dtype, axis: int) -> Tensor:
    limits = torch.iinfo(dtype)
    require(low >= limits.min and high <= limits.max, "limits beyond those of the type")
    found = b.op("QuantizeLinear", x, *parameters, dtype=dtype, axis=axis)
    if (low, high) == (limits.min, limits.max):
        return found
    return b.op("Clip", found, b.constant(low, dtype), b.constant(high, dtype))


def quantize_per_tensor(
    b: Builder, out: Any, x: Tensor, scale: Any, zero: Any, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    return _quantize(b, x, _parameters(b, x, scale, zero, dtype, []), low, high, dtype, 0)


def quantize_per_channel(
    b: Builder, out: Any, x: Tensor, scale: Any, zero: Any, axis: int, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    axis = axis_of(axis, x.rank)
    return _quantize(b, x, _parameters(b, x, scale, zero, dtype, [axis]), low, high, dtype, axis)


def dequantize_per_tensor(
    b: Builder, out: Any, x: Tensor, scale: Any, zero: Any, low: int, high: int, dtype: torch.dtype,
    *, out_dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    found = b.op("DequantizeLinear", x, *_parameters(b, x, scale, zero, dtype, []), dtype=torch.float32)
    return b.cast(found, out.dtype)


def dequantize_per_channel(
    b: Builder, out: Any, x: Tensor, scale: Any, zero: Any, axis: int, low: int, high: int, dtype: torch.dtype,
    *, out_dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    axis = axis_of(axis, x.rank)
    parameters = _parameters(b, x, scale, zero, dtype, [axis])
    return b.cast(b.op("DequantizeLinear", x, *parameters, dtype=torch.float32, axis=axis), out.dtype)


# ---- torchao ----


def _for_all_elements(b: Builder, x: Tensor, scale: Tensor) -> Tensor:
    """Return a scale with an extent of the elements or 1 on each axis."""
    if all(one == 1 for one in scale.extents):
        return b.reshaped(scale, [1] * x.rank)
    pairs = zip(scale.extents, x.extents, strict=False)
    require(scale.rank == x.rank and all(one in (1, extent) for one, extent in pairs), "scales of blocks")
    return scale


def quantize_float8(b: Builder, out: Any, x: Tensor, scale: Tensor, *_: Any, **named: Any) -> Tensor:
    require(scale.dtype == torch.float32, "scales that are not of float32")
    largest = b.constant(torch.finfo(out.dtype).max, torch.float32)
    found = b.op("Div", b.cast(x, torch.float32), _for_all_elements(b, x, scale))
    return b.cast(b.op("Min", b.op("Max", found, b.op("Neg", largest)), largest), out.dtype)


def dequantize_float8(b: Builder, out: Any, x: Tensor, scale: Tensor, *_: Any, **named: Any) -> Tensor:
    require(scale.dtype == torch.float32, "scales that are not of float32")
    return b.cast(_dequantized(b, out, x, _for_all_elements(b, x, scale)), out.dtype)


def integer_product(b: Builder, out: Any, x: Tensor, y: Tensor) -> Tensor:
    return b.op("MatMulInteger", x, y, dtype=torch.int32)


ROWS: dict[Any, Callable[..., Any]] = {
    dequantized: _dequantized,
    aten._int_mm.default: integer_product,
    decomposed.dequantize_per_channel.default: dequantize_per_channel,
    decomposed.dequantize_per_tensor.default: dequantize_per_tensor,
    decomposed.dequantize_per_tensor.tensor: dequantize_per_tensor,
    decomposed.quantize_per_channel.default: quantize_per_channel,
    decomposed.quantize_per_tensor.default: quantize_per_tensor,
    decomposed.quantize_per_tensor.tensor: quantize_per_tensor,
}
"""Operators by overload."""
ROWS_BY_NAME: dict[str, Callable[..., Any]] = {
    "torchao::dequantize_affine_float8_non_decomposed": dequantize_float8,
    "torchao::quantize_affine_float8_non_decomposed": quantize_float8,
}
"""Operators that a library registers once it is imported."""
