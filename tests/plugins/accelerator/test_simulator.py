"""Random legal programs: the model and both simulators give the same."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from graft.errors import RunError
from graft.plugins.accelerator.assembly import assemble
from graft.plugins.accelerator.isa import Unit
from graft.plugins.accelerator.model import run
from graft.plugins.accelerator.proof.dependences import with_tokens
from graft.plugins.accelerator.proof.prove import prove
from graft.plugins.accelerator.simulator import Run, run_cycles, run_functional, trace
from tests.plugins.accelerator.programs import random_program
from tests.plugins.accelerator.unit_programs import UNIT_PROGRAMS, X


@pytest.mark.parametrize("seed", range(40))
def test_a_random_program_means_the_same_everywhere(seed):
    program, inputs = random_program(seed)
    prove(program)
    expected = run(program, inputs)
    assert run_cycles(program, inputs).outputs == expected
    for interleaving in range(6):
        assert run_functional(program, inputs, interleaving).outputs == expected


def test_an_unordered_program_gives_different_answers_to_some_seeds():
    program, inputs = assemble(next(one.text for one in UNIT_PROGRAMS if one.name == "gemm")), {"x": X.tobytes()}
    micro_ops, weights, load, *rest = program.instructions
    raced = (replace(micro_ops, push_next=True), weights, replace(load, push_next=False), *rest)
    racing = replace(program, instructions=raced)
    found = {run_functional(racing, inputs, seed).outputs["y"] for seed in range(20)}
    assert len(found) > 1
    assert len({run_functional(program, inputs, seed).outputs["y"] for seed in range(20)}) == 1


def test_a_seed_says_all_about_a_run():
    program, inputs = random_program(3)
    assert run_functional(program, inputs, 9) == run_functional(program, inputs, 9)


@pytest.mark.parametrize("run_with", [lambda program: run_functional(program, {}, 1), lambda one: run_cycles(one, {})])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("finish wait=gemm", "deadlock"),
        ("load input columns=2\nfinish", "instruction 0 accesses DRAM from 0 to 32, and there are 0 bytes"),
        (
            "load micro_op sram=8191 columns=2\nfinish",
            "instruction 0 accesses entry 8192 of a memory, and there are 8192",
        ),
        ("gemm outer=2 weight_outer=1\nfinish", "instruction 0 takes a step outside of its memories: 2047, 2047, 1024"),
        ("load input rows=0", "the program does not end with 'finish'"),
        ("finish\nload input rows=0\nfinish", "instruction 0 is 'finish', and 2 are behind it"),
    ],
)
def test_an_unproven_program_ends_with_an_error(run_with, text, message):
    with pytest.raises(RunError, match=f"^accelerator: {message}"):
        run_with(assemble(f".configuration\n.program\n{text}"))


NOTHING_ACCESSED = """.configuration
.tensor "x" input offset=0 size=64
.tensor "y" output offset=64 size=64
.tensor "m" micro_ops offset=128 size=4
    .micro_op
