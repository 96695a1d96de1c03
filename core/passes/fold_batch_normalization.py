"""Per-channel scales and shifts move into the convolution before them, or become one Mul and one Add.

BatchNormalization in inference is y = scale * (x - mean) / sqrt(var + epsilon) + bias (Ioffe and Szegedy,
arXiv:1502.03167), an affine map of each channel, as are Mul, Div, Add and Sub with a constant per channel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from graft.core.rewriting import node_rewrite as rewrite
from graft.core.rewriting.node_pass import Names, NodePass, Rewriter
from graft.core.rewriting.writer import Writer


@dataclass(frozen=True)
class FoldBatchNormalization(NodePass):
    """Compose chains of BatchNormalization, Mul, Div, Add and Sub that are affine in each channel.

    1. after a Conv, ConvTranspose (of one group) or Gemm with constant weights that nobody else reads: into its
       weights and bias
    2. any other chain with a BatchNormalization, or of more than two nodes: into Mul and Add, each left out if
       neutral

    Computed in float64 and rounded once. Only for float32 and float64.
    """

    name: ClassVar[str] = "fold-batch-normalization"

    def rewrite(self, node: ir.Node, rewriter: Rewriter) -> bool:
        """Rewrite a node as the class says."""
        first = _affine(node)
        return first is not None and _fold(_chain(node, first), rewriter.names)


@dataclass(slots=True)
class _Chain:
    """Nodes in order and the map that they compute together: y = scale * x + shift, float64[channels]."""

    nodes: list[ir.Node]
    scale: np.ndarray
    shift: np.ndarray

    @property
    def graph(self) -> ir.Graph:
        graph = self.nodes[-1].graph
        assert isinstance(graph, ir.Graph), f"'{self.nodes[-1].name}' is in no graph"
        return graph

    @property
    def source(self) -> ir.Value:
        value = self.nodes[0].inputs[0]
        assert value is not None, f"'{self.nodes[0].name}' has no input"
        return value


def _affine(node: ir.Node) -> tuple[np.ndarray, np.ndarray] | None:
    """Return scale and shift, float64[channels], of a node that is affine in each channel, else None."""
    if not rewrite.is_operator(node, "BatchNormalization", "Mul", "Div", "Add", "Sub"):
        return None
    source = node.inputs[0] if node.inputs else None
    shape = None if source is None else source.shape
    if source is None or source.const_value is not None or shape is None or len(shape) < 2:
        return None
    channels = shape[1]
    if not isinstance(channels, int):
        return None
    if source.dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        return None
    if rewrite.is_operator(node, "BatchNormalization"):
        return _normalization(node)
    operand = _per_channel(rewrite.constant_of(node.inputs[1]), len(shape), channels)
    if operand is None:
        return None
    ones, zeros = np.ones_like(operand), np.zeros_like(operand)
    if node.op_type == "Mul":
        return operand, zeros
    if node.op_type == "Div":
        return None if (operand == 0).any() else (1 / operand, zeros)
    return (ones, operand) if node.op_type == "Add" else (ones, -operand)


def _normalization(node: ir.Node) -> tuple[np.ndarray, np.ndarray] | None:
    if rewrite.attribute_of(node, "training_mode", 0) or any(value.uses() for value in node.outputs[1:]):
        return None
    arrays = [rewrite.constant_of(value) for value in node.inputs[1:5]]
    if any(array is None for array in arrays):
        return None
    scale, bias, mean, variance = (np.asarray(array, np.float64) for array in arrays)
    if (variance < 0).any():
        return None
    factor = scale / np.sqrt(variance + rewrite.attribute_of(node, "epsilon", 1e-5))
    return factor, bias - mean * factor


def _per_channel(operand: np.ndarray | None, rank: int, channels: int) -> np.ndarray | None:
    """Return a broadcast operand as float64[channels] if it varies along axis 1 alone, else None."""
    if operand is None or operand.ndim > rank:
        return None
    dimensions = (1,) * (rank - operand.ndim) + operand.shape
    if any(size != 1 for axis, size in enumerate(dimensions) if axis != 1):
        return None
    flat = operand.astype(np.float64).reshape(-1)
    return np.broadcast_to(flat, (channels,)) if len(flat) in (1, channels) else None


def _chain(node: ir.Node, first: tuple[np.ndarray, np.ndarray]) -> _Chain:
    chain = _Chain([node], *first)
    while rewrite.sole_use(chain.nodes[-1].outputs[0]):
        successor = next(iter(chain.nodes[-1].outputs[0].uses())).node
        step = _affine(successor) if successor.graph is node.graph else None
        if step is None or successor.inputs[0] is not chain.nodes[-1].outputs[0]:
            break
        chain.nodes.append(successor)
        chain.scale, chain.shift = chain.scale * step[0], chain.shift * step[0] + step[1]
    return chain


def _fold(chain: _Chain, names: Names) -> bool:
    producer = chain.source.producer()
    if producer is not None and producer.graph is chain.graph and rewrite.sole_use(chain.source) and _absorbs(producer):
        _fold_into(producer, chain, names)  # case 1
        return True
    if len(chain.nodes) > 2 or any(node.op_type == "BatchNormalization" for node in chain.nodes):
        _rewrite(chain, names)  # case 2
        return True
    return False


def _absorbs(node: ir.Node) -> bool:
    if rewrite.channels_of_weights(node) is None or rewrite.is_operator(node, "MatMul"):
        return False
    if any(value is not None and value.const_value is None for value in node.inputs[1:]):
        return False
    if node.op_type == "ConvTranspose":
        return bool(rewrite.attribute_of(node, "group", 1) == 1)
    if node.op_type == "Gemm":
        bias = rewrite.static_shape(node.inputs[2]) if len(node.inputs) > 2 else ()
        return bool(bias is not None and len(bias) <= 1 and rewrite.attribute_of(node, "beta", 1.0) == 1)
    return True


def _fold_into(node: ir.Node, chain: _Chain, names: Names) -> None:
    graph, weights, bias = (
        chain.graph,
        rewrite.constant_of(node.inputs[1]),
        rewrite.constant_of(node.inputs[2]) if len(node.inputs) > 2 else None,
    )
    assert weights is not None, f"the weights of '{node.name}' are constant"
    axis = rewrite.channels_of_weights(node)
    along = [-1 if index == axis else 1 for index in range(weights.ndim)]
    scaled = np.empty_like(weights, order="C")
    # Computed in float64 and rounded once, a few thousand elements at a time.
    np.multiply(weights, chain.scale.reshape(along), out=scaled, dtype=np.float64, casting="unsafe")
    start = np.zeros(len(chain.scale)) if bias is None else bias.astype(np.float64)
    shifted = (start * chain.scale + chain.shift).astype(weights.dtype)
    base = node.inputs[1].name if node.inputs[1] is not None else node.name
    inputs = [node.inputs[0], rewrite.add_constant(graph, names.fresh(f"{base}_folded"), scaled)]
    inputs.append(rewrite.add_constant(graph, names.fresh(f"{node.name}_bias_folded"), shifted))
    fused = _replace_chain(chain, node.op_type, inputs, [node, *chain.nodes])
    fused.attributes.update(node.attributes)
    fused.name = node.name
    graph.remove(node, safe=True)


def _rewrite(chain: _Chain, names: Names) -> None:
    graph, rank, dtype = chain.graph, len(chain.source.shape or ()), chain.source.dtype
    assert dtype is not None, f"'{chain.source.name}' has a type"
    along = (-1, *[1] * (rank - 2))
    *others, last = chain.nodes
    near = last.outputs[0].name
    scale, shift = (array.astype(dtype.numpy()).reshape(along) for array in (chain.scale, chain.shift))
    value = chain.source
    if (shift == 0).all():
        _replace_chain(
            chain, "Mul", [value, rewrite.add_constant(graph, names.fresh(f"{near}_scale"), scale)], chain.nodes
        )
        return
    if (scale != 1).any():
        factor = rewrite.add_constant(graph, names.fresh(f"{near}_scale"), scale)
        value = Writer(last, names, others).emit("Mul", [value, factor], dtype, value.shape)
    _replace_chain(chain, "Add", [value, rewrite.add_constant(graph, names.fresh(f"{near}_shift"), shift)], chain.nodes)


def _replace_chain(chain: _Chain, op_type: str, inputs: list[ir.Value | None], origins: list[ir.Node]) -> ir.Node:
    """Put one node in the place of the whole chain and return it."""
    *others, last = chain.nodes
    new = rewrite.replace_node(last, op_type, inputs, origins=origins)
    for node in reversed(others):
        assert node.graph is not None, f"'{node.name}' was removed before"
        node.graph.remove(node, safe=True)
    return new
