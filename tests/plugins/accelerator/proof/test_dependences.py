"""Tokens put in from data dependences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graft.plugins.accelerator.assembly import assemble, instruction_text
from graft.plugins.accelerator.model import run
from graft.plugins.accelerator.proof.dependences import with_tokens
from graft.plugins.accelerator.proof.prove import prove
from graft.plugins.accelerator.simulator import run_cycles, run_functional
from tests.plugins.accelerator.programs import TINY, random_program
from tests.plugins.accelerator.test_codegen import SMALL, residual_network, run_layers

HEAD = """.configuration
.tensor "x" input offset=0 size=1024
.tensor "t" workspace offset=1024 size=1024
.tensor "y" output offset=2048 size=16
.program
"""


def texts(body: str) -> list[str]:
    program = with_tokens(assemble(HEAD + body))
    prove(program)
    return [instruction_text(instruction) for instruction in program.instructions]


def test_units_that_are_no_neighbours_wait_through_those_between():
    assert texts("load input columns=2\nload accumulator\nstore output dram=128\nfinish") == [
        "load input columns=2",
        "load accumulator signal=gemm",
        "gemm outer=0 wait=load signal=alu",
        "alu min outer=0 wait=gemm signal=store",
        "store output dram=128 wait=alu signal=alu",
        "finish wait=store",
    ]


def test_a_second_dependence_on_the_same_instruction_needs_no_second_token():
    body = "load accumulator columns=2\nstore output dram=128\nstore output sram=1 dram=64\nfinish"
    assert texts(body)[2:5] == [
        "alu min outer=0 wait=gemm signal=store",
        "store output dram=128 wait=alu",
        "store output sram=1 dram=64 signal=alu",
    ]


def test_a_load_of_what_was_stored_waits_through_both_units_between():
    body = "load accumulator\nstore output dram=128\nstore output dram=64\nload input dram=64\nfinish"
    assert texts(body)[3:] == [
        "store output dram=128 wait=alu",
        "store output dram=64 signal=alu",
        "alu min outer=0 wait=store signal=gemm",
        "gemm outer=0 wait=alu signal=load",
        "load input dram=64 wait=gemm signal=gemm",
        "gemm outer=0 wait=load signal=alu",
        "finish wait=gemm",
    ]


def test_an_entry_is_filled_anew_only_when_it_was_read():
    body = "load accumulator\nstore output dram=128\nload accumulator dram=1\nfinish"
    assert texts(body)[4:7] == [
        "alu min outer=0 wait=store signal=gemm",
        "gemm outer=0 wait=alu signal=load",
        "load accumulator dram=1 wait=gemm signal=gemm",
    ]


@pytest.mark.parametrize("seed", range(12))
def test_a_random_program_runs_with_queues_of_any_depth(seed):
    machine = replace(TINY, queue_depth=1 + seed % 4, token_depth=1 + seed // 4)
    program, inputs = random_program(seed, configuration=machine)
    prove(program)
    assert run_cycles(program, inputs).outputs == run(program, inputs)
    assert run_functional(program, inputs, seed).outputs == run(program, inputs)


@pytest.mark.parametrize("queue_depth", [1, 2, 4])
@pytest.mark.parametrize("token_depth", [1, 2, 3])
def test_queues_of_any_depth_do(queue_depth, token_depth):
    machine = replace(SMALL, queue_depth=queue_depth, token_depth=token_depth)
    run_layers(residual_network(), ["classes", "sum"], machine)
