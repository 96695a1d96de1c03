"""Micro-ops and steps as arrays of indices."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.isa import Alu, Gemm, micro_op_fields

Indices: TypeAlias = npt.NDArray[np.int64]


def entries_of(configuration: Configuration, memory: str) -> int:
    """Return how many entries a memory of the accelerator has."""
    return int(getattr(configuration, f"{memory}_entries"))


def decoded(data: bytes, configuration: Configuration) -> Indices:
    """Return the micro-ops of bytes as rows of destination, source and weight."""
    words = np.frombuffer(data, "<u4").astype(np.int64)
    columns = []
    for field in micro_op_fields(configuration):
        columns.append(words & field.most)
        words = words >> field.width
    return np.stack(columns, axis=1)


def steps(instruction: Gemm | Alu, micro_ops: Indices) -> tuple[Indices, Indices, Indices]:
    """Return destination, source and weight of every step, in the order in which they are taken.

    ``micro_ops`` are the decoded contents of the memory of micro-ops.
    """
    outer, inner = np.arange(instruction.outer)[:, None, None], np.arange(instruction.inner)[None, :, None]
    rows = micro_ops[instruction.begin : instruction.end]

    def along(column: int, by_outer: int, by_inner: int) -> Indices:
        return (rows[None, None, :, column] + outer * by_outer + inner * by_inner).reshape(-1)

    weight = (instruction.weight_outer, instruction.weight_inner) if isinstance(instruction, Gemm) else (0, 0)
    return (
        along(0, instruction.destination_outer, instruction.destination_inner),
        along(1, instruction.source_outer, instruction.source_inner),
        along(2, *weight),
    )
