"""Objects of kernels that are linked later, when a program is exported: kind ``objects`` of a module.

Where Graft has no runtime (a browser, a board), a kernel is a plain function in a relocatable object of its own, and
whatever makes the final program links them. The layout (little endian): ``GRAFTOBJ``; u32 version 1; u32 count; per
function u32 lengths of its name, of the symbol it has in its object, and of the object; then, per function, the three.

A kernel takes the context, a pointer for each tensor, and behind a pointer those extents of that tensor that vary and
were not taken before, as 64-bit integers. One that takes any has beside it the constant ``<symbol>.extents``: for each
of them u16 number of the tensor, u8 axis, and u8 `EXTENT`, or `STRIDE` for the elements from one row to the next.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graft.errors import ArtifactError

if TYPE_CHECKING:
    from graft.runtime.procedure import ProgramDescription

KIND = "objects"
MAGIC, VERSION = b"GRAFTOBJ", 1
EXTENTS_SUFFIX, EXTENT, STRIDE = ".extents", 0, 1
_HEADER, _ROW, _TAKEN = struct.Struct("<8sII"), struct.Struct("<III"), struct.Struct("<HBB")


def taken_extent(tensor: int, axis: int, kind: int) -> bytes:
    """Return the entry of a constant ``.extents`` for an extent that a kernel takes."""
    return _TAKEN.pack(tensor, axis, kind)


def taken_extents(data: bytes) -> tuple[tuple[int, int, int], ...]:
    """Return tensor, axis and kind of all entries of such a constant, in order."""
    return tuple((tensor, axis, kind) for tensor, axis, kind in _TAKEN.iter_unpack(data))


def require_runtime(description: ProgramDescription) -> None:
    """Raise ArtifactError for a program for a machine that the runtime is not on."""
    if any(module.kind == KIND for module in description.modules):
        arch = ", ".join(str(target.get("arch")) for target in description.targets)
        raise ArtifactError(
            f"the program was compiled for {arch}, where no runtime is that could load it; export it instead, as "
            "graft.export_wasm does",
            arch=arch,
        )


@dataclass(frozen=True, slots=True)
class ObjectFunction:
    """A function of a module, the relocatable object that has it, and what it is called there."""

    name: str
    symbol: str
    data: bytes


def pack_objects(functions: Iterable[ObjectFunction]) -> bytes:
    """Return the data of a module of kind ``objects``."""
    parts = [(one.name.encode(), one.symbol.encode(), one.data) for one in functions]
    rows = [_ROW.pack(*map(len, part)) for part in parts]
    return b"".join((_HEADER.pack(MAGIC, VERSION, len(parts)), *rows, *(one for part in parts for one in part)))


def unpack_objects(data: bytes) -> tuple[ObjectFunction, ...]:
    """Return what `pack_objects` wrote; raise ArtifactError for anything else."""
    if len(data) < _HEADER.size or data[: len(MAGIC)] != MAGIC:
        raise ArtifactError("the module holds no objects to link")
    _, version, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise ArtifactError(f"the module holds objects of version {version}, this runtime reads version {VERSION}")
    offset = _HEADER.size + count * _ROW.size
    if offset > len(data):
        raise ArtifactError(f"the module has {count} objects, and ends in the table of them")
    functions = []
    for number in range(count):
        lengths = _ROW.unpack_from(data, _HEADER.size + number * _ROW.size)
        parts = []
        for length in lengths:
            parts.append(data[offset : offset + length])
            offset += length
        functions.append(ObjectFunction(parts[0].decode(), parts[1].decode(), parts[2]))
    if offset != len(data):
        raise ArtifactError(f"the objects of the module end at {offset}, the module at {len(data)}")
    return tuple(functions)
