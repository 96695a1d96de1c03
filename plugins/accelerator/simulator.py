"""Both simulators on a program: one that is unfair to its queues, one that counts cycles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import Any

from graft.errors import RunError
from graft.plugins.accelerator._simulator import simulate
from graft.plugins.accelerator.assembly import instruction_text
from graft.plugins.accelerator.encoding import encode_all
from graft.plugins.accelerator.isa import Memory, Unit, unit_of
from graft.plugins.accelerator.model import dram_of, outputs_of
from graft.plugins.accelerator.program import Program, Role

MOST_STEPS = 1 << 40
"""Of a whole program: hours of simulation, which no network needs."""
TIMES = ("busy", "dram", "token_previous", "token_next", "room", "instructions")
"""What a unit does with its time: it works, or waits for DRAM, a neighbour's token, room for its own, instructions."""
HEAD = ("cycles", "gemm_steps", "alu_steps", "port_cycles", "fetch_bytes")


@dataclass(frozen=True, slots=True)
class Counters:
    """What a run cost; cycles, the port's and the units' times are zero where time was not simulated.

    ``bytes`` are those moved by transfers, by memory; ``times`` are cycles by unit and by what it did.
    """

    cycles: int
    gemm_steps: int
    alu_steps: int
    port_cycles: int
    fetch_bytes: int
    bytes: Mapping[str, int]
    times: Mapping[str, Mapping[str, int]]

    @property
    def utilization(self) -> float:
        """The share of cycles in which a block was multiplied."""
        return self.gemm_steps / self.cycles if self.cycles else 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """The outputs by name, what the run cost and, by instruction, the cycles of its start and end."""

    outputs: Mapping[str, bytes]
    counters: Counters
    starts: tuple[int, ...]
    ends: tuple[int, ...]


FUNCTIONAL, CYCLES, CYCLES_ALONE = range(3)
"""What native/binding.c calls the ways to run."""


def run_functional(program: Program, inputs: Mapping[str, bytes], seed: int) -> Run:
    """Run with memories poisoned and queues interleaved as the seed says, from 0 to 2^64 - 1."""
    dram = dram_of(program, inputs, seed * 37 + 85 & 255)
    return _run(program, dram, FUNCTIONAL, seed)


def run_cycles(program: Program, inputs: Mapping[str, bytes]) -> Run:
    """Run and count cycles."""
    return _run(program, dram_of(program, inputs, 85), CYCLES, 0)


def cycles_of(program: Program) -> Run:
    """Count cycles alone, which do not depend on data but for micro-ops; there are no outputs."""
    nothing = {tensor.name: bytes(tensor.size) for tensor in program.tensors if tensor.role is Role.INPUT}
    return _run(program, dram_of(program, nothing), CYCLES_ALONE, 0)


def _run(program: Program, dram: bytearray, mode: int, seed: int) -> Run:
    configuration = program.configuration
    stream = encode_all(program.instructions, configuration)
    try:
        found = simulate(astuple(configuration), stream, dram, mode, seed, MOST_STEPS)
    except RuntimeError as error:
        raise RunError(f"accelerator: {error}") from None
    numbers = iter(found["counters"])
    head = {name: next(numbers) for name in HEAD}
    moved = {memory.name.lower(): next(numbers) for memory in Memory}
    times = {unit.name.lower(): {name: next(numbers) for name in TIMES} for unit in Unit}
    counters = Counters(**head, bytes=moved, times=times)
    outputs = {} if mode == CYCLES_ALONE else outputs_of(program, dram)
    return Run(outputs, counters, tuple(found["starts"]), tuple(found["ends"]))


def trace(program: Program, run: Run) -> dict[str, Any]:
    """Return a run with time as a trace for Perfetto: a track for each unit, a microsecond for each cycle."""
    return {"traceEvents": list(_events(program, run)), "displayTimeUnit": "ns"}


def _events(program: Program, run: Run) -> Iterator[dict[str, Any]]:
    for unit in Unit:
        yield {"ph": "M", "pid": 0, "tid": int(unit), "name": "thread_name", "args": {"name": unit.name.lower()}}
    for index, instruction in enumerate(program.instructions):
        yield {
            "ph": "X",
            "pid": 0,
            "tid": int(unit_of(instruction)),
            "name": instruction.mnemonic,
            "ts": run.starts[index],
            "dur": run.ends[index] - run.starts[index],
            "args": {"index": index, "text": instruction_text(instruction)},
        }
