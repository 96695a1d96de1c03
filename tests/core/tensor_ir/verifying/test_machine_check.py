"""A function that asks for what a machine lacks is refused; what the machine has is taken."""

from dataclasses import replace

import pytest

from graft.core.machine.machine import Instruction, Level, Machine, Memory
from graft.core.machine.rows import ROWS
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.verifying.verifier import verify
from graft.errors import CompileError

GPU = Machine(
    "gpu", "toy", vectors=(128,), registers=64, levels=(Level("block"), Level("thread", 256)),
    memories=(Memory("shared", 1 << 14, seen_by="block"), Memory("host")),
    instructions=(Instruction("soften", "a[0] * b[0]", {"toy": "soften"}),),
)  # fmt: skip
CPU = ROWS["x86-64-v3"]


def function(body: str) -> str:
    return f"function f(x: float32[64]) -> (out: float32[64]) {{\n{body}\n}}"


def refusal(body: str, machine: Machine) -> str:
    parsed = parse_function(function(body))
    with pytest.raises(CompileError) as caught:
        verify(parsed, machine)
    return str(caught.value)


SHARED = "allocate part: float32[64] in shared\n  parallel i < 64 {\n    out[i] = x[i]\n  }"
BOUND = 'parallel i < 64 bind "block.x" {\n    out[i] = x[i]\n  }'
WIDE = "serial i < 4 {\n    out[ramp(i * 16, 1, 16)] = x[ramp(i * 16, 1, 16)]\n  }"
OWN = "serial i < 64 {\n    out[i] = soften(x[i], x[i])\n  }"


@pytest.mark.parametrize("body", [SHARED, BOUND, OWN])
def test_what_a_machine_has_is_taken(body: str) -> None:
    verify(parse_function(function(body)), GPU)


def test_a_memory_that_the_machine_lacks_is_refused() -> None:
    assert refusal(SHARED, CPU) == (
        "function 'f': no memory 'shared' on the machine 'x86-64-v3', which has scratch, host, register, in 'allocate "
        "part: float32[64] in shared'"
    )


def test_a_level_that_the_machine_lacks_is_refused() -> None:
    assert refusal(BOUND, CPU) == (
        "function 'f': no level 'block' on the machine 'x86-64-v3', which has thread, in "
        "'parallel i < 64 bind \"block.x\" {'"
    )


@pytest.mark.parametrize(("row", "has"), [("x86-64-v3", "vectors of 256 bits"), ("generic", "no vectors")])
def test_vectors_wider_than_the_machines_are_refused(row: str, has: str) -> None:
    assert refusal(WIDE, ROWS[row]) == (
        f"function 'f': 16 lanes of float32 at one time, where the machine '{row}' has {has}, in "
        "'out[ramp(i * 16, 1, 16)] = x[ramp(i * 16, 1, 16)]'"
    )
    verify(parse_function(function(WIDE)), ROWS["x86-64-v4"])


@pytest.mark.parametrize("machine", [CPU, replace(GPU, instructions=())])
def test_an_instruction_that_the_machine_lacks_is_refused(machine: Machine) -> None:
    assert refusal(OWN, machine) == (
        f"function 'f': the machine '{machine.name}' has no instruction 'soften', in 'soften(x[i], x[i])'"
    )


def test_arithmetic_needs_no_instruction() -> None:
    verify(parse_function(function("serial i < 64 {\n    out[i] = fma(exp(x[i]), x[i], x[i])\n  }")), ROWS["generic"])
