"""Seeded random weights in the place of constant-filled ones.

Models that are shipped without weights fill them by ConstantOfShape; their output is then the same for any input and
proves nothing. A generated weight depends on the seed and on the name of the value alone, so that it is the same on
every machine and whatever else the model holds.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from graft.core.graph.traversal import all_graphs, all_nodes
from graft.core.rewriting.node_rewrite import attribute_of, constant_of, is_operator, static_shape

LEAST_ELEMENTS = 2
THROUGH = ("Unsqueeze", "Squeeze", "Reshape", "Identity", "Transpose", "Cast", "Slice", "Concat")
"""Operators behind which the use of a weight is looked for."""

KEEP_SIGN = ("MaxPool", "AveragePool", "GlobalAveragePool", "Dropout", "Flatten", "LRN", *THROUGH)

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


@dataclass(frozen=True)
class SeedWeights:
    """Replace float ConstantOfShape nodes and initialisers of one repeated value by seeded random initialisers.

    The use of a value decides its distribution:

    1. weights of Conv, ConvTranspose, Gemm, MatMul: normal of variance 2 / fan-in behind a Relu (He et al.,
       arXiv:1502.01852), else 1 / fan-in, so that activations keep their size
    2. scale of a normalisation, and operand of Mul: uniform in [0.8, 1.2]; of a BatchNormalization that ends the arm
       of a residual sum: in [0.4, 0.5], so that activations do not grow from block to block
    3. variance: uniform in [0.5, 1.5]
    4. recurrent weights: uniform within 1 / sqrt(hidden size)
    5. tables read by Gather: normal of deviation 0.02
    6. parameters of every BatchNormalization as well, if anything was replaced
    7. everything else (biases, means): normal of deviation 0.05
    """

    name: ClassVar[str] = "seed-weights"
    seed: int = 0

    def run(self, model: ir.Model) -> bool:
        """Change ``model`` in place and return whether anything changed."""
        changed = False
        for graph in list(all_graphs(model)):
            for node in list(graph):
                if is_operator(node, "ConstantOfShape") and self._replace_node(graph, node):
                    changed = True
            for value in list(graph.initializers.values()):
                changed |= _is_filled(value) and self._refill(value)
        statistics = _statistics(model) if changed else ()
        for value in statistics:
            self._refill(value)
        return changed

    def _replace_node(self, graph: ir.Graph, node: ir.Node) -> bool:
        old, shape = node.outputs[0], constant_of(node.inputs[0])
        if shape is None or old.dtype is not ir.DataType.FLOAT or old.is_graph_output():
            return False
        dimensions = tuple(int(dimension) for dimension in shape)
        if math.prod(dimensions) < LEAST_ELEMENTS:
            return False
        name = old.name or ""
        array = self._draw(name, _distribution(old, dimensions), dimensions)
        old.name = f"{name}_constant"
        new = ir.Value(name=name, shape=ir.Shape(dimensions), type=old.type, const_value=ir.tensor(array, name=name))
        ir.convenience.replace_all_uses_with(old, new)
        graph.initializers.add(new)
        graph.remove(node, safe=True)
        return True

    def _refill(self, value: ir.Value) -> bool:
        name, shape = value.name or "", static_shape(value)
        assert shape is not None, f"initialiser '{name}' has a shape"
        value.const_value = ir.tensor(self._draw(name, _distribution(value, shape), shape), name=name)
        return True

    def _draw(self, name: str, draw: Draw, shape: tuple[int, ...]) -> np.ndarray:
        digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
        generator = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
        return draw(generator, shape).astype(np.float32)


def _is_filled(value: ir.Value) -> bool:
    """Whether an initialiser is a float tensor, of at least `LEAST_ELEMENTS`, that repeats one number."""
    tensor = value.const_value
    if tensor is None or tensor.dtype is not ir.DataType.FLOAT or not value.uses():
        return False
    return tensor.size >= LEAST_ELEMENTS and tensor.shape.rank() > 0 and bool(np.ptp(tensor.numpy()) == 0)


def _statistics(model: ir.Model) -> list[ir.Value]:
    """Return the parameters of all batch normalisations: what a file kept of them was measured with other weights."""
    nodes = (node for node in all_nodes(model.graph) if node.op_type == "BatchNormalization")
    values = dict.fromkeys(value for node in nodes for value in node.inputs[1:5] if value is not None)
    return [value for value in values if value.is_initializer() and value.dtype is ir.DataType.FLOAT]


def _distribution(value: ir.Value, shape: tuple[int, ...]) -> Draw:
    """Return how to draw a weight of ``shape``, judged by the first node that uses it."""
    node, index = _use(value)
    if node is None:
        return _normal(0.05)
    shape = static_shape(node.inputs[index]) or shape
    fan_in = _fan_in(node, index, shape)
    if fan_in is not None:  # case 1
        return _normal(math.sqrt((2 if _is_rectified(node.inputs[1 - index]) else 1) / fan_in))
    if is_operator(node, "BatchNormalization") and index == 4:  # case 3
        return _uniform(0.5, 1.5)
    scale = (
        is_operator(node, "BatchNormalization", "LayerNormalization", "InstanceNormalization", "RMSNormalization")
        and index == 1
    )
    if scale or is_operator(node, "Mul"):  # case 2
        return _uniform(0.4, 0.5) if scale and _ends_arm(node) else _uniform(0.8, 1.2)
    if is_operator(node, "LSTM", "GRU", "RNN"):  # case 4
        bound = 1 / math.sqrt(attribute_of(node, "hidden_size", shape[-1]))
        return _uniform(-bound, bound)
    return _normal(0.02 if is_operator(node, "Gather") else 0.05)  # cases 5 and 7


def _fan_in(node: ir.Node, index: int, shape: tuple[int, ...]) -> int | None:
    """Return how many products a sum has in a node that multiplies with this weight; None for other nodes."""
    if is_operator(node, "MatMul") and len(shape) > 1:
        return shape[-2 if index == 1 else -1]
    if index != 1:
        return None
    if is_operator(node, "Gemm"):
        return shape[1 if attribute_of(node, "transB", 0) else 0]
    if is_operator(node, "Conv"):
        return math.prod(shape[1:])
    return shape[0] * math.prod(shape[2:]) if is_operator(node, "ConvTranspose") else None


def _is_rectified(value: ir.Value | None) -> bool:
    """Whether a value comes from a Relu, looking behind operators that keep the sign of their input."""
    producer = None if value is None else value.producer()
    while producer is not None and is_operator(producer, *KEEP_SIGN):
        source = producer.inputs[0]
        producer = None if source is None else source.producer()
    return is_operator(producer, "Relu", "Clip")


def _ends_arm(node: ir.Node) -> bool:
    """Whether a BatchNormalization's output goes into the sum of two computed values."""
    uses = node.outputs[0].uses() if node.op_type == "BatchNormalization" else ()
    return any(
        is_operator(use.node, "Add", "Sum")
        and all(value is not None and value.const_value is None for value in use.node.inputs)
        for use in uses
    )


def _use(value: ir.Value) -> tuple[ir.Node | None, int]:
    """Return the node that uses a weight and at which input, looking behind operators that only reshape it."""
    while uses := list(value.uses()):
        use = uses[0]
        if not is_operator(use.node, *THROUGH) or (use.idx != 0 and use.node.op_type != "Concat"):
            return use.node, use.idx
        value = use.node.outputs[0]
    return None, 0


def _normal(deviation: float) -> Draw:
    return lambda generator, shape: generator.standard_normal(shape, np.float32) * np.float32(deviation)


def _uniform(low: float, high: float) -> Draw:
    return lambda generator, shape: generator.random(shape, np.float32) * np.float32(high - low) + np.float32(low)
