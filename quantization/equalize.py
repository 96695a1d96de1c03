"""Equalisation: factors of channels moved from one layer to the next, which change nothing that the model computes.

What a layer's output is divided by, the layers that read it are multiplied with. Between them only operators stand
that a factor passes (the trait `HOMOGENEOUS`). Two rules say which factors:

- weights with weights (Nagel et al., arXiv:1906.04721): both get the same range in each channel;
- activations with weights (SmoothQuant, Xiao et al., arXiv:2211.10438): a power of the activations' range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from graft.core.operators.definition.table import Trait
from graft.core.rewriting.node_pass import Names
from graft.core.rewriting.node_rewrite import add_constant, attribute_of, constant_of, has_trait, is_operator
from graft.quantization.matrices import as_matrices, as_weights, channel_axis, is_regular
from graft.quantization.sites import BIAS, WEIGHTS, Product, X, product_of
from graft.quantization.statistics.data import Batch
from graft.quantization.statistics.observation import Largest, Running

ROUNDS = 20
"""Rounds over all joints; a chain of layers needs several."""


@dataclass(frozen=True, slots=True)
class Joint:
    """A layer whose channels can be divided, and the products that alone read them, at one axis of ``value``."""

    source: ir.Node
    value: ir.Value
    axis: int
    readers: tuple[Product, ...]

    def between(self) -> Iterator[str]:
        """Yield the names of the nodes whose results are divided: the layer, and what stands between."""
        node = self.value.producer()
        while node is not None and node is not self.source:
            yield node.name or ""
            before = node.inputs[X]
            node = None if before is None else before.producer()
        yield self.source.name or ""


def joints_of(model: ir.Model) -> Iterator[Joint]:
    """Yield the places of the main graph where factors can be moved."""
    for value in dict.fromkeys(node.inputs[X] for node in model.graph if product_of(node) is not None):
        if value is None or value.is_graph_output() or value.shape is None:
            continue
        uses = list(value.uses())
        readers = [product for use in uses if use.idx == X and (product := product_of(use.node)) is not None]
        rank = len(value.shape)
        axes = {channel_axis(product, rank) for product in readers}
        source = _source(value, next(iter(axes)) if len(axes) == 1 else -1)
        regular = all(is_regular(product) and len(product.weights.uses()) == 1 for product in readers)
        if source is not None and len(readers) == len(uses) and regular:
            yield Joint(source, value, axes.pop(), tuple(readers))


def _source(value: ir.Value, axis: int) -> ir.Node | None:
    """Return the layer behind a value whose channels along an axis can be divided, None if there is none."""
    node = value.producer()
    while node is not None and has_trait(node, Trait.HOMOGENEOUS):
        before = node.inputs[X]
        if before is None or len(before.uses()) > 1 or before.is_graph_output():
            return None
        node = before.producer()
    if node is None or value.shape is None:
        return None
    operands = [constant_of(operand) for operand in node.inputs[1:]]
    if any(operand is None for operand in operands) or any(len(one.uses()) > 1 for one in node.inputs[1:] if one):
        return None
    if is_operator(node, "LayerNormalization", "RMSNormalization"):
        last = len(value.shape) - 1
        return node if axis == last and attribute_of(node, "axis", -1) in (-1, last) else None
    product = product_of(node)
    if product is None or not is_regular(product):
        return None
    bias = constant_of(product.bias)
    own = 1 if has_trait(node, Trait.CONVOLUTION) else len(value.shape) - 1
    return node if axis == own and (bias is None or bias.ndim == 1) else None


def equalize(model: ir.Model) -> list[str]:
    """Give weights on both sides of each joint the same ranges, in place; return the nodes whose results change."""
    joints = [joint for joint in joints_of(model) if product_of(joint.source) is not None]
    for _ in range(ROUNDS):
        largest = 1.0
        for joint in joints:
            source = product_of(joint.source)
            assert source is not None
            before, after = _range_of_channels(source), _range_of_terms(joint)
            factors = np.sqrt(_ratio(before, after))
            largest = max(largest, float(np.max(np.maximum(factors, 1 / factors))))
            move(model, joint, factors)
        if largest < 1.001:
            break
    return [name for joint in joints for name in joint.between()]


def smooth(model: ir.Model, power: float, data: Iterable[Batch], running: Running) -> list[str]:
    """Move ``power`` of the ranges of activations into the weights that they meet, in place.

    Return the nodes whose results change.
    """
    joints = list(joints_of(model))
    sizes = [Largest(joint.axis) for joint in joints]
    observers = {joint.value.name or "": [one] for joint, one in zip(joints, sizes, strict=True)}
    if joints:
        running.observe(model, observers, data)
    for joint, one in zip(joints, sizes, strict=True):
        assert one.sizes is not None
        move(model, joint, _ratio(one.sizes.astype(np.float64) ** power, _range_of_terms(joint) ** (1 - power)))
    return [name for joint in joints for name in joint.between()]


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Return quotients, 1 where either is 0."""
    both = (above > 0) & (below > 0)
    return np.where(both, above / np.where(both, below, 1), 1.0)


