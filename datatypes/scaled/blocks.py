"""Arrays of scaled types: numbers to blocks of elements with shared scales, and back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graft.core.tensor_ir.scalar_math import Value
from graft.datatypes.formats import evaluate
from graft.datatypes.philox import draw
from graft.datatypes.rounding import ROUNDINGS, Rounding, to_bits
from graft.datatypes.scaled.scaled_type import ScaledType, scaled_type
from graft.datatypes.scaled.shared_scale import scaled_element, shared_scale, tensor_scale_of
from graft.errors import DatatypeError
from graft.runtime.arguments import ARRAY, COUNTER, NUMBER, WHOLE, either, instance, optional, takes

TYPE = instance(ScaledType, str, wanted='a scaled type or its name, as in "mxfp4"')


@dataclass(frozen=True, eq=False)
class ScaledArray:
    """Elements in the order and shape of the numbers, and scales, of which ``axis`` has one for each block.

    Both are storage bits of their formats. The last block of an axis may be short. Without ``axis`` there is one scale.
    """

    type: ScaledType
    elements: np.ndarray
    scales: np.ndarray
    axis: int | None
    tensor_scale: float = 1.0

    def spread(self, scales: np.ndarray) -> np.ndarray:
        """Return what there is for each block as what there is for each element."""
        return _spread(scales, self.elements.shape, self.axis, self.type.block)

    def element_numbers(self) -> np.ndarray:
        """Return the elements as numbers (float64), not scaled."""
        return self.type.element_format.to_numbers(self.elements)

    def scale_numbers(self) -> np.ndarray:
        """Return the scales as numbers (float64), that of the tensor not among them."""
        return self.type.scale_format.to_numbers(self.scales)


@takes(
    numbers=ARRAY,
    type=TYPE,
    axis=optional(WHOLE),
    rounding=either(*ROUNDINGS),
    seed=COUNTER,
    scales=optional(ARRAY),
    tensor_scale=optional(NUMBER),
)
def encode_scaled(
    numbers: np.ndarray,
    type: ScaledType | str,
    axis: int | None = -1,
    *,
    rounding: Rounding = "nearest",
    seed: int = 0,
    scales: np.ndarray | None = None,
    tensor_scale: float | None = None,
) -> ScaledArray:
    """Return floats of any shape in a scaled type, with blocks along an axis; None is one block of everything.

    An element is the number divided by its scale, rounded once by ``rounding`` (`graft.datatypes.encode`), saturating;
    an element under a scale of 0 is 0. ``scales`` (numbers, rounded to the scale's format) and ``tensor_scale`` are
    those of the type's rule unless given. Raises DatatypeError for an axis that there is none, blocks without an axis,
    and scales of another shape than blocks have.
    """
    type = scaled_type(type) if isinstance(type, str) else type
    numbers = np.asarray(numbers).astype(np.float64, copy=False)
    axis = _axis(type, axis, numbers.ndim)
    whole = tensor_scale_of(type, numbers) if tensor_scale is None else float(np.float32(tensor_scale))
    if not whole > 0.0:
        raise DatatypeError(f"the scale of a tensor is a positive float32, not {tensor_scale}")
    blocks = _largest_of_blocks(np.abs(numbers), axis, type.block)
    if scales is None:
        codes = evaluate(lambda largest: shared_scale(type, largest, largest.constant(whole)), blocks)
    elif np.shape(scales) == blocks.shape:
        codes = to_bits(type.scale_format, np.asarray(scales), "nearest", saturate=True)
    else:
        raise DatatypeError(f"blocks have scales of shape {blocks.shape}; these have {np.shape(scales)}")

    def element(number: Value, scale: Value, place: Value | None = None) -> Value:
        random = None if place is None else draw(place, seed)
        return scaled_element(type, number, scale, number.constant(whole), rounding, random)

    operands = [numbers, _spread(codes, numbers.shape, axis, type.block)]
    if rounding == "stochastic":
        operands.append(np.arange(numbers.size, dtype=np.uint64).reshape(numbers.shape))
    elements = evaluate(element, *operands)
    return ScaledArray(type, elements, codes, axis, whole)


@takes(array=instance(ScaledArray, wanted="a ScaledArray, as encode_scaled gives it"))
def decode_scaled(array: ScaledArray) -> np.ndarray:
    """Return the numbers (float64) that an array of a scaled type stands for."""
    return np.asarray(array.element_numbers() * array.spread(array.scale_numbers() * array.tensor_scale))


def _axis(type: ScaledType, axis: int | None, rank: int) -> int | None:
    if axis is None:
        if type.block is not None:
            raise DatatypeError(f"blocks of {type.block} numbers lie along an axis; give one")
        return None
    if not -rank <= axis < rank:
        raise DatatypeError(f"axis {axis} is out of range for rank {rank}", axis=axis)
    return axis % rank


def _largest_of_blocks(sizes: np.ndarray, axis: int | None, block: int | None) -> np.ndarray:
    """Return the largest of each block, or NaN; a block of no number has 0."""
    if axis is None or block is None or not sizes.shape[axis]:
        return np.asarray(np.max(sizes, axis=axis, keepdims=True, initial=0.0))
    return np.asarray(np.maximum.reduceat(sizes, np.arange(0, sizes.shape[axis], block), axis=axis))


def _spread(values: np.ndarray, shape: tuple[int, ...], axis: int | None, block: int | None) -> np.ndarray:
    if axis is not None and block is not None:
        values = np.repeat(values, block, axis=axis).take(range(shape[axis]), axis=axis)
    return np.broadcast_to(values, shape)
