"""The schedule of recurrent layers: constant weights are transposed at compile time.

The loops are those of the lowering (`graft.core.operators.recurrent`); without this they transpose the weights in
every call.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graft.core.operators.build import index
from graft.core.operators.recurrent_layer import Layer, layer_of, packed_shape
from graft.core.operators.recurrent_loops import recurrent_function
from graft.core.operators.table import Lowering
from graft.core.schedule.kernel import Scheduled
from graft.core.tensor_ir.ir import Buffer

WEIGHTS = (1, 2)
"""The inputs W and R."""


def schedule_recurrent(lowering: Lowering, constants: dict[Buffer, np.ndarray], name: str) -> Scheduled:
    """Return the function of an RNN, LSTM or GRU called ``name``.

    ``constants`` holds the weights that are known at compile time; if W and R are both there, they are packed, each in
    its own form: not where they are one.
    """
    sources = [lowering.input(number) for number in WEIGHTS]
    if sources[0] is sources[1] or not all(source in constants for source in sources):
        function = recurrent_function(lowering)
        return Scheduled(replace(function, name=name), strategy="recurrent_loops")
    layer = layer_of(lowering)
    packed, contents = [], {}
    for number, source in enumerate(sources):
        shape = packed_shape(layer, number)
        packed.append(Buffer(f"{source.name}_packed", layer.dtype, tuple(map(index, shape))))
        contents[source] = pack_weights(layer, constants[source], shape)
    replaced = dict(zip(sources, packed, strict=True))
    parameters = [replaced.get(buffer, buffer) for buffer in lowering.inputs if buffer is not None]
    function = recurrent_function(lowering, (packed[0], packed[1]), parameters)
    return Scheduled(replace(function, name=name), contents, "recurrent_weights")


def pack_weights(layer: Layer, weights: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return weights ``[directions, gates * hidden, k]`` transposed and padded, in a shape of `packed_shape`."""
    directions, _, depth = weights.shape
    split = weights.reshape(directions, layer.gates, layer.hidden, depth)
    result = np.zeros((directions, depth, layer.gates, layer.width), weights.dtype)
    result[..., : layer.hidden] = split.transpose(0, 3, 1, 2)
    if len(shape) == 4:
        chunks = result.reshape(directions, depth, layer.gates, layer.chunks, layer.width // layer.chunks)
        result = np.ascontiguousarray(chunks.transpose(0, 3, 1, 2, 4))
    return result.reshape(shape)
