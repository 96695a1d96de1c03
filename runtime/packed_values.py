"""Values that are no tensors of numbers (strings, sequences, optionals, elements narrower than a byte), as bytes.

The executor knows tensors of the types in `graft.runtime.dtypes`. Any other value is a ``uint8`` tensor of one axis
there, which Python packs and unpacks where it enters and leaves the program and the modules that compute with it.

    value    = 0                                               an optional without a value
             | 1 dtype rank extent... content                  a tensor
             | 2 count value...                                a sequence
    dtype    = length (1 byte) and name, "string" or that of a NumPy dtype (``int4``, ``float4_e2m1fn``)
    content  = the elements in row-major order, a byte at least each; of strings length and UTF-8

Counts, lengths and extents are unsigned 64-bit integers, little-endian; rank is a byte.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graft.errors import InputError
from graft.runtime import _native

ABSENT, TENSOR, SEQUENCE = 0, 1, 2
METADATA = "packed"
"""The key of an artifact's metadata: by ``inputs`` and ``outputs``, the types of those that are packed, by name."""
MOST_DEPTH = 16
"""How far sequences may lie in each other."""


def packed_of(metadata: Mapping[str, Any], which: str) -> dict[str, str]:
    """Return the types of the packed inputs or outputs that an artifact's metadata names, by name."""
    rows = metadata.get(METADATA)
    found = rows.get(which) if isinstance(rows, Mapping) else None
    return {str(name): str(kind) for name, kind in found.items()} if isinstance(found, Mapping) else {}


def pack(value: Any) -> np.ndarray:
    """Return the bytes of a value: None, an array, text, a number, or a sequence of these.

    Raises InputError for arrays of objects that are no text.
    """
    parts: list[bytes] = []
    _write(value, parts)
    return np.frombuffer(b"".join(parts), np.uint8).copy()


def _write(value: Any, parts: list[bytes]) -> None:
    if value is None:
        parts.append(bytes([ABSENT]))
    elif isinstance(value, list | tuple):
        parts += [bytes([SEQUENCE]), _number(len(value))]
        for one in value:
            _write(one, parts)
    else:
        array = np.asarray(value)
        texts = array.dtype.hasobject or array.dtype.kind in "US"
        name = b"string" if texts else array.dtype.name.encode()
        parts += [bytes([TENSOR, len(name)]), name, bytes([array.ndim]), *map(_number, array.shape)]
        parts.append(_texts(array.reshape(-1).tolist()) if texts else array.tobytes())


def _texts(elements: list[Any]) -> bytes:
    try:
        return _native.write_texts(elements)
    except TypeError:
        other = next(one for one in elements if not isinstance(one, str | bytes))
        raise InputError(f"an array of objects holds {other!r}; give texts alone") from None


MOST_AXES, MOST_ELEMENTS = 64, 1 << 58
"""What an array may have: NumPy counts bytes of empty ones, too, as if their extents of 0 were 1."""


def _number(value: int) -> bytes:
    return value.to_bytes(8, "little")


def unpack(data: np.ndarray) -> Any:
    """Return the value of packed bytes: None, an array or a list; raise InputError if they are damaged."""
    reader = _Reader(np.ascontiguousarray(data).tobytes())
    value = reader.value(0)
    if reader.place != len(reader.data):
        raise InputError(f"a packed value has {len(reader.data) - reader.place} bytes behind its end")
    return value


class _Reader:
    """Packed bytes and how far they are read."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def value(self, depth: int) -> Any:
        tag = self._take(1)[0]
        if tag == ABSENT:
            return None
        if tag == SEQUENCE and depth < MOST_DEPTH:
            count = self._count(1)
            return [self.value(depth + 1) for _ in range(count)]
        if tag != TENSOR:
            raise InputError(f"a packed value has tag {tag} at depth {depth}; known are 0 to 2, down to {MOST_DEPTH}")
        name = self._take(self._take(1)[0]).decode("ascii", "replace")
        rank = self._take(1)[0]
        shape = struct.unpack(f"<{rank}Q", self._take(8 * rank))
        is_empty = 0 in shape  # else all elements must be there
        if len(shape) > MOST_AXES or (is_empty and math.prod(max(one, 1) for one in shape) > MOST_ELEMENTS):
            raise InputError(f"a packed value has the shape {[*shape]}, which no array can have")
        return self._texts(shape) if name == "string" else self._numbers(name, shape)

    def _texts(self, shape: Sequence[int]) -> np.ndarray:
        count = math.prod(shape)
        self._require(8 * count)
        texts, self.place = _native.read_texts(self.data, self.place, count)
        if len(texts) < count:
            self._count(1)  # which says what is wrong
        array = np.empty(len(texts), object)
        array[:] = texts
        return array.reshape(shape)

    def _numbers(self, name: str, shape: Sequence[int]) -> np.ndarray:
        dtype, count, begin = _dtype(name), math.prod(shape), self.place
        self._take(count * dtype.itemsize)
        return np.frombuffer(self.data, dtype, count, begin).reshape(shape).copy() if count else np.empty(shape, dtype)

    def _count(self, size: int) -> int:
        """Return a count of things of at least so many bytes, which must be there."""
        count = int.from_bytes(self._take(8), "little")
        self._require(count * size)
        return count

    def _take(self, size: int) -> bytes:
        begin, end = self.place, self.place + size
        if end > len(self.data):
            self._require(size)
        self.place = end
        return self.data[begin:end]

    def _require(self, size: int) -> None:
        if size > len(self.data) - self.place:
            raise InputError(
                f"a packed value ends after {len(self.data)} bytes: it tells of {size} more at {self.place}"
            )


def _dtype(name: str) -> np.dtype:
    try:
        found = np.dtype(name) if name.isidentifier() else _small_dtype(name)  # not a text of several types
    except (TypeError, ValueError):
        found = _small_dtype(name)
    if found.hasobject:
        raise InputError(f"a packed tensor is of objects ('{name}')")
    return found


def _small_dtype(name: str) -> np.dtype:
    try:
        import ml_dtypes

        dtype: np.dtype = np.dtype(getattr(ml_dtypes, name))
        return dtype
    except (ImportError, AttributeError, TypeError) as error:
        raise InputError(f"a packed tensor is of '{name}', which neither NumPy nor ml_dtypes knows here") from error
