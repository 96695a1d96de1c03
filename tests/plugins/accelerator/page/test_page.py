"""Random programs of random machines: what the page says of them is what the simulators compute, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, astuple, fields
from typing import Any

import numpy as np
import pytest

from graft.errors import ArtifactError, CompileError
from graft.plugins.accelerator._simulator import simulate
from graft.plugins.accelerator.codegen import lower
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.encoding import decode, decode_all, encode
from graft.plugins.accelerator.frontend.layers import inputs_of, packed, unpacked
from graft.plugins.accelerator.isa import Finish, Instruction
from graft.plugins.accelerator.proof.prove import prove
from graft.plugins.accelerator.simulator import FUNCTIONAL, run_functional
from tests.plugins.accelerator.layer_reference import evaluate
from tests.plugins.accelerator.page.compare import MACHINES, PROGRAMS, by_the_page, check_times
from tests.plugins.accelerator.page.instructions import OPCODES, Damaged, decode_one
from tests.plugins.accelerator.page.instructions import Configuration as PageConfiguration
from tests.plugins.accelerator.page.random_programs import (
    legal_program,
    random_configuration,
    random_network,
    square_configuration,
)


def check(machine: int, programs: int) -> None:
    configuration = random_configuration(np.random.default_rng(machine))
    for seed in range(programs):
        program, inputs = legal_program(seed, configuration)
        if seed % 8 == 0:
            prove(program)
        assert by_the_page(program, inputs, seed) == run_functional(program, inputs, seed).outputs, (machine, seed)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_random_program_is_what_the_page_says(machine: int) -> None:
    check(machine, 8)


def check_cycles(machine: int, programs: int) -> None:
    configuration = random_configuration(np.random.default_rng(machine))
    for seed in range(programs):
        program, _ = legal_program(seed, configuration)
        assert check_times(program), (machine, seed)


def check_layers(machine: int, programs: int) -> int:
    """Compare programs of random layers: what layers mean, the page, the simulator; return how many there were."""
    configuration, count = square_configuration(np.random.default_rng(machine)), 0
    for seed in range(programs):
        rng = np.random.default_rng(1000 * machine + seed)
        layers = random_network(rng, configuration.block_in)
        try:
            lowered = lower(layers, ["z"], configuration)
        except CompileError as error:
            assert "size" in error.message
            continue
        prove(lowered.program, lowered.source)
        made = {layer.output.name for layer in layers}
        given = {one.name: one for layer in layers for one in inputs_of(layer) if one.name not in made}
        values = {name: rng.integers(-128, 128, one.shape).astype(np.int8) for name, one in given.items()}
        inputs = {name: packed(values[one.tensor.name], one) for name, one in lowered.inputs.items()}
        for layer in layers:
            values[layer.output.name] = evaluate(layer, values)
        found, count = run_functional(lowered.program, inputs, seed), count + 1
        assert np.array_equal(unpacked(found.outputs["z"], lowered.outputs["z"]), values["z"]), (machine, seed)
        if found.counters.gemm_steps + found.counters.alu_steps < 4000:
            assert by_the_page(lowered.program, inputs, seed) == found.outputs, (machine, seed)
    return count


@pytest.mark.parametrize("machine", [4, 6, 7, 11, 16, 18])
def test_random_layers_are_what_they_mean_and_what_the_page_says(machine: int) -> None:
    assert check_layers(machine, 8)


@pytest.mark.conformance
@pytest.mark.parametrize("machine", MACHINES)
def test_thousands_of_random_layers_are_what_they_mean_and_what_the_page_says(machine: int) -> None:
    assert check_layers(machine, PROGRAMS // 5)


@pytest.mark.parametrize(
    "stream",
    [b"\x05" + bytes(15), b"\x08" + bytes(15), b"\x03" + bytes(14) + b"\x01", bytes(15) + b"\x80", b"\x02" + bytes(15)],
    ids=["opcode", "previous unit of loads", "rest", "rest of a load", "no micro-ops"],
)
def test_what_the_page_calls_damaged_both_refuse(stream: bytes) -> None:
    machine = Configuration()
    with pytest.raises(Damaged):
        decode_one(PageConfiguration(), stream)
    with pytest.raises(ArtifactError):
        decode_all(stream, machine)


def random_word(rng: np.random.Generator, machine: PageConfiguration) -> bytes:
    """An instruction of extreme and ordinary fields; one of eight has another opcode, or any bit flipped."""
    opcode = int(rng.integers(5))
    word, shift = opcode, 3
    for name, signed in machine.fields[opcode]:
        width, kind = abs(signed), int(rng.integers(8))
        value = min(kind // 3, (1 << width) - 1) if kind < 6 or name.startswith("p") else int(rng.integers(1 << width))
        word |= value << shift
        shift += width
    if not rng.integers(8):
        word ^= 1 << int(rng.integers(128))
    return (word if rng.integers(8) else word | 5).to_bytes(16, "little")


def fields_by_the_page(machine: PageConfiguration, data: bytes) -> dict[str, object] | None:
    try:
        one = decode_one(machine, data)
    except Damaged:
        return None
    return {name: getattr(one, name) for name, _ in machine.fields[OPCODES.index(one.opcode)]}


def fields_of(machine: Configuration, data: bytes) -> dict[str, object] | None:
    try:
        one = decode(data, machine)
    except ArtifactError:
        return None
    return {name: value.name.lower() if name == "memory" else int(value) for name, value in fields_with_values(one)}


def fields_with_values(one: Instruction) -> Iterator[tuple[str, Any]]:
    return ((field.name, getattr(one, field.name)) for field in fields(one))


def is_damaged(machine: Configuration, data: bytes) -> bool:
    """Whether the native simulators refuse to read an instruction; it takes no steps here."""
    try:
        simulate(astuple(machine), data + encode(Finish(), machine), bytearray(64), FUNCTIONAL, 0, 0)
    except RuntimeError as error:
        return str(error) in ("instruction 0 is damaged", "instruction 0 is 'finish', and 1 are behind it")
    return False


@pytest.mark.parametrize("machine", MACHINES)
def test_any_bits_are_the_same_instruction_or_damaged_to_all(machine: int) -> None:
    rng = np.random.default_rng(machine)
    configuration = random_configuration(rng)
    by_the_page, damaged = PageConfiguration(**asdict(configuration)), 0
    for _ in range(150):
        data = random_word(rng, by_the_page)
        expected = fields_by_the_page(by_the_page, data)
        assert fields_of(configuration, data) == expected, data.hex()
        assert is_damaged(configuration, data) == (expected is None or data[0] & 7 == Finish.opcode), data.hex()
        damaged += expected is None
    assert 20 < damaged < 130


@pytest.mark.parametrize("machine", MACHINES)
def test_a_random_program_takes_the_cycles_that_the_page_says(machine: int) -> None:
    check_cycles(machine, 3)


@pytest.mark.conformance
@pytest.mark.parametrize("machine", MACHINES)
def test_hundreds_of_random_programs_take_the_cycles_that_the_page_says(machine: int) -> None:
    check_cycles(machine, PROGRAMS // 10)


@pytest.mark.conformance
@pytest.mark.parametrize("machine", MACHINES)
def test_thousands_of_random_programs_are_what_the_page_says(machine: int) -> None:
    check(machine, PROGRAMS)
