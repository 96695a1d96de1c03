"""Tokens put in from data dependences."""

from __future__ import annotations

from graft.plugins.accelerator.assembly import assemble, instruction_text
from graft.plugins.accelerator.dependences import with_tokens
from graft.plugins.accelerator.proof import prove

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


def test_units_that_share_nothing_wait_only_at_the_end():
    assert texts("load input columns=2\nload accumulator\nstore output dram=128\nfinish") == [
        "load input columns=2 signal=compute",
        "load accumulator signal=store",
        "store output dram=128 wait=compute signal=compute",
        "finish wait=load,store",
    ]


def test_a_second_dependence_on_the_same_instruction_needs_no_second_token():
    body = "load accumulator columns=2\nstore output dram=128\nstore output sram=1 dram=64\nfinish"
    assert texts(body)[:3] == [
        "load accumulator columns=2 signal=store",
        "store output dram=128 wait=compute",
        "store output sram=1 dram=64 signal=compute",
    ]


def test_a_load_of_what_was_stored_waits_through_the_compute_unit():
    body = "load accumulator\nstore output dram=128\nstore output dram=64\nload input dram=64\nfinish"
    assert texts(body) == [
        "load accumulator signal=store",
        "store output dram=128 wait=compute",
        "store output dram=64 signal=compute",
        "load micro_op rows=0 columns=0 wait=store signal=load",
        "load input dram=64 wait=compute signal=compute",
        "finish wait=load",
    ]


def test_an_entry_is_filled_anew_only_when_it_was_read():
    body = "load accumulator\nstore output dram=128\nload accumulator dram=1\nfinish"
    assert texts(body)[2] == "load accumulator dram=1 wait=store"
