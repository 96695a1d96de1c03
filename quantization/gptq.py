"""Rounding of weights by what they are multiplied with: GPTQ (Frantar et al., arXiv:2210.17323).

The weights of a term are rounded for all channels at one time; what that changes in the product is made good by the
terms that are not rounded yet, as far as they see the same inputs. Terms of large inputs come first.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graft.quantization.matrices import as_matrices, as_weights, inputs_of
from graft.quantization.scales import Scaled
from graft.quantization.sites import Product

DAMPING = 0.01
"""The share of the mean of the diagonal that is added to it, so that it can be inverted."""


class Gram:
    """The products of a product's inputs with each other, ``[group, term, term]``, summed over positions."""

    def __init__(self, product: Product, shape: tuple[int, ...]) -> None:
        self._product, self._shape = product, shape
        self.sums: np.ndarray | None = None

    def add(self, array: np.ndarray) -> None:
        """Take in the input of one batch."""
        x = inputs_of(self._product, array, self._shape).astype(np.float32, copy=False)
        sums = np.matmul(x, x.transpose(0, 2, 1))
        self.sums = sums.astype(np.float64) if self.sums is None else self.sums + sums


def rounded(product: Product, weights: np.ndarray, scaled: Scaled, gram: np.ndarray) -> Scaled:
    """Return weights on their grid, by the same scales, whose product is near that of before."""
    shape, layout, grid = weights.shape, scaled.layout, scaled.grid
    w, scale, zero = (
        as_matrices(product, np.broadcast_to(array, shape).astype(np.float64))
        for array in (weights, layout.per_element(scaled.scale), layout.per_element(scaled.zero))
    )
    order = np.argsort(-np.einsum("gtt->gt", gram), axis=1, kind="stable")
    w, scale, zero = (np.take_along_axis(one, order[:, np.newaxis, :], 2) for one in (w, scale, zero))
    upper = _factor(gram, order)
    codes = np.empty_like(w)
    for term in range(w.shape[2]):
        places = w[:, :, term] / scale[:, :, term]
        whole = places if grid.is_float else np.rint(places) + zero[:, :, term]
        codes[:, :, term] = grid.nearest(whole)
        off = w[:, :, term] - (codes[:, :, term] - zero[:, :, term]) * scale[:, :, term]
        row = upper[:, term, term:] / upper[:, term, term, np.newaxis]
        w[:, :, term + 1 :] -= off[:, :, np.newaxis] * row[:, np.newaxis, 1:]
    back = np.argsort(order, axis=1)[:, np.newaxis, :]
    found = as_weights(product, np.take_along_axis(codes, back, 2), shape)
    return replace(scaled, codes=found.astype(np.float32))


def _factor(gram: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the upper Cholesky factor of the inverse, the terms in an order, per group."""
    moved = np.take_along_axis(np.take_along_axis(gram, order[:, :, np.newaxis], 1), order[:, np.newaxis, :], 2)
    diagonal = np.einsum("gtt->gt", moved)
    added = DAMPING * diagonal.mean(axis=1, keepdims=True)
    moved = moved + np.eye(moved.shape[1]) * np.where(added > 0, added, 1)[..., np.newaxis]
    return np.linalg.cholesky(np.linalg.inv(moved)).transpose(0, 2, 1)