def _range_of_channels(product: Product) -> np.ndarray:
    """The largest weight of each output channel."""
    weights = constant_of(product.weights)
    assert weights is not None
    largest: np.ndarray = np.abs(as_matrices(product, weights)).max(axis=2).reshape(-1)
    return largest


def _range_of_terms(joint: Joint) -> np.ndarray:
    """The largest weight that each input channel meets, over all readers."""
    found = []
    for product in joint.readers:
        weights = constant_of(product.weights)
        assert weights is not None
        matrices = np.abs(as_matrices(product, weights)).max(axis=1)
        channels = weights.shape[product.terms]
        found.append(matrices.reshape(len(matrices), channels, -1).max(axis=2).reshape(-1))
    largest: np.ndarray = np.max(found, axis=0)
    return largest


def move(model: ir.Model, joint: Joint, factors: np.ndarray) -> None:
    """Divide the channels of a layer's output by factors, and multiply the weights that read them."""
    names = Names(model)
    source = product_of(joint.source)
    if source is None:
        places: Sequence[int] = range(1, len(joint.source.inputs))
        for place in places:
            _change(model, names, joint.source, place, lambda array: array / factors)
    else:
        groups = attribute_of(joint.source, "group", 1)
        by_channel = factors.reshape(groups, -1, 1)
        _change(model, names, joint.source, WEIGHTS, _scaled_by(source, 1 / by_channel))
        if source.bias is not None:
            _change(model, names, joint.source, BIAS, lambda array: array / factors)
    for reader in joint.readers:
        _change(model, names, reader.node, WEIGHTS, _scaled_by(reader, by_term(reader, factors)))


def by_term(reader: Product, factors: np.ndarray) -> np.ndarray:
    """Return factors of channels as factors of the terms of a product that reads these, ``[group, 1, term]``."""
    weights = constant_of(reader.weights)
    assert weights is not None
    groups = attribute_of(reader.node, "group", 1)
    window = weights.size // (weights.shape[reader.channels] * weights.shape[reader.terms])
    return np.repeat(factors.reshape(groups, 1, -1), window, axis=2)


def _scaled_by(product: Product, factors: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: as_weights(product, as_matrices(product, array) * factors, array.shape)


def _change(model: ir.Model, names: Names, node: ir.Node, place: int, rule: Callable[[np.ndarray], np.ndarray]) -> None:
    """Replace a constant operand that no other node reads."""
    old = node.inputs[place]
    array = constant_of(old)
    assert old is not None
    assert array is not None
    new = add_constant(model.graph, names.fresh(f"{old.name}"), rule(array).astype(array.dtype))
    node.replace_input_with(place, new)
    if old.name is not None and old.name in model.graph.initializers and not old.uses():
        del model.graph.initializers[old.name]
