"""Sizes: how many bits the weights of a model's products take, and the activations that they read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from graft.core.graph.view import constant_tensor
from graft.datatypes.scaled.scaled_type import ScaledType
from graft.quantization.sites import Product, X, product_of

FLOAT_BITS = 32.0
Counts = Mapping[tuple[ir.Value | None, float], int]
"""Elements by value and the bits of one."""


@dataclass(frozen=True, slots=True)
class Size:
    """Bits of a weight and of an activation, on average, scales counted, and the bytes of all weights."""

    weight_bits: float
    activation_bits: float
    weight_bytes: int


def bits_in_blocks(product: Product, type: ScaledType) -> float:
    """Return the bits of a weight in blocks along the summed axis, of which the last may be short, scales counted."""
    terms = (product.weights.shape or ())[product.terms]
    assert isinstance(terms, int) and type.block, product.node.name
    return type.element_format.bits + type.scale_format.bits * -(-terms // type.block) / terms


def size_of(model: ir.Model, bits: Callable[[Product], tuple[float, float]]) -> Size:
    """Return the size of a float model's products, ``bits`` giving those of one's weight and of one's activation.

    Weights that products share are counted once for each number of bits. An open dimension counts as 1.
    """
    weights: dict[tuple[ir.Value | None, float], int] = {}
    activations: dict[tuple[ir.Value | None, float], int] = {}
    for node in model.graph:
        product = product_of(node)
        tensor = None if product is None else constant_tensor(product.weights)
        if product is not None and tensor is not None:
            weight, activation = bits(product)
            weights[product.weights, weight] = tensor.size
            activations[node.inputs[X], activation] = _elements(node.inputs[X])
    return Size(_mean(weights), _mean(activations), math.ceil(_total(weights) / 8))


def _elements(value: ir.Value | None) -> int:
    shape = () if value is None or value.shape is None else value.shape
    return math.prod(extent for extent in shape if isinstance(extent, int))


def _total(counts: Counts) -> float:
    return sum(bits * count for (_, bits), count in counts.items())


def _mean(counts: Counts) -> float:
    return _total(counts) / max(sum(counts.values()), 1)
