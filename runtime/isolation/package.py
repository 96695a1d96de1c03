"""A module on its way to another process: one piece of memory that both see, with constants that are not copied."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graft.runtime.dtypes import dtype_name, numpy_dtype

_LENGTH = struct.Struct("<Q")
ALIGNMENT = 64
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


@dataclass(frozen=True)
class Package:
    """What a worker needs to load a module."""

    facts: dict[str, Any]
    """Name, kind and functions of the module, how its loader is found, and what the process may do."""
    data: bytes
    constants: Mapping[str, np.ndarray]


def write(package: Package) -> int:
    """Return the descriptor of new memory that holds the package and that nobody can change any more."""
    rows, places, end = [], [], 0
    for name, array in package.constants.items():
        rows.append({"name": name, "dtype": dtype_name(array.dtype), "shape": list(array.shape), "offset": end})
        places.append((end, np.ascontiguousarray(array)))
        end = _aligned(end + array.nbytes)
    facts = {**package.facts, "constants": rows, "size": len(package.data)}
    header = json.dumps(facts).encode()
    start = _aligned(_LENGTH.size + len(header) + len(package.data))
    descriptor = os.memfd_create("graft-module", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.truncate(descriptor, start + max(end, 1))
        with mmap.mmap(descriptor, start + max(end, 1)) as memory:
            head = _LENGTH.pack(len(header)) + header + package.data
            memory[: len(head)] = head
            for offset, array in places:
                memory[start + offset : start + offset + array.nbytes] = array.tobytes()
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read(descriptor: int) -> Package:
    """Return the package in a memory; its constants are read-only and stay as long as they are used."""
    memory = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    length = _LENGTH.unpack_from(memory)[0]
    facts = json.loads(memory[_LENGTH.size : _LENGTH.size + length])
    begin = _LENGTH.size + length
    start = _aligned(begin + facts["size"])
    constants = {
        row["name"]: np.frombuffer(
            memory, numpy_dtype(row["dtype"]), int(np.prod(row["shape"], dtype=np.int64)), start + row["offset"]
        ).reshape(row["shape"])
        for row in facts.pop("constants")
    }
    return Package(facts, memory[begin : begin + facts.pop("size")], constants)


def _aligned(number: int) -> int:
    return -(-number // ALIGNMENT) * ALIGNMENT