.program
load micro_op dram=32
load accumulator
{}
store accumulator dram=1
finish"""


@pytest.mark.parametrize(
    "instruction",
    [
        "gemm outer=0 end=0x3fff weight_outer=1023 source_inner=2047",
        "alu requantize inner=0 begin=8191 end=0x3fff destination_outer=2047",
        "alu add use_immediate inner=3 source_inner=2047",
        "load input sram=8191 columns=0 rows=9",
        "load micro_op dram=0xffffffff rows=0 stride=7",
        "load weight sram=8191 rows=0 columns=0xffff dram=0xffffffff",
        "store accumulator sram=8191 rows=0 dram=0xffffffff",
        "store output sram=8191 columns=0 dram=0xffffffff",
    ],
)
def test_an_index_by_which_nothing_is_accessed_may_be_anything(instruction):
    program, inputs = with_tokens(assemble(NOTHING_ACCESSED.format(instruction))), {"x": bytes(range(64))}
    prove(program)
    expected = {"y": inputs["x"]}
    assert run(program, inputs) == expected
    assert run_cycles(program, inputs).outputs == expected
    assert all(run_functional(program, inputs, seed).outputs == expected for seed in range(4))


def cycles(body: str, **sizes: int) -> Run:
    """The run of a program of one input of 64 KiB and micro-ops that count by one."""
    settings = " ".join(f"{name}={value}" for name, value in sizes.items())
    head = f'.configuration {settings}\n.tensor "x" input offset=0 size=65536\n.program\n'
    return run_cycles(assemble(head + body), {"x": bytes(65536)})


def length(run: Run, index: int) -> int:
    return run.ends[index] - run.starts[index]


def test_a_load_takes_the_latency_and_then_its_bytes_over_the_port():
    run = cycles(
        "load input columns=1000 signal=gemm\ngemm outer=0 wait=load signal=alu\nfinish wait=gemm",
        latency=64,
        port_bytes=8,
    )
    assert length(run, 0) == 64 + 1000 * 16 // 8
    assert run.counters.bytes["input"] == 16000


def test_rows_with_gaps_share_one_latency_and_each_fill_whole_beats():
    run = cycles(
        "load micro_op rows=5 columns=3 stride=4 signal=gemm\ngemm outer=0 wait=load signal=alu\nfinish wait=gemm",
        port_bytes=8,
    )
    assert length(run, 0) == 64 + 5 * 2


def test_padding_is_written_an_entry_a_cycle_beside_the_transfer():
    run = cycles(
        "load input rows=0 columns=100 pad_top=2 signal=gemm\ngemm outer=0 wait=load signal=alu\nfinish wait=gemm"
    )
    assert length(run, 0) == 200


def test_two_units_share_the_port():
    alone = cycles("load input columns=1000 signal=gemm\ngemm outer=0 wait=load signal=alu\nfinish wait=gemm").counters
    both = cycles(
        "load input columns=1000 signal=gemm\nstore output columns=1000 signal=alu\n"
        "gemm outer=0 wait=load signal=alu\nfinish wait=gemm,store"
    ).counters
    assert both.port_cycles - alone.port_cycles >= 2000
    assert both.cycles - alone.cycles >= 1900
    assert both.times["load"]["dram"] > 900


def test_a_step_of_a_product_takes_a_cycle_and_one_of_the_alu_two():
    body = "load micro_op columns=1\ngemm reset outer=30 inner=50\nalu add use_immediate outer=30 inner=50\nfinish"
    run = cycles(body, pipeline=4)
    assert (length(run, 1), length(run, 2)) == (4 + 1500, 4 + 3000)
    assert (run.counters.gemm_steps, run.counters.alu_steps) == (1500, 1500)


@pytest.mark.parametrize(
    ("fields", "last"),
    [
        ("inner=100", 99 * 4),
        ("inner=100 destination_inner=1", 99),
        ("outer=25 inner=4 destination_inner=1", 99),
        ("outer=50 inner=2 destination_inner=1", 49 * 4 + 1),
    ],
)
def test_without_forwarding_a_product_waits_for_the_last_with_its_destination(fields, last):
    body = f"load micro_op columns=1 signal=gemm\ngemm reset {fields} wait=load signal=alu\nfinish wait=gemm"
    assert length(cycles(body), 1) == 4 + 100
    assert length(cycles(body, accumulator_latency=4), 1) == 4 + last + 1


def test_every_cycle_of_every_unit_is_told():
    program, inputs = random_program(5)
    counters = run_cycles(program, inputs).counters
    assert {sum(times.values()) for times in counters.times.values()} == {counters.cycles}


def test_half_the_bandwidth_makes_transfers_twice_as_long():
    body = "load input columns=1000 signal=gemm\ngemm outer=0 wait=load signal=alu\nfinish wait=gemm"
    assert length(cycles(body, port_bytes=4), 0) - 64 == 2 * (length(cycles(body), 0) - 64)


def test_a_trace_has_a_track_for_each_unit_and_an_event_for_each_instruction():
    program, inputs = random_program(1)
    run = run_cycles(program, inputs)
    events = trace(program, run)["traceEvents"]
    assert [one["args"]["name"] for one in events[:4]] == ["load", "gemm", "alu", "store"]
    assert len(events) == 4 + len(program.instructions)
    by_track = [sorted((e["ts"], e["ts"] + e["dur"]) for e in events[4:] if e["tid"] == unit) for unit in Unit]
    for track in by_track:
        assert all(end <= start for (_, end), (start, _) in pairwise(track))
