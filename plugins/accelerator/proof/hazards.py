"""Which two instructions of a program conflict, and which accesses are wrong whatever the order.

The walk along all accesses is C (``native/hazards.c``), since a network's program takes millions of steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from enum import IntEnum
from typing import NoReturn, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt

from graft.errors import CompileError
from graft.plugins.accelerator._simulator import conflicts
from graft.plugins.accelerator.accesses import entries_of
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.encoding import encode_all
from graft.plugins.accelerator.program import Program, Role
from graft.plugins.accelerator.proof.tokens import UNITS, named, refuse

Numbers: TypeAlias = npt.NDArray[np.int64]
PLACES = ("micro_op", "weight", "input", "accumulator", "dram")
"""What is accessed, as the walk numbers it; the entries of DRAM are granules."""
ROLES = tuple(Role)


class Fault(IntEnum):
    """Why an access is wrong, as native/hazards.h numbers it."""

    NONE = 0
    STEPS = 1
    OUTSIDE = 2
    DRAM = 3
    ROLE_WRITTEN = 4
    ROLE_READ = 5
    UNWRITTEN = 6
    OUTPUT = 7


@dataclass(frozen=True, slots=True)
class Conflicts:
    """By instruction and unit, the last instruction of that unit that accesses the same entry, one of both writing it.

    It is -1 where there is none; only the last counts, since a unit takes its instructions in order. ``places`` and
    ``entries`` say which entry of which memory it was.
    """

    others: Numbers
    places: Numbers
    entries: Numbers


def conflicts_of(program: Program, sequence: Sequence[int], contents: bytearray | None = None) -> Conflicts:
    """Return the conflicts of a program whose instructions run in an order.

    ``contents`` are numbers for what DRAM holds, which become those behind the program: see native/contents.h.
    Raise ProofError where an access is outside of its memory or tensor, or reads what was not written.
    """
    configuration = program.configuration
    dram = bytearray(program.dram_bytes)
    for tensor in program.tensors:
        dram[tensor.offset : tensor.offset + len(tensor.data)] = tensor.data
    tensors = [(tensor.offset, tensor.size, ROLES.index(tensor.role)) for tensor in program.tensors]
    order, table = np.array(sequence, np.int64).tobytes(), np.array(tensors, np.int64).tobytes()
    stream = encode_all(program.instructions, configuration)
    try:
        more = () if contents is None else (contents,)
        data, (kind, *fault) = conflicts(astuple(configuration), stream, dram, order, table, *more)
    except RuntimeError as error:
        raise CompileError(f"accelerator: {error}") from None
    if kind:
        _refuse(program, Fault(kind), *fault)
    found = np.frombuffer(data, np.int64).reshape(-1, UNITS, 3)
    return Conflicts(found[..., 0] - 1, found[..., 1], found[..., 2])


def granule(configuration: Configuration) -> int:
    """Return the bytes of DRAM that are accessed together or not at all, but for constants."""
    return math.gcd(configuration.batch * configuration.block_in, configuration.batch * configuration.block_out)


def spelled(program: Program, place: int, entry: int) -> str:
    """Return a memory and its entry, DRAM by its address."""
    memory = PLACES[place]
    return f"{memory} {entry * granule(program.configuration) if memory == 'dram' else entry}"


def _refuse(program: Program, fault: Fault, index: int, place: int, first: int, last: int) -> NoReturn:
    match fault:
        case Fault.STEPS:
            refuse(f"{named(program, index)} takes {first} steps, and at most {last} are allowed", index)
        case Fault.OUTSIDE:
            entries, does = entries_of(program.configuration, PLACES[place]), "writes" if last else "reads"
            refuse(f"{named(program, index)} {does} {PLACES[place]} {first}, and there are {entries} entries", index)
        case Fault.DRAM:
            inside = [tensor for tensor in program.tensors if tensor.offset <= first]
            near = f"'{inside[-1].name}' ends at {inside[-1].end}" if inside else "no tensor is there"
            refuse(f"{named(program, index)} accesses DRAM from {first} to {last}, and {near}", index)
        case Fault.ROLE_WRITTEN:
            tensor = program.tensors[first]
            refuse(f"{named(program, index)} writes '{tensor.name}', whose role is '{tensor.role}'", index)
        case Fault.ROLE_READ:
            tensor = program.tensors[first]
            what = "numbers" if tensor.role is Role.MICRO_OPS else "micro-ops"
            refuse(f"{named(program, index)} reads {what} from '{tensor.name}' ({tensor.role})", index)
        case Fault.UNWRITTEN:
            where = spelled(program, place, first)
            if last < 0:
                refuse(f"{named(program, index)} reads {where}, which nothing writes", index)
            writer = f"{named(program, last)} may write only later"
            refuse(f"{named(program, index)} reads {where}, which {writer}", index, last)
        case Fault.OUTPUT:
            name = program.tensors[first].name
            refuse(f"the output '{name}' is never written at {spelled(program, place, last)}")
        case Fault.NONE:
            raise AssertionError(fault)
        case _:
            assert_never(fault)
