"""Layers of integers, as regions are brought to and as the code generator takes them.

Every number on the accelerator is a signed byte. Unsigned ones are shifted by 128 where they enter and leave, with
their zero points, and limits likewise. Scales are numbers of float32; where a layer says ``a * b`` or ``a / b`` of
floats, both are float32 and so is the result, rounded to nearest even, in the order in which it is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
LOWEST, HIGHEST = -128, 127


@dataclass(frozen=True, slots=True)
class Activation:
    """A tensor by name, [batch, channels, height, width]; a number ``q`` means ``scale * (q - zero_point)``.

    A matrix [batch, m, k] has ``k`` channels and the height ``m``; a sequence [batch, channels, length] has its length
    as height, and says so. Who makes a tensor and who reads it mean the same by its name, so that all its fields are
    equal everywhere.
    """

    name: str
    channels: int
    height: int = 1
    width: int = 1
    batch: int = 1
    scale: float = 1.0
    zero_point: int = 0
    is_sequence: bool = False

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The extents."""
        return self.batch, self.channels, self.height, self.width


@dataclass(frozen=True, slots=True, eq=False)
class Requantize:
    """From sums of 32 bits to bytes, by output channel or, with one number, alike for all.

    ``clip(round(float(sum + bias) * multiplier / divisor) + zero_point, lower, upper)``, where round is half to even
    and the zero point is the output's. ``wide`` is what QLinearConv and QLinearMatMul define:
    ``round(double(sum + bias) * double(multiplier) + zero_point)``, and there is no divisor. Relu and Clip behind are
    ``lower`` and ``upper``.
    """

    bias: Array = field(default_factory=lambda: np.zeros(1, np.int32))
    multiplier: Array = field(default_factory=lambda: np.ones(1, np.float32))
    divisor: float = 1.0
    wide: bool = False
    lower: int = LOWEST
    upper: int = HIGHEST


@dataclass(frozen=True, slots=True, eq=False)
class Convolution:
    """The sums of (x - input.zero_point) * w, requantised; what is padded is the zero point.

    ``weights`` are [output, input / groups, row, column], less their zero points: each from -255 to 255. Pads are top,
    left, bottom, right.
    """

    name: str
    input: Activation
    output: Activation
    weights: Array
    requantize: Requantize
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)
    groups: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """The sums of (left - left.zero_point) * (right - right.zero_point) over k, requantised.

    ``left`` is [batch, m, k] and ``output`` [batch, m, n]. A constant ``right`` is [k, n], less its zero points, and
    the same for the whole batch; an activation is [batch, k, n], as its height and its channels.
    """

    name: str
    left: Activation
    right: Activation | Array
    output: Activation
    requantize: Requantize


@dataclass(frozen=True, slots=True)
class Addition:
    """``round((float(l - zl) * sl + float(r - zr) * sr) / s) + z``, clipped; scale and zero point are each tensor's."""

    name: str
    left: Activation
    right: Activation
    output: Activation
    lower: int = LOWEST
    upper: int = HIGHEST


class PoolingKind(StrEnum):
    """What of a window is taken."""

    MAX = "max"
    AVERAGE = "average"


@dataclass(frozen=True, slots=True)
class Pooling:
    """The largest number, or the mean, of each window; the output's extents say how many windows there are.

    A maximum ``q`` becomes ``round(float(q - zero_point) * scale / output.scale) + output.zero_point``. A mean is
    ``float(sum of (q - zero_point)) * (scale / float(count))``, quantised likewise; ``count`` is the number of places
    inside the input, or, with ``counts_padding``, inside the input and its pads. A global mean has the input's extents
    as its kernel.
    """

    name: str
    kind: PoolingKind
    input: Activation
    output: Activation
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)
    counts_padding: bool = False
    lower: int = LOWEST
    upper: int = HIGHEST


@dataclass(frozen=True, slots=True)
class Concatenation:
    """Inputs behind each other along the channels, each requantised as a maximum of ``Pooling`` is."""

    name: str
    inputs: tuple[Activation, ...]
    output: Activation
    lower: int = LOWEST
    upper: int = HIGHEST


@dataclass(frozen=True, slots=True)
class Requantization:
    """One tensor with other scales, zero points or limits, as a maximum of ``Pooling``: Relu or Clip by themselves."""

    name: str
    input: Activation
    output: Activation
    lower: int = LOWEST
    upper: int = HIGHEST


Layer: TypeAlias = Convolution | Product | Addition | Pooling | Concatenation | Requantization


