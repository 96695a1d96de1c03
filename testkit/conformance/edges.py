"""Arrays that begin or end at memory that nobody may touch: an access beyond them ends the process."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

_protect = ctypes.CDLL(None, use_errno=True).mprotect
_protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
NOTHING = 0
"""PROT_NONE."""


def at_edge(array: np.ndarray, *, end: bool) -> np.ndarray:
    """Return a copy behind whose last byte, else before whose first, is a page that nobody may read or write.

    Raises OSError if the system protects no page.
    """
    if array.dtype.hasobject or not array.nbytes:
        return np.array(array)
    size = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, size + mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if _protect(begin + (size if end else 0), mmap.PAGESIZE, NOTHING):
        raise OSError(ctypes.get_errno(), "mprotect")
    copy: np.ndarray = np.ndarray(array.shape, array.dtype, memory, size - array.nbytes if end else mmap.PAGESIZE)
    copy[...] = array
    return copy
