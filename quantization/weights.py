"""The weights of all products on their grids, by a recipe."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from graft.core.rewriting.node_rewrite import constant_of
from graft.quantization.gptq import rounded
from graft.quantization.grids import GRIDS
from graft.quantization.matrices import as_matrices, means_of_terms
from graft.quantization.recipe import Scaling
from graft.quantization.scales import Layout, Scaled, not_finite, scaled
from graft.quantization.sites import WEIGHTS, Product, Sites, product_of
from graft.quantization.statistics.facts import Facts

Key = tuple[str, int, Scaling]
"""The name of a tensor of weights, the axis of channels, and how it is scaled."""


def scaled_weights(sites: Sites, facts: Facts, notes: list[str]) -> dict[Key, Scaled]:
    """Return the weights as `key_of` knows them, each once, and add a note for what could not be done as these say."""
    found: dict[Key, Scaled] = {}
    short: list[str] = []
    for product in sites.products:
        array, key = constant_of(product.weights), key_of(product)
        name, _, scaling = key
        if key in found or array is None:
            continue
        layout = layout_of(product, array.shape, scaling)
        if layout.block and array.shape[product.terms] % layout.block:
            short.append(f"'{name}' ({array.shape[product.terms] % layout.block} of {layout.block})")
        gram = facts.grams.get(product.node.name or "") if scaling.rounding == "gptq" else None
        sums = None if gram is None else gram.sums
        if key not in facts.rounded:
            one = scaled(array, layout, scaling, GRIDS[scaling.type], name)
            facts.rounded[key] = one if sums is None else rounded(product, array, one, sums)
        if scaling.rounding == "gptq" and sums is None:
            notes.append(f"weights '{name}' of {product.node.op_type} are rounded each by itself")
        found[key] = facts.rounded[key]
    if short:
        notes.append(f"weights whose last group is short: {', '.join(short)}")
    return found


def require_finite_weights(nodes: Iterable[ir.Node]) -> None:
    """Raise RecipeError where a product's weights hold NaN or infinity."""
    for node in nodes:
        weights = None if product_of(node) is None else constant_of(node.inputs[WEIGHTS])
        if weights is not None and not np.isfinite(weights).all():
            raise not_finite(node.inputs[WEIGHTS].name or "")  # type: ignore[union-attr]


def short_blocks(nodes: Iterable[ir.Node], block: int | None) -> list[str]:
    """Return the weights that are longer than a block and end with a short one, each with its length."""
    found: dict[str, int] = {}
    for product in filter(None, map(product_of, nodes)):
        terms = (product.weights.shape or ())[product.terms]
        if block and isinstance(terms, int) and terms > block and terms % block:
            found[product.weights.name or ""] = terms % block
    return [f"'{name}' ({left} of {block})" for name, left in found.items()]


def key_of(product: Product) -> Key:
    """Return what the weights of a product are known by: products that share them may scale them differently."""
    assert product.scaling is not None
    return product.weights.name or "", product.channels, product.scaling


def layout_of(product: Product, shape: tuple[int, ...], scaling: Scaling) -> Layout:
    """Return which weights share a scale; a group that is longer than the axis is the whole channel."""
    if scaling.granularity == "tensor":
        return Layout(shape)
    if scaling.granularity == "group" and scaling.group < shape[product.terms]:
        return Layout(shape, product.terms, scaling.group)
    return Layout(shape, product.channels)


def bias_shift(product: Product, one: Scaled, means: np.ndarray) -> np.ndarray:
    """Return by how much rounded weights raise the mean of each channel of a product (arXiv:1906.04721, 4.2)."""
    weights = constant_of(product.weights)
    assert weights is not None
    off = as_matrices(product, one.numbers - weights)
    shift: np.ndarray = np.einsum("gct,gt->gc", off, means_of_terms(product, means, weights.shape)).reshape(-1)
    return shift
