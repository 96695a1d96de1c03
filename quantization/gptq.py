"""Rounding of weights by what they are multiplied with: GPTQ (Frantar et al., arXiv:2210.17323).

The weights of a term are rounded for all channels at one time; what that changes in the product is made good by the
terms that are not rounded yet, as far as they see the same inputs. Terms of large inputs come first.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graft.quantization.grids import Grid
from graft.quantization.matrices import as_matrices, as_weights, inputs_of
from graft.quantization.scales import Scaled
from graft.quantization.sites import Product

BLOCK = 128
"""Terms after which the others are changed, by one matrix product."""
TOGETHER = 1024
"""The positions that are multiplied at a time: sums of large matrices take as long as products of few positions."""
SMALL = 64
"""The extent up to which matrices are factorised as a whole; larger ones are by products, which are fast."""
DAMPING = 0.01
"""The share of the mean of the diagonal that is added to it, so that it can be inverted."""


class Gram:
    """The products of a product's inputs with each other, ``[group, term, term]``, summed over positions."""

    def __init__(self, product: Product, shape: tuple[int, ...]) -> None:
        self._product, self._shape = product, shape
        self._waiting: list[np.ndarray] = []
        self._sums: np.ndarray | None = None

    def add(self, array: np.ndarray) -> None:
        """Take in the input of one batch; it is multiplied with others, where they are few positions."""
        self._waiting.append(inputs_of(self._product, array, self._shape).astype(np.float32))
        if sum(one.shape[-1] for one in self._waiting) >= TOGETHER:
            self._multiply()

    @property
    def sums(self) -> np.ndarray | None:
        """The sums, of float64; None before the first batch."""
        if self._waiting:
            self._multiply()
        return self._sums

    def _multiply(self) -> None:
        x = np.concatenate(self._waiting, axis=2)
        self._waiting = []
        sums = np.matmul(x, x.transpose(0, 2, 1))
        if self._sums is None:
            self._sums = sums.astype(np.float64)
        else:
            self._sums += sums


def rounded(product: Product, weights: np.ndarray, scaled: Scaled, gram: np.ndarray) -> Scaled:
    """Return weights on their grid, by the same scales, whose product is near that of before."""
    shape, layout = weights.shape, scaled.layout
    w, scale, zero = (
        as_matrices(product, np.broadcast_to(array, shape).astype(np.float32))
        for array in (weights, layout.per_element(scaled.scale), layout.per_element(scaled.zero))
    )
    order = np.argsort(-np.einsum("gtt->gt", gram), axis=1, kind="stable")
    w, scale, zero = (np.take_along_axis(one, order[:, np.newaxis, :], 2) for one in (w, scale, zero))
    upper = _factor(gram, order).astype(np.float32)
    codes = np.empty_like(w)
    for first in range(0, w.shape[2], BLOCK):
        part = slice(first, min(first + BLOCK, w.shape[2]))
        codes[:, :, part], off = _rounded_block(
            w[:, :, part], scale[:, :, part], zero[:, :, part], upper[:, part, part], scaled.grid
        )
        w[:, :, part.stop :] -= np.matmul(off, upper[:, part, part.stop :])
    back = np.argsort(order, axis=1)[:, np.newaxis, :]
    return replace(scaled, codes=as_weights(product, np.take_along_axis(codes, back, 2), shape))


def _rounded_block(
    w: np.ndarray, scale: np.ndarray, zero: np.ndarray, upper: np.ndarray, grid: Grid
) -> tuple[np.ndarray, np.ndarray]:
    """Round terms one by one, the others of the block making good for each; return codes and what is left to others."""
    codes, off = np.empty_like(w), np.empty_like(w)
    for term in range(w.shape[2]):
        places = w[:, :, term] / scale[:, :, term]
        codes[:, :, term] = grid.nearest(places if grid.is_float else np.rint(places) + zero[:, :, term])
        error = w[:, :, term] - (codes[:, :, term] - zero[:, :, term]) * scale[:, :, term]
        off[:, :, term] = error / upper[:, term, term, np.newaxis]
        w[:, :, term + 1 :] -= off[:, :, term, np.newaxis] * upper[:, term, np.newaxis, term + 1 :]
    return codes, off


def _factor(gram: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the upper Cholesky factor of the inverse, the terms in an order, per group."""
    moved = np.take_along_axis(np.take_along_axis(gram, order[:, :, np.newaxis], 1), order[:, np.newaxis, :], 2)
    diagonal = np.einsum("gtt->gt", moved)
    added = DAMPING * diagonal.mean(axis=1, keepdims=True)
    moved = moved + np.eye(moved.shape[1]) * np.where(added > 0, added, 1)[..., np.newaxis]
    return _factor_of_inverse(moved)


def _factor_of_inverse(matrix: np.ndarray) -> np.ndarray:
    """Return upper matrices whose transposes times themselves are the inverses: of halves, and products between them.

    With ``matrix = R @ R.T``, R upper, the factor is R's inverse; R's part between the halves is ``beside``.
    """
    extent = matrix.shape[-1]
    if extent <= SMALL:
        lower = np.linalg.cholesky(matrix[:, ::-1, ::-1])
        return np.triu(np.linalg.inv(lower[:, ::-1, ::-1]))
    half, found = extent // 2, np.zeros_like(matrix)
    second = _factor_of_inverse(matrix[:, half:, half:])
    beside = np.matmul(matrix[:, :half, half:], second.transpose(0, 2, 1))
    first = _factor_of_inverse(matrix[:, :half, :half] - np.matmul(beside, beside.transpose(0, 2, 1)))
    found[:, :half, :half], found[:, half:, half:] = first, second
    found[:, :half, half:] = -np.matmul(np.matmul(first, beside), second)
    return found
