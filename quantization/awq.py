"""Factors between layers by which weights that meet large inputs lose less: AWQ (Lin et al., arXiv:2306.00978).

The weights of an input channel are multiplied by a power of the mean size of that channel before they are rounded, and
the layer before is divided by it. The power is that of the least square error of the products on the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from graft.core.rewriting.node_rewrite import constant_of
from graft.quantization.equalize import Joint, by_term, joints_of, move
from graft.quantization.gptq import Gram
from graft.quantization.grids import GRIDS
from graft.quantization.matrices import as_matrices, as_weights
from graft.quantization.recipe import Recipe
from graft.quantization.scales import scaled
from graft.quantization.sites import Product, recipe_of_node
from graft.quantization.statistics.data import Batch
from graft.quantization.statistics.facts import matrix_shape
from graft.quantization.statistics.observation import Mean, Running
from graft.quantization.weights import layout_of

POWERS = np.linspace(0, 1, 20, endpoint=False)
"""The powers that are tried; with 0 nothing changes."""


class MeanSize(Mean):
    """The mean size of each channel."""

    def add(self, array: np.ndarray) -> None:
        """Take in the value of one batch."""
        super().add(np.abs(array))


def favour_large_inputs(model: ir.Model, recipe: Recipe, data: Iterable[Batch], running: Running) -> list[str]:
    """Move factors into the weights that a recipe rounds, in place; return the nodes whose results change."""
    joints = [
        replace(
            joint,
            readers=tuple(replace(one, scaling=recipe_of_node(one.node, recipe).weights) for one in joint.readers),
        )
        for joint in joints_of(model)
        if all(map(matrix_shape, joint.readers))
    ]
    sizes = [MeanSize(joint.axis) for joint in joints]
    grams = [[Gram(one, matrix_shape(one) or ()) for one in joint.readers] for joint in joints]
    if joints:
        names = [joint.value.name or "" for joint in joints]
        seen = zip(names, sizes, grams, strict=True)
        running.observe(model, {name: [size, *own] for name, size, own in seen}, data)
    for joint, size, own in zip(joints, sizes, grams, strict=True):
        move(model, joint, best_factors(joint, size.means, [one.sums for one in own]))
    return [name for joint in joints for name in joint.between()]


def best_factors(joint: Joint, sizes: np.ndarray, grams: Sequence[np.ndarray | None]) -> np.ndarray:
    """Return the factors of the power with the least error, one for each channel."""
    candidates = [factors_of(sizes, power) for power in POWERS]
    errors = [
        sum(error_of(reader, factors, gram) for reader, gram in zip(joint.readers, grams, strict=True))
        for factors in candidates
    ]
    return candidates[int(np.argmin(errors))]


def factors_of(sizes: np.ndarray, power: float) -> np.ndarray:
    """Return a power of sizes, about as far above 1 as below it; a channel of zeros has the least of the others."""
    above = sizes[sizes > 0]
    raised = np.maximum(sizes, above.min() if above.size else 1.0) ** power
    factors: np.ndarray = raised / np.sqrt(raised.max() * raised.min())
    return factors


def error_of(reader: Product, factors: np.ndarray, gram: np.ndarray | None) -> float:
    """Return the square error of a product whose weights are multiplied by factors, rounded to nearest, and divided."""
    if reader.scaling is None:
        return 0.0
    weights = constant_of(reader.weights)
    assert weights is not None
    assert gram is not None
    matrices, terms = as_matrices(reader, weights), by_term(reader, factors)
    moved = as_weights(reader, matrices * terms, weights.shape).astype(np.float32)
    plain = replace(reader.scaling, rounding="nearest")
    one = scaled(moved, layout_of(reader, weights.shape, plain), plain, GRIDS[plain.type], reader.weights.name or "")
    off = as_matrices(reader, one.numbers) / terms - matrices
    return float(np.sum(np.matmul(off, gram) * off))
