"""A model without its large constants: what goes through ONNX's own tools.

The checker, the version converter and shape inference take a serialised model and copy it several times. None of
them looks into a weight, so a large one travels as a graph input of its type.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx
import onnx_ir as ir
from google.protobuf.message import Message

LARGE_BYTES = 1024
"""A constant of more bytes than this is large; shapes, axes and scales are smaller."""


def skeleton_of_proto(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, onnx.TensorProto]]:
    """Return a copy of ``proto`` without the large initialisers of its main graph, and these by name."""
    copy = onnx.ModelProto()
    _copy_fields(proto, copy, without=("graph",))
    _copy_fields(proto.graph, copy.graph, without=("initializer",))
    inputs = {value.name for value in proto.graph.input}
    denotations = {value.name: value.type.denotation for value in proto.graph.value_info}
    large = {}
    for tensor in proto.graph.initializer:
        if not _is_large_proto(tensor):
            copy.graph.initializer.add().CopyFrom(tensor)
            continue
        large[tensor.name] = tensor
        if tensor.name not in inputs:
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            value.type.denotation = denotations.get(tensor.name, "")
            copy.graph.input.append(value)
    return copy, large


def skeleton_of_model(model: ir.Model) -> onnx.ModelProto:
    """Return ``model`` as a proto in which the large initialisers of the main graph are graph inputs."""
    graph = model.graph
    inputs, initializers = list(graph.inputs), list(graph.initializers.values())
    tensors = [value.const_value for value in initializers]
    try:
        for value, tensor in zip(initializers, tensors, strict=True):
            if tensor is not None and is_large(tensor):
                del graph.initializers[value.name or ""]
                value.const_value = None
                graph.inputs.append(value)
        return ir.to_proto(model)
    finally:
        graph.inputs.clear()
        graph.inputs.extend(inputs)
        graph.initializers.clear()
        for value, tensor in zip(initializers, tensors, strict=True):
            value.const_value = tensor
            graph.initializers.add(value)


def is_large(tensor: ir.TensorProtocol) -> bool:
    """Whether a constant stays out of the skeleton: more than `LARGE_BYTES`, or in a file."""
    return isinstance(tensor, ir.ExternalTensor) or tensor.nbytes > LARGE_BYTES


def _copy_fields(source: Message, target: Message, without: Iterable[str]) -> None:
    for descriptor, value in source.ListFields():
        if descriptor.name in without:
            continue
        field = getattr(target, descriptor.name)
        if isinstance(field, Message):
            field.CopyFrom(value)
        elif hasattr(field, "extend"):
            field.extend(value)
        else:
            setattr(target, descriptor.name, value)


def _is_large_proto(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.ByteSize() > LARGE_BYTES
