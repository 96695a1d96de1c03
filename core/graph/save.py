"""Saving models: one ONNX file, or one without its large constants and a file of these beside it."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import EncodeError

from graft.core.graph.skeleton import LARGE_BYTES
from graft.errors import ModelError
from graft.runtime.system.files import write, writing

ALIGNMENT = 64
"""Where constants begin in a file of their own: at multiples of this many bytes."""


def save_model(model: ir.Model, path: str | os.PathLike[str], what: str = "model") -> None:
    """Write a model with its weights inside (those in other files are read), in the format that the suffix names.

    That is protobuf for ``.onnx`` and for all that ONNX does not know. Raises ModelError if the file cannot be written,
    or if the model is larger than protobuf can hold (2 GiB).
    """
    ir.external_data.load_to_model(model)
    _write(ir.to_proto(model), path, what)


def save_with_data(model: ir.Model, path: str | os.PathLike[str], what: str = "model") -> None:
    """Write a model without the large constants of its main graph, which go to ``<path>.data``, as ONNX has it.

    Raises ModelError as `save_model` does.
    """
    data = Path(f"{os.fspath(path)}.data")
    initializers = list(model.graph.initializers.values())
    large = {value.name or "": value.const_value for value in initializers if _is_large(value.const_value)}
    try:
        for name in large:
            del model.graph.initializers[name]
        proto = ir.to_proto(model)
    finally:
        model.graph.initializers.clear()
        for value in initializers:
            model.graph.initializers.add(value)
    with writing(data, f"constants of the {what}", ModelError) as file:
        offset = 0
        for name, tensor in large.items():
            assert tensor is not None, name
            content = tensor.tobytes()
            file.write(bytes(-offset % ALIGNMENT))
            offset += -offset % ALIGNMENT
            file.write(content)
            entry = proto.graph.initializer.add(name=name, data_type=tensor.dtype, dims=tensor.shape.numpy())
            entry.data_location = onnx.TensorProto.EXTERNAL
            for key, fact in (("location", data.name), ("offset", offset), ("length", len(content))):
                entry.external_data.add(key=key, value=str(fact))
            offset += len(content)
    _write(proto, path, what)


def _write(proto: onnx.ModelProto, path: str | os.PathLike[str], what: str) -> None:
    registry = onnx.serialization.registry
    form = registry.get_format_from_file_extension(Path(path).suffix) or "protobuf"
    try:
        content = registry.get(form).serialize_proto(proto)
    except (EncodeError, ValueError) as error:
        raise ModelError(
            f"cannot write {what} '{path}': it does not fit into one file of 2 GiB ({error}); write fewer weights",
            path=str(path),
        ) from error
    write(path, content, what, ModelError)


def _is_large(tensor: ir.TensorProtocol | None) -> bool:
    return tensor is not None and tensor.dtype is not ir.DataType.STRING and tensor.nbytes > LARGE_BYTES
