"""Programs in the simulator that was written from the page, beside those of Graft."""

from __future__ import annotations

import os
from dataclasses import asdict

from graft.errors import RunError
from graft.plugins.accelerator.encoding import encode_all
from graft.plugins.accelerator.model import dram_of, outputs_of
from graft.plugins.accelerator.program import Program, Role
from graft.plugins.accelerator.simulator import cycles_of
from tests.plugins.accelerator.page.instructions import UNITS, Configuration
from tests.plugins.accelerator.page.simulator import Fault, Run, run

PROGRAMS = int(os.environ.get("GRAFT_ACCELERATOR_PROGRAMS", "500"))
"""Of each of 20 machines, beyond the normal suite; 5,000 are the whole."""
MACHINES = range(20)


def page_run(program: Program, dram: bytearray, seed: int | None = None) -> Run:
    """Run a program, in the order of time or, with a seed, in one by chance; DRAM becomes what it leaves there."""
    configuration = Configuration(**asdict(program.configuration))
    return run(configuration, encode_all(program.instructions, program.configuration), dram, seed)


def by_the_page(program: Program, inputs: dict[str, bytes], seed: int) -> dict[str, bytes]:
    """Outputs in the order of time, or, every other seed, in one by chance; what nobody wrote depends on the seed."""
    dram = dram_of(program, inputs, seed & 255)
    page_run(program, dram, seed if seed % 2 else None)
    return outputs_of(program, dram)


def check_times(program: Program) -> bool:
    """Assert that both spend every cycle alike, by unit and by instruction; return whether the program ends."""
    dram = dram_of(program, {one.name: bytes(one.size) for one in program.tensors if one.role is Role.INPUT})
    try:
        expected = cycles_of(program)
    except RunError as error:
        assert error.message.startswith("accelerator: deadlock")
        try:
            page_run(program, dram)
        except Fault as fault:
            assert str(fault).startswith("waits forever")
            return False
        raise AssertionError("a program waits forever, and by the page it does not") from error
    found = page_run(program, dram)
    assert found.cycles == expected.counters.cycles
    assert {unit: found.counters[unit] for unit in UNITS} == expected.counters.times
    spans = ((start, end) for _, start, end in found.spans)
    both = [sorted(one for one in each if 0 < one[1] < found.cycles) for each in
            (spans, zip(expected.starts, expected.ends, strict=True))]  # fmt: skip
    assert both[0] == both[1]
    return True
