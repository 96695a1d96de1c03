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

BLOCK = 128
"""Terms after which the others are changed, by one matrix product."""
TOGETHER = 1024
"""The positions that are multiplied at a time: sums of large matrices take as long as products of few positions."""
DAMPING = 0.01
"""The share of the mean of the diagonal that is added to it, so that it can be inverted."""


class Gram:
    """The products of a product's inputs with each other, ``[group, term, term]``, summed over positions."""

    kept = ("_waiting", "_sums", "_turn")

    def __init__(self, product: Product, shape: tuple[int, ...]) -> None:
        self._product, self._shape = product, shape
        self._waiting: np.ndarray | None = None
        self._sums: np.ndarray | None = None
        self._turn = 0

    def add(self, array: np.ndarray) -> None:
        """Take in the input of one batch; it is multiplied with others, where they are few positions."""
        x = inputs_of(self._product, array, self._shape, self._turn).astype(np.float32)
        self._waiting = x if self._waiting is None else np.concatenate([self._waiting, x], axis=2)
        self._turn += 1
        if self._waiting.shape[-1] >= TOGETHER:
            self._multiply(self._waiting)

    @property
    def sums(self) -> np.ndarray | None:
        """The sums, of float64; None before the first batch."""
        if self._waiting is not None:
            self._multiply(self._waiting)
        return self._sums

    def _multiply(self, x: np.ndarray) -> None:
        self._waiting = None
        sums = np.matmul(x, x.transpose(0, 2, 1))
        if self._sums is None:
            self._sums = sums.astype(np.float64)
        else:
            self._sums += sums


def rounded(product: Product, weights: np.ndarray, scaled: Scaled, gram: np.ndarray) -> Scaled:
    """Return weights on their grid, by the same scales, whose product is near that of before.

    With ``gram = U @ D @ U.T``, U upper with ones on its diagonal and D diagonal, the square error of the product is
    the sum over terms of D times the square of ``error @ U``: a term is rounded where the errors before it put the
    least of that. (So does the inverse of ``gram`` in the paper, which is not needed.)
    """
    shape, layout, groups = weights.shape, scaled.layout, np.arange(len(gram))[:, np.newaxis]
    order = np.argsort(-np.einsum("gtt->gt", gram), axis=1, kind="stable")
    w, scale, zero = (
        as_matrices(product, np.broadcast_to(array, shape).astype(np.float32)).transpose(0, 2, 1)[groups, order]
        for array in (weights, layout.per_element(scaled.scale), layout.per_element(scaled.zero))
    )
    factor = np.stack([_unit_factor(one, own) for one, own in zip(gram, order, strict=True)])
    codes, errors = np.empty_like(w), np.empty_like(w)
    for first in range(0, w.shape[1], BLOCK):
        block = slice(first, min(first + BLOCK, w.shape[1]))
        wanted = w[:, block] - np.matmul(factor[:, block, :first], errors[:, :first])
        for term in range(first, block.stop):
            before = np.matmul(factor[:, term, np.newaxis, first:term], errors[:, first:term])[:, 0]
            places = (wanted[:, term - first] - before) / scale[:, term]
            rounds = scaled.grid.codes(places, zero[:, term])
            codes[:, term], errors[:, term] = rounds, (rounds - zero[:, term]) * scale[:, term] - w[:, term]
    back = np.empty_like(codes)
    back[groups, order] = codes
    return replace(scaled, codes=as_weights(product, back.transpose(0, 2, 1), shape))


def _unit_factor(gram: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the transpose of U of a group, as float32, the terms in an order and the diagonal damped."""
    last = order[::-1]
    moved = gram[last][:, last]
    diagonal = np.einsum("tt->t", moved)  # a view
    diagonal += DAMPING * diagonal.mean() or 1.0
    lower = np.linalg.cholesky(moved)
    lower /= np.diagonal(lower).copy()
    return lower.astype(np.float32).T[::-1, ::-1]
