"""The weights of a model that an artifact holds: beside its code, and once where modules have them, too."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from graft.core.graph.skeleton import LARGE_BYTES
from graft.core.graph.view import PACKABLE
from graft.runtime.constants import ConstantStore

ELSEWHERE = "weights are in constants.safetensors"
"""What an artifact's model says of weights that it does not hold itself."""


def kept_weights(
    model: ir.Model, known: Mapping[str, str], constants: Mapping[str, np.ndarray]
) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Return the keys of all weights of a model by name, and the constants with them."""
    store, keys = ConstantStore(constants), dict(known)
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if tensor is not None and name not in keys and _is_weight(tensor) and tensor.dtype not in PACKABLE:
            keys[name] = store.add(tensor.numpy())
    return keys, store.arrays


def model_without_weights(model: ir.Model) -> bytes:
    """Return a model's bytes with every large initialiser reduced to its type and shape."""
    graph = model.graph
    initializers = list(graph.initializers.values())
    large = [value for value in initializers if value.const_value is not None and _is_weight(value.const_value)]
    try:
        for value in large:
            del graph.initializers[value.name or ""]
        proto = ir.to_proto(model)
    finally:
        graph.initializers.clear()
        for value in initializers:
            graph.initializers.add(value)
    for value in large:
        assert value.const_value is not None, value.name
        tensor = proto.graph.initializer.add(name=value.name, data_type=value.const_value.dtype)
        tensor.dims.extend(value.const_value.shape.numpy())
        tensor.doc_string = ELSEWHERE
    return bytes(proto.SerializeToString(deterministic=True))


def _is_weight(tensor: ir.TensorProtocol) -> bool:
    return tensor.dtype is not ir.DataType.STRING and tensor.nbytes > LARGE_BYTES
