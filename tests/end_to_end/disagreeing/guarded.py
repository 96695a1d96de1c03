"""Arrays that end at a page that nobody may read: what reads past one ends the process."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

_PAGE = mmap.PAGESIZE


class Guarded:
    """Memory for arrays, each up against a page without access; behind its owner's life nobody may use them."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._maps: list[mmap.mmap] = []

    def copy(self, array: np.ndarray) -> np.ndarray:
        """Return a copy that ends right before such a page; what is before it on its own page is 85s."""
        if array.dtype.hasobject:  # texts are read through the interpreter
            return array
        size = array.nbytes
        room = -(-max(size, 1) // _PAGE) * _PAGE
        pages = mmap.mmap(-1, room + _PAGE)
        self._maps.append(pages)
        whole = np.frombuffer(pages, np.uint8)
        whole[:room] = 85
        address = whole.ctypes.data
        if self._libc.mprotect(ctypes.c_void_p(address + room), ctypes.c_size_t(_PAGE), 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")
        placed = whole[room - size : room].view(array.dtype).reshape(array.shape)
        placed[...] = array
        return placed