def inputs_of(layer: Layer) -> tuple[Activation, ...]:
    """Return the tensors that a layer reads, constants aside."""
    match layer:
        case Product(left=left, right=Activation() as right):
            return left, right
        case Product(left=left):
            return (left,)
        case Addition(left=left, right=right):
            return left, right
        case Concatenation(inputs=inputs):
            return inputs
        case _:
            return (layer.input,)


def with_meaning(layer: Layer, scale: float, zero_point: int) -> Layer:
    """Return a layer that moves bytes, all of which mean the same."""

    def meant(one: Activation) -> Activation:
        return replace(one, scale=scale, zero_point=zero_point)

    match layer:
        case Pooling():
            return replace(layer, input=meant(layer.input), output=meant(layer.output))
        case Concatenation():
            return replace(layer, inputs=tuple(map(meant, layer.inputs)), output=meant(layer.output))
        case _:
            raise AssertionError(layer)


# ---- What lies in DRAM --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Packing:
    """How a tensor [batch, channels, height, width] lies in DRAM: blocks of channels, of patches, or of weights.

    A place of the packed tensor is [image, block, row, column, lane], lanes fastest. Channel ``block * lanes + lane``
    of it is ``(i * kernel[1] + j) * channels + c``, and holds ``x[image, c, row * strides[0] + i * dilations[0] -
    pads[0], column * strides[1] + j * dilations[1] - pads[1]]``, or ``fill`` where there is none, inside or behind the
    last channel. With a kernel of 1 x 1, as every output has it, that is blocks of channels.

    ``transposed`` is the right-hand side of a product, [k, n] as height and channels, whose blocks are those of
    weights: [image, block of n, block of k, lane of n, lane of k]; there are ``columns`` x ``rows`` blocks.
    """

    tensor: Activation
    lanes: int
    rows: int
    columns: int
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)
    dilations: tuple[int, int] = (1, 1)
    fill: int = 0
    transposed: bool = False

    @property
    def blocks(self) -> int:
        """Blocks of packed channels."""
        return -(-self.tensor.channels * self.kernel[0] * self.kernel[1] // self.lanes)

    @property
    def bytes(self) -> int:
        """The size in DRAM."""
        inner = self.lanes * self.lanes if self.transposed else self.blocks * self.lanes
        return self.tensor.batch * self.rows * self.columns * inner


def packed(x: Array, packing: Packing) -> bytes:
    """Return the bytes of a tensor of int8 [batch, channels, height, width] as it lies in DRAM."""
    lanes, fill = packing.lanes, np.int8(packing.fill)
    if packing.transposed:
        wide = np.full((len(x), packing.columns * lanes, packing.rows * lanes), fill, np.int8)
        wide[:, : x.shape[1], : x.shape[2]] = x[..., 0]
        blocks = wide.reshape(len(x), packing.columns, lanes, packing.rows, lanes)
        return blocks.transpose(0, 1, 3, 2, 4).tobytes()
    found = np.full((len(x), packing.blocks * lanes, packing.rows, packing.columns), fill, np.int8)
    channels = x.shape[1]
    for number in range(packing.kernel[0] * packing.kernel[1]):
        tap = divmod(number, packing.kernel[1])
        (to_rows, rows), (to_columns, columns) = (
            _inside(packing, axis, tap[axis], (packing.rows, packing.columns)[axis]) for axis in (0, 1)
        )
        target = found[:, number * channels : (number + 1) * channels]
        target[:, :, to_rows, to_columns] = x[:, :, rows, columns]
    blocks = found.reshape(len(x), -1, lanes, packing.rows, packing.columns)
    return blocks.transpose(0, 1, 3, 4, 2).tobytes()


def _inside(packing: Packing, axis: int, tap: int, extent: int) -> tuple[slice, slice]:
    """Return the packed places of a tap that lie inside the tensor, and where they come from."""
    size, stride = packing.tensor.shape[2 + axis], packing.strides[axis]
    shift = tap * packing.dilations[axis] - packing.pads[axis]
    first = max(0, -(shift // stride))
    last = min(extent, -(-(size - shift) // stride))
    if last <= first:
        return slice(0, 0), slice(0, 0)
    start = first * stride + shift
    return slice(first, last), slice(start, start + (last - first - 1) * stride + 1, stride)


def unpacked(data: bytes, packing: Packing) -> Array:
    """Return int8 [batch, channels, height, width] of bytes that are packed in blocks of channels."""
    tensor = packing.tensor
    blocks = np.frombuffer(data, np.int8).reshape(tensor.batch, -1, tensor.height, tensor.width, packing.lanes)
    channels = blocks.transpose(0, 1, 4, 2, 3).reshape(tensor.batch, -1, tensor.height, tensor.width)
    return channels[:, : tensor.channels]
