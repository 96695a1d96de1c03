"""The schedule of recurrent layers: their loops in vectors, constant weights transposed at compile time.

It takes the scans that an RNN, LSTM or GRU states (`graft.core.operators.recurrent`) and nothing else; any other
recurrence runs in the plain loops of `graft.core.schedule.strategies.sequential_loops`.
"""

from __future__ import annotations

import numpy as np

from graft.core.machine.target import Target
from graft.core.operators import recurrent_layer
from graft.core.operators.build import index
from graft.core.operators.control_loops import Lanes
from graft.core.operators.recurrent_layer import GATES, Layer
from graft.core.operators.table import Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.strategies.recurrent_loops import Chunks, recurrent_loops
from graft.core.schedule.strategy import Strategy, of_kernel
from graft.core.tensor_ir.ir import Buffer, Function

WEIGHTS = (1, 2)
"""The inputs W and R."""


def schedule_recurrent(kernel: Kernel, target: Target) -> Scheduled | None:
    """Return the loops of a kernel that is a recurrent layer, None if it is not or the machine has no vectors.

    Weights that are known at compile time are packed, each in its own form, if W and R both are: not where they are
    one. Without, they are transposed in every call.
    """
    layer = layer_of(kernel)
    if layer is None or not target.machine.vectors:
        return None
    size, sources = Chunks(layer, Lanes.of(target)), [layer.input(number) for number in WEIGHTS]
    packed, contents = None, {}
    inputs = kernel.inputs
    if sources[0] is not sources[1] and all(source in kernel.constants for source in sources):
        shapes = [size.packed_shape(number) for number in range(2)]
        first, second = (
            Buffer(f"{source.name}_packed", layer.dtype, tuple(map(index, shape)))
            for source, shape in zip(sources, shapes, strict=True)
        )
        packed, replaced = (first, second), dict(zip(sources, (first, second), strict=True))
        contents = {
            source: _pack(size, kernel.constants[source], shape) for source, shape in zip(sources, shapes, strict=True)
        }
        inputs = tuple(replaced.get(buffer, buffer) for buffer in inputs)
    parameters, outputs = (*inputs, *kernel.outputs), len(kernel.outputs)
    return Scheduled(
        lambda: Function(kernel.name, parameters, outputs, recurrent_loops(size, packed), kernel.origin), contents
    )


def layer_of(kernel: Kernel) -> Layer | None:
    """Return the layer of a kernel that has nothing but one, with all that its node reads; None for any other."""
    node = kernel.node
    if node is None or node.op_type not in GATES:
        return None
    named = {buffer.name: buffer for buffer in (*kernel.inputs, *kernel.outputs)}
    inputs = tuple(None if value is None else named.get(value.name) for value in node.inputs)
    outputs = tuple(named.get(value.name) for value in node.outputs)
    is_whole = all((value is None) == (buffer is None) for value, buffer in zip(node.inputs, inputs, strict=True))
    return recurrent_layer.layer_of(node, inputs, outputs) if is_whole else None


def _pack(size: Chunks, weights: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return weights ``[directions, gates * hidden, k]`` transposed and padded, in a shape of `Chunks.packed_shape`."""
    layer, (directions, _, depth) = size.layer, weights.shape
    split = weights.reshape(directions, layer.gates, layer.hidden, depth)
    result = np.zeros((directions, depth, layer.gates, size.width), weights.dtype)
    result[..., : layer.hidden] = split.transpose(0, 3, 1, 2)
    if len(shape) == 4:
        chunks = result.reshape(directions, depth, layer.gates, size.chunks, size.width // size.chunks)
        result = np.ascontiguousarray(chunks.transpose(0, 3, 1, 2, 4))
    return result.reshape(shape)


STRATEGY = Strategy("recurrent_layers", frozenset({Trait.RECURRENT}), of_kernel(schedule_recurrent))
