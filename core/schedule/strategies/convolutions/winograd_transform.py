"""The three small linear maps of Winograd's convolution F(m x m, 3 x 3), as matrices and as vector arithmetic.

``Y = A^T [(G g G^T) * (B^T d B)] A`` for a piece ``d`` of the input and a window ``g`` of 3 x 3 weights (Lavin and
Gray, "Fast Algorithms for Convolutional Neural Networks", 2016). The matrices come from polynomial interpolation (Toom
and Cook) at 0, at other points, and at infinity. The usual points 0, 1, -1, 2, -2 of F(4 x 4) lose three bits; 3/4 and
3/2 lose one, and their powers are exact in float32.

A window that moves by two pixels meets even pixels with its outer weights and odd ones with the inner one: that is a
convolution with two weights, for which m + 1 products do, and m products by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.statements import multiply_add
from graft.core.tensor_ir.ir import Constant, Expression, Unary

ONE_THREAD = 1 << 18
"""Products of so many multiplications OpenBLAS computes in this thread; larger ones wait for others."""
POINTS: dict[int, dict[int, tuple[float, ...]]] = {1: {2: (1.0, -1.0), 4: (0.75, -0.75, 1.5, -1.5)}, 2: {2: (1.0,)}}
"""The interpolation points other than 0 and infinity, by stride and ``m``: of stride 1 points and their negatives."""
WINDOW = 3
EXACT_TERMS = 64
"""Channels that are added one after the other; fewer than elsewhere, for the way back to pixels enlarges errors."""
MIN_LANES, MIN_CHANNELS = 4, 8
"""With shorter vectors, or sums of fewer channels, the transforms are what takes the time."""


@dataclass(frozen=True, slots=True)
class Transform:
    """F(m x m, 3 x 3): ``outputs`` is ``m``, ``stride`` the pixels by which a window moves: 1 or 2."""

    outputs: int
    stride: int = 1

    @property
    def step(self) -> int:
        """The pixels of the input from one piece to the next."""
        return self.outputs * self.stride

    @property
    def inputs(self) -> int:
        """The extent of a piece of the input, and of its transform."""
        return self.step + WINDOW - self.stride

    @property
    def products(self) -> int:
        """The number of products of a piece and a window, hence of products of matrices."""
        return self.inputs**2

    @property
    def points(self) -> tuple[float, ...]:
        """The finite interpolation points in the order of the matrices' rows."""
        return (0.0, *POINTS[self.stride][self.outputs])

    @property
    def _interpolated(self) -> int:
        """The rows that come from interpolation; behind them stand those of odd pixels."""
        return len(self.points) + 1

    def input_matrix(self) -> np.ndarray:
        """Return ``B^T``, float64[inputs, inputs]: row i holds the polynomial with all points but the i-th as roots."""
        size = self._interpolated
        matrix = np.zeros((self.inputs, self.inputs))
        for row in range(size):
            roots = [point for number, point in enumerate(self.points) if number != row]
            polynomial = np.polynomial.polynomial.polyfromroots(roots)
            matrix[row, : len(polynomial) * self.stride : self.stride] = polynomial
        matrix[size:, 1::2] += np.eye(self.inputs - size, self.inputs // 2)
        return matrix

    def weight_matrix(self) -> np.ndarray:
        """Return ``G``, float64[inputs, 3]: powers of each point over the product of its distances to the others."""
        points, size = self.points, self._interpolated
        matrix = np.zeros((self.inputs, WINDOW))
        for row, point in enumerate(points):
            scale = np.prod([point - other for other in points if other != point])
            powers = range(-(-WINDOW // self.stride))
            matrix[row, :: self.stride] = [point**power / scale for power in powers]
        matrix[size - 1, -1] = 1.0
        matrix[size:, 1] = 1.0
        return matrix

    def output_matrix(self) -> np.ndarray:
        """Return ``A^T``, float64[m, inputs]: powers of each point; infinity counts in the last row only."""
        columns = [[point**power for power in range(self.outputs)] for point in self.points]
        matrix = np.array([*columns, [0.0] * (self.outputs - 1) + [1.0]]).T
        return np.hstack([matrix, np.eye(self.outputs, self.inputs - self._interpolated)])

    def packed_weights(self, weights: np.ndarray, bounds: Sequence[int]) -> np.ndarray:
        """Return ``G g G^T`` of weights[o, c, 3, 3], flat, rounded from float64 to float32.

        For each of the products there are tiles of output channels between ``bounds``, each ``[c, height]``.
        So few elements are transformed at a time that what is float64 stays in the caches.
        """
        matrix = self.weight_matrix()
        square, channels = np.kron(matrix, matrix), weights.shape[1]
        result = np.empty((len(square), weights.shape[0] * channels), np.float32)
        step = ONE_THREAD // square.size
        for low, high in pairwise(bounds):
            tile = weights[low:high].reshape(high - low, channels, WINDOW * WINDOW)
            columns = tile.transpose(2, 1, 0).astype(np.float64).reshape(WINDOW * WINDOW, -1)
            for begin in range(0, columns.shape[1], step):
                part = slice(low * channels + begin, low * channels + min(begin + step, columns.shape[1]))
                result[:, part] = square @ columns[:, begin : begin + step]
        return result.reshape(-1)

    def input_sums(self, values: Sequence[Expression]) -> list[Expression]:
        """Return ``B^T`` times a column of vectors; the rows of a pair of points share even and odd terms."""
        rows = self.input_matrix()
        if self.stride > 1:
            return [_combination(row, values) for row in rows]
        results = [_combination(rows[0], values)]
        for row in range(1, self.inputs - 1, 2):
            even, odd = rows[row].copy(), rows[row].copy()
            even[1::2], odd[0::2] = 0, 0
            scale = odd[np.flatnonzero(odd)[-1]]
            first, second = _combination(even, values), _combination(odd / scale, values)
            results += [_plus(first, second, scale), _plus(first, second, -scale)]
        return [*results, _combination(rows[-1], values)]

    def output_sums(self, values: Sequence[Expression]) -> list[Expression]:
        """Return ``A^T`` times a column of vectors: even powers see sums of pairs, odd ones differences."""
        if self.stride > 1:
            return [_combination(row, values) for row in self.output_matrix()]
        first, *pairs, last = values
        sums = [b.add(left, right) for left, right in zip(pairs[::2], pairs[1::2], strict=True)]
        differences = [b.subtract(left, right) for left, right in zip(pairs[::2], pairs[1::2], strict=True)]
        results: list[Expression] = []
        for power in range(self.outputs):
            terms = differences if power % 2 else sums
            factors = [point**power for point in self.points[1::2]]
            extra = [first] * (power == 0) + [last] * (power == self.outputs - 1)
            results.append(_combination(np.array([*factors, *([1.0] * len(extra))]), [*terms, *extra]))
        return results


def _combination(factors: np.ndarray, values: Sequence[Expression]) -> Expression:
    """Return the sum of ``factor * value`` over factors other than 0; those with factor 1 come first."""
    terms = [(float(factor), value) for factor, value in zip(factors, values, strict=True) if factor]
    terms.sort(key=lambda term: term[0] != 1.0)
    factor, total = terms[0]
    if factor == -1.0:
        total = Unary("neg", total)
    elif factor != 1.0:
        total = b.multiply(total, _splat(factor, total))
    for factor, value in terms[1:]:
        total = _plus(total, value, factor)
    return total


def _plus(total: Expression, value: Expression, factor: float) -> Expression:
    if factor in (1.0, -1.0):
        return b.add(total, value) if factor == 1.0 else b.subtract(total, value)
    return multiply_add(_splat(factor, value), value, total)


def _splat(factor: float, like: Expression) -> Constant:
    return Constant(float(factor), like.type)
