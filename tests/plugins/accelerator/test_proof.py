"""What the proof refuses, and that it names both instructions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graft.plugins.accelerator.assembly import assemble
from graft.plugins.accelerator.isa import Unit, unit_of
from graft.plugins.accelerator.program import Program
from graft.plugins.accelerator.proof.prove import prove
from graft.plugins.accelerator.proof.tokens import ProofError
from tests.plugins.accelerator.programs import random_program
from tests.plugins.accelerator.unit_programs import UNIT_PROGRAMS

FLAGS = ("pop_previous", "pop_next", "push_previous", "push_next")


def mutations(program: Program) -> list[tuple[int, str, Program]]:
    """Every program that differs in one token."""
    found = []
    for index, instruction in enumerate(program.instructions):
        unit = unit_of(instruction)
        for flag in FLAGS:
            missing = "previous" if unit is Unit.LOAD else "next" if unit is Unit.STORE else "nobody"
            if not flag.endswith(missing):
                changed = replace(instruction, **{flag: not getattr(instruction, flag)})
                instructions = (*program.instructions[:index], changed, *program.instructions[index + 1 :])
                found.append((index, flag, replace(program, instructions=instructions)))
    return found


def is_refused(program: Program) -> bool:
    try:
        prove(program)
    except ProofError:
        return True
    return False


@pytest.mark.parametrize("unit_program", UNIT_PROGRAMS, ids=lambda one: one.name)
def test_a_program_by_hand_with_one_token_changed_is_refused(unit_program):
    for index, flag, mutant in mutations(assemble(unit_program.text)):
        assert is_refused(mutant), f"{flag} of instruction {index} was not missed"


@pytest.mark.parametrize("seed", range(6))
def test_a_random_program_with_one_token_changed_is_refused(seed):
    for index, flag, mutant in mutations(random_program(seed)[0]):
        assert is_refused(mutant), f"{flag} of instruction {index} was not missed"


HEAD = """.configuration {}
.tensor "x" input offset=0 size=1024
.tensor "m" micro_ops offset=1024 size=4
.micro_op source=1
.tensor "y" output offset=2048 size=16
.tensor "t" workspace offset=2064 size=64
.program
"""
STORE = "store output dram=128 columns=1 wait=alu signal=alu\n"
PASS = "gemm outer=0 wait=load signal=alu\nalu min outer=0 wait=gemm signal=store\n"
END = "load accumulator signal=gemm\n" + PASS + STORE + "finish wait=store"
RACE = "load accumulator signal=gemm\n" + PASS + "load accumulator signal=gemm\n" + STORE
RACE += "gemm outer=0 wait=load signal=alu\nfinish wait=gemm,store"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            RACE,
            "instruction 3 'load accumulator signal=gemm' and instruction 4 'store output dram=128 wait=alu "
            "signal=alu' both access accumulator 0, one of them writes it, and no token orders them",
        ),
        (
            "load input columns=2\nfinish",
            "instruction 1 'finish' does not wait for instruction 0 'load input columns=2'",
        ),
        (
            "finish wait=gemm",
            "instruction 0 'finish wait=gemm' waits forever for a token from the queue from gemm to alu: no "
            "instruction gives it",
        ),
        (
            "load input wait=gemm signal=gemm\ngemm outer=0 wait=load signal=load,alu\nfinish wait=gemm",
            "instruction 0 'load input wait=gemm signal=gemm' waits forever for a token from the queue from gemm to "
            "load: instruction 1 'gemm outer=0 wait=load signal=load,alu' gives it, which never starts",
        ),
        (
            "gemm outer=0 signal=load,alu\nfinish wait=gemm",
            "1 token more is put into the queue from gemm to load than taken: instruction 0 'gemm outer=0 "
            "signal=load,alu' gives one, and no instruction takes one",
        ),
        (
            "store output dram=128 signal=alu\nalu min outer=0 wait=store signal=gemm\ngemm outer=0 wait=alu "
            "signal=load\nload accumulator wait=gemm signal=gemm\n" + PASS + STORE + "finish wait=store",
            "instruction 0 'store output dram=128 signal=alu' reads accumulator 0, which instruction 3 "
            "'load accumulator wait=gemm signal=gemm' may write only later",
        ),
        (
            "load micro_op dram=256 columns=1 signal=gemm\n" + PASS.replace(" signal=store", "")
            + "alu add signal=store\n" + STORE + "finish wait=store",
            "instruction 3 'alu add signal=store' reads accumulator 1, which nothing writes",
        ),
        (
            "alu add signal=store\n" + STORE + "finish wait=store",
            "instruction 0 'alu add signal=store' reads micro_op 0, which nothing writes",
        ),
        ("load accumulator dram=32 columns=9 stride=9\n" + END, "instruction 0 'load accumulator dram=32 columns=9 "
         "stride=9' accesses DRAM from 2048 to 2624, and 'y' ends at 2064"),
        ("load accumulator sram=2047 columns=2\n" + END,
         "instruction 0 'load accumulator sram=2047 columns=2' writes accumulator 2048, and there are 2048 entries"),
        ("load input dram=129 columns=1\n" + END,
         "instruction 0 'load input dram=129' reads dram 2064, which nothing writes"),
        ("load micro_op columns=1\n" + END,
         "instruction 0 'load micro_op' reads micro-ops from 'x' (input)"),
        ("load accumulator signal=gemm\n" + PASS + "store output wait=alu signal=alu\nfinish wait=store",
         "instruction 3 'store output wait=alu signal=alu' writes 'x', whose role is 'input'"),
        ("finish", "the output 'y' is never written at dram 2048"),
        ("finish\nfinish", "a program ends with its only 'finish', and here 2 instructions finish it"),
        ("load micro_op dram=256 columns=1 signal=gemm\ngemm reset outer=16383 inner=16383 wait=load\n" + END,
         "instruction 1 'gemm reset outer=16383 inner=16383 wait=load' takes 268402689 steps, and at most 16777216 are "
         "allowed"),
    ],
)  # fmt: skip
def test_what_is_unsafe_is_refused_by_the_names_of_its_instructions(body, text):
    with pytest.raises(ProofError) as caught:
        prove(assemble(HEAD.format("") + body))
    assert str(caught.value) == f"internal error: accelerator: {text}"


def test_more_tokens_than_a_queue_holds_are_a_deadlock():
    body = "load input signal=gemm\n" * 3 + "load accumulator signal=gemm\n" + "gemm outer=0 wait=load\n" * 3
    body += PASS + STORE + "finish wait=store"
    prove(assemble(HEAD.format("token_depth=2 queue_depth=2") + body))
    with pytest.raises(ProofError) as caught:
        prove(assemble(HEAD.format("token_depth=1 queue_depth=1") + body))
    assert str(caught.value) == (
        "internal error: accelerator: instruction 1 'load input signal=gemm' waits forever for room in the queue "
        "from load to gemm: instruction 4 'gemm outer=0 wait=load' makes it, which never starts"
    )
    assert (caught.value.first, caught.value.second) == (1, 4)


def test_an_error_has_the_places_of_both_instructions():
    with pytest.raises(ProofError) as caught:
        prove(assemble(HEAD.format("") + RACE))
    assert (caught.value.first, caught.value.second) == (3, 4)
