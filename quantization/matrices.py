"""Products as matrices: weights by channel and term, and what they are multiplied with by term and position.

A product of ``groups`` is as many matrices: weights are ``[group, channel, term]``, inputs ``[group, term, position]``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from graft.core.graph.view import NodeView
from graft.core.operators.definition.table import Trait
from graft.core.operators.images.windows import windows_of
from graft.core.rewriting.node_rewrite import attribute_of, has_trait
from graft.quantization.sites import Product

POSITIONS = 4096
"""The most positions of one batch that are looked at: others are left out evenly."""
WINDOWS = 128
"""The most windows of one image that are looked at, others than in the batch before: near ones overlap."""


def is_regular(product: Product) -> bool:
    """Whether a product's weights have a channel first or last and its terms beside: not transposed convolutions."""
    return has_trait(product.node, Trait.CONVOLUTION) or has_trait(product.node, Trait.CONTRACTION)


def as_matrices(product: Product, weights: np.ndarray) -> np.ndarray:
    """Return an array of the weights' shape as ``[group, channel, term]``."""
    groups = attribute_of(product.node, "group", 1)
    first = np.moveaxis(weights, product.channels, 0)
    return first.reshape(groups, len(first) // groups, -1)


def as_weights(product: Product, matrices: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return matrices by group, channel and term as an array of the weights' shape."""
    others = [extent for axis, extent in enumerate(shape) if axis != product.channels]
    return np.moveaxis(matrices.reshape(shape[product.channels], *others), 0, product.channels)


def means_of_terms(product: Product, means: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the means of the input's channels as ``[group, term]``; a border of zeros is not counted."""
    groups = attribute_of(product.node, "group", 1)
    window = math.prod(shape[2:]) if has_trait(product.node, Trait.CONVOLUTION) else 1
    return np.repeat(means.reshape(groups, -1), window, axis=1)


def channel_axis(product: Product, rank: int) -> int:
    """Return the axis of the input that the terms of the product run along."""
    if has_trait(product.node, Trait.CONVOLUTION) or not is_regular(product):
        return 1
    return 0 if attribute_of(product.node, "transA", 0) else rank - 1


def inputs_of(product: Product, x: np.ndarray, shape: tuple[int, ...], turn: int = 0) -> np.ndarray:
    """Return the input of a product as ``[group, term, position]``, where weights of a shape are multiplied.

    Of many positions a part is returned, another one at each ``turn``.
    """
    groups = attribute_of(product.node, "group", 1)
    if not has_trait(product.node, Trait.CONVOLUTION):
        rows = np.moveaxis(x, channel_axis(product, x.ndim), 0).reshape(1, shape[product.terms], -1)
        return rows[..., _chosen(rows.shape[-1], POSITIONS, turn)]
    extents, kernel = x.shape[2:], shape[2:]
    strides = attribute_of(product.node, "strides", [1] * len(extents))
    target = [-(-extent // stride) for extent, stride in zip(extents, strides, strict=True)]
    windows = windows_of(NodeView(product.node), extents, kernel, target)
    padded = np.pad(x, [(0, 0), (0, 0), *zip(windows.begins, windows.ends, strict=True)])
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, windows.dilations, strict=True)]
    steps = [slice(None, None, stride) for stride in windows.strides]
    inner = [slice(None, None, dilation) for dilation in windows.dilations]
    views = sliding_window_view(padded, spans, tuple(range(2, x.ndim)))[(slice(None), slice(None), *steps, *inner)]
    grid = views.shape[2 : 2 + len(kernel)]
    chosen = _chosen(math.prod(grid), min(WINDOWS, max(POSITIONS // len(x), 1)), turn)
    index: tuple[Any, ...] = (slice(None), slice(None), *np.unravel_index(chosen, grid))
    picked: np.ndarray = views[index]  # image, channel, place, kernel
    moved = picked.transpose(1, *range(3, picked.ndim), 0, 2)
    return moved.reshape(groups, picked.shape[1] * math.prod(kernel) // groups, -1)


def _chosen(count: int, most: int, turn: int) -> np.ndarray:
    """Return which of so many positions are looked at: all, or evenly some, which in each turn begin one further on."""
    taken = min(count, most)
    chosen: np.ndarray = (np.arange(taken) * count // max(taken, 1) + turn * (taken < count)) % max(count, 1)
    return chosen
