"""Random programs of random machines: what the page says of them is what the simulators compute, bit for bit."""

from __future__ import annotations

import os
from dataclasses import asdict

import numpy as np
import pytest

from graft.errors import ArtifactError
from graft.plugins.accelerator.codegen import lower
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.encoding import decode_all, encode_all
from graft.plugins.accelerator.layers import Activation, Addition
from graft.plugins.accelerator.model import dram_of, outputs_of
from graft.plugins.accelerator.program import Program
from graft.plugins.accelerator.proof.prove import prove
from graft.plugins.accelerator.simulator import run_functional
from tests.plugins.accelerator.page_simulator import Damaged, Machine, simulate
from tests.plugins.accelerator.random_programs import legal_program, random_configuration
from tests.plugins.accelerator.test_codegen import convolution

PROGRAMS = int(os.environ.get("GRAFT_ACCELERATOR_PROGRAMS", "500"))
"""Of each of 20 machines, beyond the normal suite; 5,000 are the whole."""
MACHINES = range(20)


def by_the_page(program: Program, inputs: dict[str, bytes]) -> dict[str, bytes]:
    dram = dram_of(program, inputs)
    simulate(asdict(program.configuration), encode_all(program.instructions, program.configuration), dram)
    return outputs_of(program, dram)


def check(machine: int, programs: int) -> None:
    configuration = random_configuration(np.random.default_rng(machine))
    for seed in range(programs):
        program, inputs = legal_program(seed, configuration)
        if seed % 8 == 0:
            prove(program)
        assert by_the_page(program, inputs) == run_functional(program, inputs, seed).outputs, (machine, seed)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_random_program_is_what_the_page_says(machine: int) -> None:
    check(machine, 8)


SMALL = {"input_bytes": 512, "weight_bytes": 4096, "accumulator_bytes": 4096, "micro_op_bytes": 2048}
X = Activation("x", 9, 5, 5, scale=0.3, zero_point=-4)


@pytest.mark.parametrize("block", [2, 4, 8])
@pytest.mark.parametrize("depth", [1, 3])
def test_what_the_generator_makes_is_what_the_page_says(block: int, depth: int) -> None:
    machine = Configuration(1, block, block, **SMALL, queue_depth=depth, token_depth=depth, accumulator_latency=depth)
    first = convolution("y", X, 7)
    total = Addition("sum", first.output, Activation("r", 7, 5, 5, scale=0.2), Activation("z", 7, 5, 5, scale=0.5))
    lowered = lower([first, total], ["z"], machine)
    prove(lowered.program, lowered.source)
    rng = np.random.default_rng(block)
    inputs = {name: rng.bytes(packing.bytes) for name, packing in lowered.inputs.items()}
    assert by_the_page(lowered.program, inputs) == run_functional(lowered.program, inputs, depth).outputs


@pytest.mark.parametrize(
    "stream",
    [b"\x05" + bytes(15), b"\x08" + bytes(15), b"\x03" + bytes(14) + b"\x01", bytes(15) + b"\x80", b"\x02" + bytes(15)],
    ids=["opcode", "previous unit of loads", "rest", "rest of a load", "no micro-ops"],
)
def test_what_the_page_calls_damaged_both_refuse(stream: bytes) -> None:
    machine = Configuration()
    with pytest.raises(Damaged):
        Machine(asdict(machine), bytearray()).decode(stream)
    with pytest.raises(ArtifactError):
        decode_all(stream, machine)


@pytest.mark.conformance
@pytest.mark.parametrize("machine", MACHINES)
def test_thousands_of_random_programs_are_what_the_page_says(machine: int) -> None:
    check(machine, PROGRAMS)
