"""Constants by content: the same bytes, dtype and shape are kept once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from graft.runtime import _native
from graft.runtime.procedure import ALIGNMENT


def constant_key(array: np.ndarray) -> str:
    """Return the content key of a constant: ``<hash of its bytes>-<dtype>-<shape>``.

    The hash (runtime/native/src/artifact/content.h) is fast, 128 bits long and not cryptographic: arrays of one key are
    equal unless somebody made them differ on purpose.
    """
    return f"{_native.content_hash(_bytes(array).data)}-{array.dtype.name}-{'x'.join(map(str, array.shape))}"


def aligned_array(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Return an array without contents at a multiple of `ALIGNMENT` bytes: a program takes it without a copy."""
    size = math.prod(shape) * dtype.itemsize
    room = np.empty(size + ALIGNMENT, np.uint8)
    first = -room.ctypes.data % ALIGNMENT
    return room[first : first + size].view(dtype).reshape(shape)


class ConstantStore:
    """Arrays by key. Bytes decide about equality: an array that has the key of another one gets a number behind it."""

    def __init__(self, arrays: Mapping[str, np.ndarray] | None = None) -> None:
        self.arrays: dict[str, np.ndarray] = dict(arrays or {})
        self._keys: dict[int, tuple[np.ndarray, str]] = {}

    def add(self, array: np.ndarray) -> str:
        """Keep an array and return its key."""
        known = self._keys.get(id(array))
        if known is not None:
            return known[1]
        given, array = array, np.ascontiguousarray(array).reshape(array.shape)
        first = key = constant_key(array)
        number = 1
        while key in self.arrays and not np.array_equal(_bytes(self.arrays[key]), _bytes(array)):
            number += 1
            key = f"{first}-{number}"
        self.arrays.setdefault(key, array)
        self._keys[id(given)] = (given, key)  # holding the array keeps its id taken
        return key


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
