"""A walk along a program's accesses: what may be accessed at all, and which two instructions conflict."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from graft.plugins.accelerator.accesses import DRAM, Access, Indices, accesses, decoded, entries_of
from graft.plugins.accelerator.configuration import MICRO_OP_BYTES, Configuration
from graft.plugins.accelerator.isa import Alu, Gemm, Instruction, Load, Memory, Unit, unit_of
from graft.plugins.accelerator.program import Program, Role, Tensor
from graft.plugins.accelerator.tokens import UNITS, named, refuse

NOBODY = -1
BEFORE = -2
"""In the place of a writer: what was there when the program started."""
MOST_STEPS = 1 << 24
"""Of one instruction: no layer needs more, and a program that loops longer is damaged."""
SRAM = ("micro_op", "weight", "input", "accumulator")


@dataclass(slots=True)
class _History:
    """By entry, the last instruction that wrote it and, by unit, the last that read it."""

    writer: npt.NDArray[np.int64]
    readers: npt.NDArray[np.int64]

    @classmethod
    def of(cls, entries: int) -> _History:
        return cls(np.full(entries, NOBODY, np.int64), np.full((UNITS, entries), NOBODY, np.int64))


@dataclass(slots=True)
class Hazards:
    """The walk in an order; ``meet`` is told of two instructions that access an entry which one of them writes.

    It gets the earlier one, the later one, and the words for the entry. Only the last to write and the last of each
    unit to read an entry count: what came before them met them.
    """

    program: Program
    sequence: Sequence[int]
    meet: Callable[[int, int, str], None]
    histories: dict[str, _History] = field(default_factory=dict)
    micro_ops: Indices = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    starts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        configuration = self.program.configuration
        self.histories = {memory: _History.of(entries_of(configuration, memory)) for memory in SRAM}
        dram = self.histories[DRAM] = _History.of(-(-self.program.dram_bytes // granule(configuration)))
        for tensor in self.program.tensors:
            if tensor.role is Role.INPUT or tensor.role.is_constant:
                dram.writer[self._granules(tensor.offset, tensor.end)] = BEFORE
        self.micro_ops = np.zeros((configuration.micro_op_entries, 3), np.int64)
        self.starts = [tensor.offset for tensor in self.program.tensors]

    def run(self) -> None:
        """Follow the program; raise ProofError where an access is wrong whatever the order."""
        for index in self.sequence:
            instruction = self.program.instructions[index]
            self._check_size(index, instruction)
            for access in accesses(instruction, self.program.configuration, self.micro_ops):
                found = self._inside(index, access)
                if found.size:
                    self._record(index, access, found)
            if isinstance(instruction, Load) and instruction.memory is Memory.MICRO_OP:
                self._load_micro_ops(instruction)
        self._check_outputs()

    def _check_size(self, index: int, instruction: Instruction) -> None:
        if isinstance(instruction, Gemm | Alu):
            steps = instruction.outer * instruction.inner * (instruction.end - instruction.begin)
            if steps > MOST_STEPS:
                refuse(f"{named(self.program, index)} takes {steps} steps, and at most {MOST_STEPS} are allowed", index)

    def _record(self, index: int, access: Access, entries: Indices) -> None:
        history = self.histories[access.memory]
        writers = history.writer[entries]
        if not access.writes and (missing := np.flatnonzero(writers == NOBODY)).size:
            self._refuse_unwritten(index, access.memory, int(entries[missing[0]]))
        self._meet(index, access, entries, writers)
        if not access.writes:
            history.readers[unit_of(self.program.instructions[index])][entries] = index
            return
        for unit in Unit:
            self._meet(index, access, entries, history.readers[unit][entries])
        history.writer[entries] = index

    def _refuse_unwritten(self, index: int, memory: str, entry: int) -> NoReturn:
        where = self._spelled(memory, entry)
        for other, instruction in enumerate(self.program.instructions):
            for access in accesses(instruction, self.program.configuration, self.micro_ops):
                if (
                    other != index
                    and access.memory == memory
                    and access.writes
                    and entry in self._inside(other, access)
                ):
                    writer = f"{named(self.program, other)} may write only later"
                    refuse(f"{named(self.program, index)} reads {where}, which {writer}", index, other)
        refuse(f"{named(self.program, index)} reads {where}, which nothing writes", index)

    def _meet(self, index: int, access: Access, entries: Indices, others: Indices) -> None:
        for other in np.unique(others):
            if other >= 0 and other != index:
                where = self._spelled(access.memory, int(entries[np.argmax(others == other)]))
                self.meet(int(other), index, where)

    def _inside(self, index: int, access: Access) -> Indices:
        """Return the entries of an access once they are known to lie where they may."""
        if access.memory == DRAM:
            return self._inside_tensors(index, access)
        entries = entries_of(self.program.configuration, access.memory)
        if access.indices.size and not 0 <= access.indices.min() <= access.indices.max() < entries:
            refuse(
                f"{named(self.program, index)} {'writes' if access.writes else 'reads'} {access.memory} "
                f"{int(access.indices.max())}, and there are {entries} entries",
                index,
            )
        instruction = self.program.instructions[index]
        if isinstance(instruction, Gemm) and instruction.lanes:
            configuration = self.program.configuration
            if configuration.block_in != configuration.block_out:
                refuse(f"{named(self.program, index)} multiplies lanes, and blocks are not square", index)
        return access.indices

    def _inside_tensors(self, index: int, access: Access) -> Indices:
        if not len(access.indices):
            return np.zeros(0, np.int64)
        pieces = []
        for first, last in access.indices.tolist():
            tensor = self._tensor_at(first)
            if tensor is None or last > tensor.end:
                near = "no tensor is there" if tensor is None else f"'{tensor.name}' ends at {tensor.end}"
                refuse(f"{named(self.program, index)} accesses DRAM from {first} to {last}, and {near}", index)
            self._check_role(index, access, tensor)
            pieces.append(self._granules(first, last))
        return np.concatenate(pieces)

    def _tensor_at(self, address: int) -> Tensor | None:
        place = bisect_right(self.starts, address) - 1
        return self.program.tensors[place] if place >= 0 else None

    def _check_role(self, index: int, access: Access, tensor: Tensor) -> None:
        instruction = self.program.instructions[index]
        of_micro_ops = isinstance(instruction, Load) and instruction.memory is Memory.MICRO_OP
        if access.writes and tensor.role not in (Role.OUTPUT, Role.WORKSPACE):
            refuse(f"{named(self.program, index)} writes '{tensor.name}', whose role is '{tensor.role}'", index)
        if of_micro_ops != (tensor.role is Role.MICRO_OPS):
            what = "micro-ops" if of_micro_ops else "numbers"
            refuse(f"{named(self.program, index)} reads {what} from '{tensor.name}' ({tensor.role})", index)

    def _granules(self, first: int, last: int) -> Indices:
        size = granule(self.program.configuration)
        return np.arange(first // size, -(-last // size))

    def _spelled(self, memory: str, entry: int) -> str:
        return f"{memory} {entry * granule(self.program.configuration) if memory == DRAM else entry}"

    def _load_micro_ops(self, load: Load) -> None:
        first = load.dram * MICRO_OP_BYTES
        tensor = self._tensor_at(first)
        if not load.entries or tensor is None:
            return
        for row in range(load.rows):
            start = first + row * load.stride * MICRO_OP_BYTES - tensor.offset
            sram = load.sram + row * load.columns
            data = tensor.data[start : start + load.columns * MICRO_OP_BYTES]
            self.micro_ops[sram : sram + load.columns] = decoded(data, self.program.configuration)

    def _check_outputs(self) -> None:
        writer = self.histories[DRAM].writer
        for tensor in self.program.tensors:
            if tensor.role is Role.OUTPUT and tensor.size:
                granules = self._granules(tensor.offset, tensor.end)
                missing = np.flatnonzero(writer[granules] == NOBODY)
                if missing.size:
                    where = self._spelled(DRAM, int(granules[missing[0]]))
                    refuse(f"the output '{tensor.name}' is never written at {where}")


def granule(configuration: Configuration) -> int:
    """Return the bytes of DRAM that are accessed together or not at all, but for constants."""
    return math.gcd(configuration.batch * configuration.block_in, configuration.batch * configuration.block_out)
