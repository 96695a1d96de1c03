"""External data: weights in files beside the model.

A model comes from anywhere, so its references are hostile until checked. A file is opened component by component
below the model's directory without following links, checked as opened (so that it cannot be exchanged in between),
and mapped read-only: pages are read when a weight is first used. A link is resolved beforehand, and what it leads to
must lie below the model's directory, or below that of the file that the model's own link leads to (so the caches of
model hubs keep both); it is then opened like any other.
"""

from __future__ import annotations

import math
import mmap
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
import onnx
import onnx_ir as ir
from google.protobuf.message import Message

from graft.errors import ModelError

DRIVE = re.compile("[A-Za-z]:")
KEYS = ("location", "offset", "length", "checksum")


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a tensor's bytes are: a path relative to the model, and a range there (no length: what is needed)."""

    tensor: str
    location: str
    offset: int = 0
    length: int | None = None

    def fault(self, what: str) -> ModelError:
        """Return the error that says what is wrong with this reference."""
        return _fault(self.tensor, f"in '{self.location}'{what}")


def _fault(tensor: str, what: str) -> ModelError:
    return ModelError(f"external data of tensor '{tensor}' {what}", tensor=tensor)


@dataclass(slots=True)
class ModelDirectory:
    """The directory of a model file, and the data files in it that are mapped so far."""

    path: Path
    model: Path | None = None
    """The model file, of which the directory counts as well where the model is a link."""
    _maps: dict[str, mmap.mmap | bytes] = field(default_factory=dict)

    def read(self, tensor: onnx.TensorProto) -> memoryview:
        """Return the bytes of an external tensor, mapped; raise ModelError if they are not where they must be."""
        reference = reference_of(tensor)
        if reference.location not in self._maps:
            self._maps[reference.location] = self._map(reference)
        data = self._maps[reference.location]
        size, needed = len(data), tensor_bytes(tensor)
        left = size - reference.offset
        # without a length, and with one of 0 as some writers have it, a tensor takes what its type needs
        length = reference.length or min(left, needed)
        if reference.offset + length > size or length < 0:
            end = reference.offset + max(length, 0)
            raise reference.fault(f" ends at byte {end} but the file has {size} bytes; is the download complete?")
        if length != needed:
            raise reference.fault(f" has {length} bytes but its type needs {needed}; export the model again")
        return memoryview(data)[reference.offset : reference.offset + length]

    def tensor(self, tensor: onnx.TensorProto) -> ir.TensorProtocol:
        """Return an external tensor backed by the mapped file."""
        data, dtype, shape = self.read(tensor), ir.DataType(tensor.data_type), ir.Shape(tensor.dims)
        if dtype.bitwidth < 8:
            return ir.PackedTensor(np.frombuffer(data, np.uint8), dtype, shape=shape, name=tensor.name)
        array = np.frombuffer(data, dtype.numpy()).reshape(tuple(tensor.dims))
        return ir.Tensor(array, dtype, shape=shape, name=tensor.name)

    def _map(self, reference: Reference) -> mmap.mmap | bytes:
        descriptor = self._open(reference)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise reference.fault(": that is not a regular file")
            if status.st_nlink > 1:
                raise reference.fault(
                    f": the file has {status.st_nlink} hard links, so it may belong to somebody else; copy it"
                )
            return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) if status.st_size else b""
        finally:
            os.close(descriptor)

    def _open(self, reference: Reference) -> int:
        """Open the file of a reference below the directory, following no link on the way but those resolved before."""
        base, parts = self._resolved(reference, _safe_parts(reference))
        descriptor = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for index, part in enumerate(parts):
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                flags |= os.O_DIRECTORY if index + 1 < len(parts) else 0
                below = os.open(part, flags, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
        except OSError as error:
            os.close(descriptor)
            reason = "it is a symbolic link" if _is_link(base, parts) else error.strerror
            raise reference.fault(f": cannot open '{self.path / reference.location}': {reason}") from error
        return descriptor

    def _resolved(self, reference: Reference, parts: tuple[str, ...]) -> tuple[Path, tuple[str, ...]]:
        """Return a directory and the way from there to a file: the given one, unless there is a link on it."""
        if not _is_link(self.path, parts):
            return self.path, parts
        target = self.path.joinpath(*parts).resolve()
        roots = [self.path.resolve(), *([self.model.resolve().parent] if self.model is not None else [])]
        for root in roots:
            if target.is_relative_to(root):
                return root, target.relative_to(root).parts
        raise reference.fault(
            f": cannot open '{self.path / reference.location}': it is a symbolic link that leads out "
            "of the model's directory; copy the file there"
        )


def external_tensors(message: Message) -> Iterator[onnx.TensorProto]:
    """Yield every tensor below ``message`` that is stored outside of it, attributes and subgraphs included."""
    if isinstance(message, onnx.TensorProto):
        if message.data_location == onnx.TensorProto.EXTERNAL:
            yield message
        return
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        for child in [value] if isinstance(value, Message) else value:
            yield from external_tensors(child)


def reference_of(tensor: onnx.TensorProto) -> Reference:
    """Return the reference that an external tensor carries; raise ModelError if its entries are wrong."""
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key not in KEYS or entry.key in entries:
            fault = "unknown" if entry.key not in KEYS else "repeated"
            raise _fault(tensor.name, f"has the {fault} key '{entry.key}'; known keys are {', '.join(KEYS)}")
        entries[entry.key] = entry.value
    if not entries.get("location"):
        raise _fault(tensor.name, "has no location")
    length = entries.get("length")
    return Reference(
        tensor.name,
        entries["location"],
        _byte_count(tensor, "offset", entries.get("offset", "0")),
        None if length is None else _byte_count(tensor, "length", length),
    )


def tensor_bytes(tensor: onnx.TensorProto) -> int:
    """Return the number of bytes that a tensor's type and shape need; raise ModelError where they need none."""
    if tensor.data_type not in set(ir.DataType) - {ir.DataType.UNDEFINED, ir.DataType.STRING}:
        raise _fault(tensor.name, f"has element type {tensor.data_type}, which cannot be external")
    if any(dimension < 0 for dimension in tensor.dims):
        raise _fault(tensor.name, f"has the shape {list(tensor.dims)}; dimensions are at least 0")
    return -(-int(math.prod(tensor.dims)) * ir.DataType(tensor.data_type).bitwidth // 8)


def _byte_count(tensor: onnx.TensorProto, key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise _fault(tensor.name, f"has {key} '{text}', which is not a number of bytes")
    return int(text)


def _safe_parts(reference: Reference) -> tuple[str, ...]:
    path = PurePosixPath(reference.location.replace("\\", "/"))
    parts: list[str] = []
    is_outside = path.is_absolute() or "\0" in reference.location or DRIVE.match(reference.location) is not None
    for part in path.parts:
        if part != "..":
            parts.append(part)
        elif parts:
            parts.pop()
        else:
            is_outside = True
    if is_outside:
        raise reference.fault(": the path leaves the model's directory; use a relative path without '..'")
    return tuple(parts)


def _is_link(base: Path, parts: tuple[str, ...]) -> bool:
    return any(base.joinpath(*parts[: count + 1]).is_symlink() for count in range(len(parts)))
