"""What each instruction reads and writes, as indices: stated once for the proof and every report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, assert_never

import numpy as np
import numpy.typing as npt

from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.isa import (
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    Memory,
    Operation,
    Store,
    micro_op_fields,
)

Indices: TypeAlias = npt.NDArray[np.int64]
DRAM = "dram"


@dataclass(frozen=True, slots=True)
class Access:
    """Entries of one memory that an instruction reads or writes; those of ``dram`` are bytes from and to."""

    memory: str
    indices: Indices
    writes: bool


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


def rows_of(instruction: Load | Store, configuration: Configuration) -> Indices:
    """Return the first and the last address, exclusive, of every row of a transfer in DRAM, in bytes."""
    size = instruction.memory.dram_bytes(configuration)
    first = (instruction.dram + np.arange(instruction.rows, dtype=np.int64) * instruction.stride) * size
    rows = np.stack([first, first + instruction.columns * size], axis=1)
    return rows if instruction.columns else rows[:0]


def accesses(instruction: Instruction, configuration: Configuration, micro_ops: Indices) -> Iterator[Access]:
    """Yield what an instruction reads and writes, reads first."""
    match instruction:
        case Load(memory=memory, sram=sram):
            yield Access(DRAM, rows_of(instruction, configuration), False)
            yield Access(memory.sram, np.arange(sram, sram + instruction.entries), True)
        case Store(sram=sram):
            yield Access("accumulator", np.arange(sram, sram + instruction.entries), False)
            yield Access(DRAM, rows_of(instruction, configuration), True)
        case Gemm() | Alu():
            if not instruction.outer * instruction.inner:
                return
            yield Access("micro_op", np.arange(instruction.begin, instruction.end), False)
            yield from _step_accesses(instruction, configuration, micro_ops)
        case Finish():
            pass
        case _:
            assert_never(instruction)


def _step_accesses(instruction: Gemm | Alu, configuration: Configuration, micro_ops: Indices) -> Iterator[Access]:
    destination, source, weight = steps(instruction, micro_ops)
    match instruction:
        case Gemm(lanes=lanes, reset=reset):
            yield Access("input", source, False)
            yield Access("weight", weight // configuration.block_out if lanes else weight, False)
            if not reset:
                yield Access("accumulator", destination, False)
        case Alu(operation=operation, use_immediate=use_immediate):
            if not use_immediate:
                yield Access("accumulator", source, False)
            if operation is Operation.REQUANTIZE:
                yield Access("accumulator", source + 1, False)
                yield Access("accumulator", source + 2, False)
            if operation is not Operation.COPY:
                yield Access("accumulator", destination, False)
    yield Access("accumulator", destination, True)


def loads_micro_ops(instruction: Instruction) -> bool:
    """Whether an instruction changes the memory of micro-ops."""
    return isinstance(instruction, Load) and instruction.memory is Memory.MICRO_OP
