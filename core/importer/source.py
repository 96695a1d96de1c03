"""What a model is given as: a file, bytes or an object becomes a message without its large constants, and these."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from graft.core.graph.protos import every_graph
from graft.core.graph.skeleton import is_large, skeleton_of_model, skeleton_of_proto
from graft.core.importer.checks import check_header, check_tensor
from graft.core.importer.external_data import ModelDirectory, external_tensors
from graft.errors import ModelError
from graft.runtime.arguments import instance
from graft.runtime.foreign import shown

EXTERNAL = onnx.TensorProto.EXTERNAL
Source = str | Path | bytes | onnx.ModelProto | ir.Model

READERS = {".pt2": "graft.torch.exporting"}
"""Files that are not ONNX, by suffix: the module whose `read_model` makes a model of one, imported when one is given.

It stands above this room, and needs a framework that nothing here may need.
"""

SOURCE = instance(
    str, os.PathLike, bytes, onnx.ModelProto, ir.Model,
    wanted='the path of an ONNX model, its bytes, or a model in memory (onnx.ModelProto, onnx_ir.Model)',
)  # fmt: skip
"""What a model may be given as."""


def opened(source: Source) -> tuple[onnx.ModelProto, dict[str, ir.TensorProtocol]]:
    """Return a model with a checked header, and its large constants by name, which the message is without.

    Raises ModelError for what cannot be read, and for external data that are not there or not what the model says.
    """
    if isinstance(source, str | os.PathLike) and Path(source).suffix in READERS:
        source = importlib.import_module(READERS[Path(source).suffix]).read_model(Path(source))
    if isinstance(source, ir.Model):
        proto, directory, constants = skeleton_of_model(source), None, _large_constants(source)
    else:
        (proto, directory), constants = _read(source), {}
    check_header(proto)
    _embed_inner_data(proto, directory)
    proto, large = skeleton_of_proto(proto)
    unread = _drop_unread(proto, {name for name, one in large.items() if one.data_location == EXTERNAL})
    for name, tensor in large.items():
        if name not in unread:
            check_tensor(tensor, f"initialiser '{name}'")
            constants[name] = _constant(tensor, directory)
    return proto, constants


def _read(source: str | Path | bytes | onnx.ModelProto) -> tuple[onnx.ModelProto, ModelDirectory | None]:
    if isinstance(source, onnx.ModelProto):
        return source, None
    if isinstance(source, bytes):
        return _parse(source, "the data"), None
    path = Path(source)
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # a path with a null byte is a ValueError
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelError(f"cannot read {shown(str(path))}: {reason}", path=str(path)) from error
    return _parse(data, f"'{path}'"), ModelDirectory(path.parent, path)


def _large_constants(model: ir.Model) -> dict[str, ir.TensorProtocol]:
    """Return the constants that `skeleton_of_model` leaves out, those in files checked and mapped."""
    constants = {}
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if tensor is None or not is_large(tensor):
            continue
        if isinstance(tensor, ir.ExternalTensor):
            tensor = ModelDirectory(Path(tensor.base_dir)).tensor(ir.to_proto(tensor))
        constants[name] = tensor
    return constants


def _parse(data: bytes, what: str) -> onnx.ModelProto:
    try:
        proto: onnx.ModelProto = onnx.ModelProto.FromString(data)
    except DecodeError:
        if data[:1] == b"\x08":
            raise ModelError(f"{what} begins as an ONNX model but is damaged or cut off; copy it again") from None
        raise ModelError(f"{what} is not an ONNX model; pass the .onnx file that an exporter wrote") from None
    if not proto.HasField("graph"):
        raise ModelError(f"{what} is not an ONNX model; pass the .onnx file that an exporter wrote")
    return proto


def _constant(tensor: onnx.TensorProto, directory: ModelDirectory | None) -> ir.TensorProtocol:
    if tensor.data_location == EXTERNAL:
        return _require_directory(tensor, directory).tensor(tensor)
    return ir.serde.deserialize_tensor(tensor)


def _embed_inner_data(proto: onnx.ModelProto, directory: ModelDirectory | None) -> None:
    """Read external tensors of attributes and subgraphs into the proto: ONNX's tools do not find the files."""
    held = list(proto.graph.initializer)  # a proto's children keep their identity only while they are held
    outer = {id(tensor) for tensor in held}
    for tensor in external_tensors(proto):
        if id(tensor) not in outer:
            tensor.raw_data = bytes(_require_directory(tensor, directory).read(tensor))
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]


def _drop_unread(proto: onnx.ModelProto, external: set[str]) -> set[str]:
    """Drop, in place, what is stored in files and read by nothing; return the names: the files need not be there."""
    read = {name for graph in every_graph(proto.graph) for node in graph.node for name in node.input}
    read |= {value.name for graph in every_graph(proto.graph) for value in graph.output}
    unread = external - read
    for place in reversed(range(len(proto.graph.input))):
        if proto.graph.input[place].name in unread:
            del proto.graph.input[place]
    return unread


def _require_directory(tensor: onnx.TensorProto, directory: ModelDirectory | None) -> ModelDirectory:
    if directory is None:
        raise ModelError(
            f"tensor '{tensor.name}' is stored in a file beside the model, but the model was given without its "
            f"directory; load it by its path",
            tensor=tensor.name,
        )
    return directory
