"""Scales and zero points: from ranges, and of whole tensors of weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from graft.errors import RecipeError
from graft.quantization.grids import Grid
from graft.quantization.recipe import Scaling

SHARES = np.linspace(1.0, 0.4, 25)
"""The shares of a range that are tried for the least square error."""
LARGEST = float(np.finfo(np.float32).max)
SMALLEST = float(np.finfo(np.float32).tiny)


def parameters(low: np.ndarray, high: np.ndarray, grid: Grid, scaling: Scaling) -> tuple[np.ndarray, np.ndarray]:
    """Return the scales (float32) and zero points (float32) that map ranges to a grid; each range is widened to hold 0.

    A range of zeros alone has the least scale of the others, or 1: whatever is scaled by it stays zero. Scales that are
    powers of two are rounded up.
    """
    symmetric = scaling.symmetric
    low, high = np.minimum(low, 0, dtype=np.float64), np.maximum(high, 0, dtype=np.float64)
    if symmetric or grid.is_float:
        scale = np.maximum(-low, high) / (grid.high - grid.middle)
    else:
        scale = (high - low) / (grid.high - grid.low)
    known = scale[scale > 0]
    scale = np.where(scale > 0, np.maximum(scale, SMALLEST), known.min() if known.size else 1.0).astype(np.float32)
    if scaling.scale == "power-of-two":
        fraction, exponent = np.frexp(scale)
        scale = np.ldexp(np.float32(1), exponent - (fraction == 0.5)).astype(np.float32)
    if symmetric or grid.is_float:
        return scale, np.full(scale.shape, grid.middle, np.float32)
    return scale, np.clip(np.rint(grid.low - low / scale), grid.low, grid.high).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Layout:
    """Which elements of a tensor share a scale: all (``axis`` None), a slice along an axis, or a block along it.

    Work is done on rows: one row for each scale. The last block of an axis that does not divide is filled up with
    its last element.
    """

    shape: tuple[int, ...]
    axis: int | None = None
    block: int = 0

    @property
    def blocks(self) -> int:
        """How many blocks there are along the axis."""
        assert self.axis is not None
        return math.ceil(self.shape[self.axis] / self.block)

    @property
    def scale_shape(self) -> tuple[int, ...]:
        """The shape that ONNX gives the scales."""
        if self.axis is None:
            return ()
        if not self.block:
            return (self.shape[self.axis],)
        return tuple(self.blocks if axis == self.axis else extent for axis, extent in enumerate(self.shape))

    def rows(self, array: np.ndarray) -> np.ndarray:
        """Return the elements with a row for each scale."""
        if self.axis is None:
            return array.reshape(1, -1)
        if not self.block:
            return np.moveaxis(array, self.axis, 0).reshape(self.shape[self.axis], -1)
        missing = self.blocks * self.block - self.shape[self.axis]
        pads = [(0, missing if axis == self.axis else 0) for axis in range(array.ndim)]
        last = np.moveaxis(np.pad(array, pads, "edge") if missing else array, self.axis, -1)
        return last.reshape(-1, self.block)

    def per_element(self, scales: np.ndarray) -> np.ndarray:
        """Return what a scale per row is for each element, in a shape that broadcasts with the tensor's."""
        return self.spread(self.as_onnx(scales))

    def spread(self, scales: np.ndarray) -> np.ndarray:
        """Return what scales in ONNX's shape are for each element, in a shape that broadcasts with the tensor's."""
        if self.axis is None:
            return scales.reshape(())
        if not self.block:
            return scales.reshape([-1 if axis == self.axis else 1 for axis in range(len(self.shape))])
        return np.take(np.repeat(scales, self.block, self.axis), range(self.shape[self.axis]), self.axis)

    def as_onnx(self, scales: np.ndarray) -> np.ndarray:
        """Return a scale per row in the shape that ONNX gives them."""
        if self.axis is None or not self.block:
            return scales.reshape(self.scale_shape)
        others = [extent for axis, extent in enumerate(self.shape) if axis != self.axis]
        return np.moveaxis(scales.reshape(*others, self.blocks), -1, self.axis)


@dataclass(frozen=True, slots=True)
class Scaled:
    """A tensor on a grid: codes (float32, of the tensor's shape), with a scale and a zero point for each row."""

    grid: Grid
    layout: Layout
    codes: np.ndarray
    scale: np.ndarray
    zero: np.ndarray

    @property
    def bits_of_scale(self) -> int:
        """The bits that a scale takes: that of a power of two is an exponent."""
        return 8 if (np.frexp(self.scale)[0] == 0.5).all() else 32

    @property
    def stored_bits(self) -> int:
        """The bits of all codes, scales and zero points."""
        of_group = self.bits_of_scale + (self.grid.bits if self.zero.any() else 0)
        return self.codes.size * self.grid.bits + self.scale.size * of_group

    @property
    def numbers(self) -> np.ndarray:
        """What the codes stand for, as float32."""
        scale, zero = self.layout.per_element(self.scale), self.layout.per_element(self.zero)
        numbers: np.ndarray = (self.codes - zero) * scale
        return numbers


def chosen_scales(weights: np.ndarray, layout: Layout, scaling: Scaling, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Return scale and zero point for each row of a tensor, by the calibration of a recipe."""
    rows = layout.rows(weights)
    low, high = rows.min(axis=1), rows.max(axis=1)
    if scaling.calibration in ("percentile", "entropy"):
        size = np.percentile(np.abs(rows), scaling.percentile, axis=1)
        low, high = np.maximum(low, -size), np.minimum(high, size)
    best = parameters(low, high, grid, scaling)
    if scaling.calibration != "mse":
        return best
    least = _square_error(rows, *best, grid)
    for share in SHARES[1:]:
        scale, zero = parameters(low * share, high * share, grid, scaling)
        error = _square_error(rows, scale, zero, grid)
        better = error < least
        best = np.where(better, scale, best[0]), np.where(better, zero, best[1])
        least = np.minimum(error, least)
    return best


def _square_error(rows: np.ndarray, scale: np.ndarray, zero: np.ndarray, grid: Grid) -> np.ndarray:
    scale, zero = scale[:, np.newaxis], zero[:, np.newaxis]
    error = (grid.codes(rows / scale, zero) - zero) * scale - rows
    squares: np.ndarray = np.einsum("ij,ij->i", error, error)
    return squares


def not_finite(name: str) -> RecipeError:
    """Return the error for weights that hold NaN or infinity."""
    return RecipeError(f"weights '{name}' hold NaN or infinity, which no scale maps to numbers; keep their node")


def scaled(weights: np.ndarray, layout: Layout, scaling: Scaling, grid: Grid, name: str) -> Scaled:
    """Return weights on a grid, each rounded by itself; raise RecipeError if they are not finite."""
    if not np.isfinite(weights).all():
        raise not_finite(name)
    scale, zero = chosen_scales(weights, layout, scaling, grid)
    places = weights / layout.per_element(scale)
    point = layout.per_element(zero)
    match scaling.rounding:
        case "zero":
            codes = np.clip(grid.toward_zero(places) + point, grid.low, grid.high)
        case "stochastic":
            codes = grid.stochastic(places + point, scaling.seed, name)
        case _:
            codes = grid.codes(places, point)
    return Scaled(grid, layout, codes, scale, zero)
