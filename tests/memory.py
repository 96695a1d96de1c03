"""An independent check of where a procedure's tensors lie: what a call reads is what was written for it."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from graft.runtime.dtypes import element_type
from graft.runtime.procedure import Call, Procedure


def check_memory(procedure: Procedure) -> None:
    """Walk the calls over an arena whose every byte knows the tensor that it was last written for."""
    arena = np.full(procedure.arena_bytes, -1)
    outside = {index: np.full(_bytes(procedure, index), -1) for index in _owners(procedure)}
    for index in outside:
        if procedure.tensors[index].storage in ("input", "constant"):
            outside[index][:] = index
    for call in procedure.calls:
        for index in _read(call):
            owner, memory = _memory(procedure, index, arena, outside)
            assert (memory == owner).all(), (
                f"{call.function} reads '{procedure.tensors[index].name}', which is not there"
            )
        for index in call.outputs:
            owner, memory = _memory(procedure, index, arena, outside)
            for position, other in enumerate(call.inputs):
                there = _memory(procedure, other, arena, outside)[1]
                same = memory.ctypes.data == there.ctypes.data and memory.size == there.size
                replaced = position in call.in_place and same
                assert replaced or not np.shares_memory(memory, there), f"{call.function} writes what it reads"
            memory[:] = owner
    for index in procedure.outputs:
        owner, memory = _memory(procedure, index, arena, outside)
        assert (memory == owner).all(), f"output '{procedure.tensors[index].name}' is not whole"


def _owners(procedure: Procedure) -> Iterator[int]:
    return (index for index, tensor in enumerate(procedure.tensors) if tensor.storage not in ("arena", "view"))


def _read(call: Call) -> Iterator[int]:
    yield from (index for index in call.inputs if index >= 0)
    for arguments in call.arguments:
        yield from arguments


def _memory(
    procedure: Procedure, index: int, arena: np.ndarray, outside: dict[int, np.ndarray]
) -> tuple[int, np.ndarray]:
    """The tensor that owns the bytes of another one, and these bytes."""
    tensor, offset = procedure.tensors[index], 0
    size = _bytes(procedure, index)
    while tensor.storage == "view":
        index, offset = tensor.of, offset + tensor.offset
        tensor = procedure.tensors[index]
    if tensor.storage != "arena":
        return index, outside[index][offset : offset + size]
    assert offset + size <= _bytes(procedure, index)
    assert tensor.offset + _bytes(procedure, index) <= procedure.arena_bytes
    return index, arena[tensor.offset + offset :][:size]


def _bytes(procedure: Procedure, index: int) -> int:
    tensor = procedure.tensors[index]
    assert tensor.shape is not None, f"'{tensor.name}' has no static shape"
    return prod(tensor.shape) * element_type(tensor.dtype).bytes
