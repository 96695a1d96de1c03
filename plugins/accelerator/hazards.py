"""A walk along a program's accesses: what may be accessed at all, and which two instructions conflict."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from graft.plugins.accelerator.accesses import DRAM, Access, Indices, accesses, decoded, entries_of
from graft.plugins.accelerator.configuration import MICRO_OP_BYTES, Configuration
from graft.plugins.accelerator.isa import TOKENS, Alu, Gemm, Instruction, Load, Memory, Store, unit_of
from graft.plugins.accelerator.program import Program, Role, Tensor
from graft.plugins.accelerator.tokens import UNITS, named, refuse

NOBODY = -1
NO_TOKENS: dict[str, Any] = {field.name: False for field in TOKENS}
MOST_STEPS = 1 << 24
"""Of one instruction: no layer needs more, and a program that loops longer is damaged."""
SRAM = ("micro_op", "weight", "input", "accumulator")


Entries: TypeAlias = slice | Indices
"""Some entries of a memory, each once; a slice where they lie together."""


@dataclass(slots=True)
class _History:
    """By unit and entry, the last instruction that wrote it and the last that read it, and what was ever written."""

    writers: npt.NDArray[np.int64]
    readers: npt.NDArray[np.int64]
    written: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, entries: int) -> _History:
        nobody = np.full((UNITS, entries), NOBODY, np.int64)
        return cls(nobody, nobody.copy(), np.zeros(entries, np.bool_))


@dataclass(slots=True)
class Hazards:
    """The walk in an order; ``meet`` is told of two instructions that access an entry which one of them writes.

    It gets the earlier one, the later one, and a function that spells the entry. Only the last of each unit to write
    and to read an entry count: a unit takes its instructions in order.
    """

    program: Program
    sequence: Sequence[int]
    meet: Callable[[int, int, Callable[[], str]], None]
    histories: dict[str, _History] = field(default_factory=dict)
    micro_ops: Indices = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    starts: list[int] = field(default_factory=list)
    steps: dict[Instruction, list[tuple[Access, Entries]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        configuration = self.program.configuration
        self.histories = {memory: _History.of(entries_of(configuration, memory)) for memory in SRAM}
        dram = self.histories[DRAM] = _History.of(-(-self.program.dram_bytes // granule(configuration)))
        for tensor in self.program.tensors:
            if tensor.role is Role.INPUT or tensor.role.is_constant:
                dram.written[self._granules(tensor.offset, tensor.end)] = True
        self.micro_ops = np.zeros((configuration.micro_op_entries, 3), np.int64)
        self.starts = [tensor.offset for tensor in self.program.tensors]

    def run(self) -> None:
        """Follow the program; raise ProofError where an access is wrong whatever the order."""
        for index in self.sequence:
            instruction = self.program.instructions[index]
            self._check_size(index, instruction)
            for access, entries in self._accesses(index, instruction):
                self._record(index, access, entries)
            if isinstance(instruction, Load) and instruction.memory is Memory.MICRO_OP:
                self._load_micro_ops(instruction)
                self.steps.clear()
        self._check_outputs()

    def _check_size(self, index: int, instruction: Instruction) -> None:
        if isinstance(instruction, Gemm | Alu):
            steps = instruction.outer * instruction.inner * (instruction.end - instruction.begin)
            if steps > MOST_STEPS:
                refuse(f"{named(self.program, index)} takes {steps} steps, and at most {MOST_STEPS} are allowed", index)

    def _accesses(self, index: int, instruction: Instruction) -> list[tuple[Access, Entries]]:
        """Return the accesses of an instruction that are not empty, known to be where they may.

        Those of steps are kept until other micro-ops are loaded: tiles repeat them.
        """
        if isinstance(instruction, Gemm | Alu):
            key = replace(instruction, **NO_TOKENS)
            if key not in self.steps:
                self.steps[key] = list(self._found(index, instruction))
            return self.steps[key]
        return list(self._found(index, instruction))

    def _found(self, index: int, instruction: Instruction) -> Iterator[tuple[Access, Entries]]:
        for access in accesses(instruction, self.program.configuration, self.micro_ops):
            if access.indices.size:
                yield access, self._inside(index, access)

    def _record(self, index: int, access: Access, entries: Entries) -> None:
        history = self.histories[access.memory]
        unit = unit_of(self.program.instructions[index])
        if not access.writes and not history.written[entries].all():
            missing = int(np.flatnonzero(~history.written[entries])[0])
            self._refuse_unwritten(index, access.memory, _entry(entries, missing))
        self._meet(index, access, entries, history.writers)
        if not access.writes:
            history.readers[unit, entries] = index
            return
        self._meet(index, access, entries, history.readers)
        history.writers[unit, entries] = index
        history.written[entries] = True

    def _refuse_unwritten(self, index: int, memory: str, entry: int) -> NoReturn:
        where = self._spelled(memory, entry)
        for other, instruction in enumerate(self.program.instructions):
            for access in accesses(instruction, self.program.configuration, self.micro_ops):
                if other == index or access.memory != memory or not access.writes or not access.indices.size:
                    continue
                entries = self._inside(other, access)
                if entry in (range(entries.start, entries.stop) if isinstance(entries, slice) else entries):
                    writer = f"{named(self.program, other)} may write only later"
                    refuse(f"{named(self.program, index)} reads {where}, which {writer}", index, other)
        refuse(f"{named(self.program, index)} reads {where}, which nothing writes", index)

    def _meet(self, index: int, access: Access, entries: Entries, histories: npt.NDArray[np.int64]) -> None:
        lasts: npt.NDArray[np.int64] = histories[:, entries].max(axis=1)
        for unit, other in enumerate(lasts.tolist()):
            if other >= 0 and other != index:
                self.meet(other, index, partial(self._met, access.memory, entries, histories[unit], other))

    def _met(self, memory: str, entries: Entries, history: npt.NDArray[np.int64], other: int) -> str:
        return self._spelled(memory, _entry(entries, int(np.argmax(history[entries] == other))))

    def _inside(self, index: int, access: Access) -> Entries:
        """Return the entries of an access, which is not empty, once they are known to lie where they may."""
        if access.memory == DRAM:
            return self._inside_tensors(index, access)
        entries = entries_of(self.program.configuration, access.memory)
        least, most = int(access.indices.min()), int(access.indices.max())
        if not 0 <= least <= most < entries:
            refuse(
                f"{named(self.program, index)} {'writes' if access.writes else 'reads'} {access.memory} "
                f"{most}, and there are {entries} entries",
                index,
            )
        instruction = self.program.instructions[index]
        if isinstance(instruction, Gemm) and instruction.lanes:
            configuration = self.program.configuration
            if configuration.block_in != configuration.block_out:
                refuse(f"{named(self.program, index)} multiplies lanes, and blocks are not square", index)
        if access.indices.size == most - least + 1 and isinstance(instruction, Load | Store):
            return slice(least, most + 1)
        used = np.zeros(most - least + 1, np.bool_)
        used[access.indices - least] = True
        return slice(least, most + 1) if used.all() else np.flatnonzero(used) + least

    def _inside_tensors(self, index: int, access: Access) -> Entries:
        least, most = int(access.indices[:, 0].min()), int(access.indices[:, 1].max())
        tensor = self._tensor_at(least)
        if tensor is None or most > tensor.end:
            for first, last in access.indices.tolist():
                tensor = self._tensor_at(first)
                if tensor is None or last > tensor.end:
                    near = "no tensor is there" if tensor is None else f"'{tensor.name}' ends at {tensor.end}"
                    refuse(f"{named(self.program, index)} accesses DRAM from {first} to {last}, and {near}", index)
                self._check_role(index, access, tensor)
        else:
            self._check_role(index, access, tensor)
        first, last = (access.indices // granule(self.program.configuration)).T
        if len(first) == 1 or bool((first[1:] == last[:-1]).all()):
            return slice(int(first[0]), -(-most // granule(self.program.configuration)))
        return np.unique(np.concatenate([self._granules(*row) for row in access.indices.tolist()]))

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
        written = self.histories[DRAM].written
        for tensor in self.program.tensors:
            if tensor.role is Role.OUTPUT and tensor.size:
                granules = self._granules(tensor.offset, tensor.end)
                missing = np.flatnonzero(~written[granules])
                if missing.size:
                    where = self._spelled(DRAM, int(granules[missing[0]]))
                    refuse(f"the output '{tensor.name}' is never written at {where}")


def granule(configuration: Configuration) -> int:
    """Return the bytes of DRAM that are accessed together or not at all, but for constants."""
    return math.gcd(configuration.batch * configuration.block_in, configuration.batch * configuration.block_out)


def _entry(entries: Entries, place: int) -> int:
    return entries.start + place if isinstance(entries, slice) else int(entries[place])
