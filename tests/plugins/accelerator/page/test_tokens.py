"""Tokens by chance, full queues: programs that nothing proved take the same cycles, or wait forever in both."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.isa import (
    KINDS,
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    Memory,
    Operation,
    Queue,
    Store,
    pops,
    pushes,
    unit_of,
)
from graft.plugins.accelerator.program import Program, Role, Tensor
from tests.plugins.accelerator.page.compare import MACHINES, PROGRAMS, check_times
from tests.plugins.accelerator.page.random_programs import random_configuration


def random_instruction(rng: np.random.Generator, often: float, output: int) -> Instruction:
    """An instruction of few cycles, or of none, that accesses the first entries alone; micro-ops are zeros."""
    kind = KINDS[int(rng.choice([0, 1, 2, 4]))]
    missing = {Load: "previous", Store: "next"}.get(kind, "")
    tokens = {f"{side}_{end}": bool(rng.random() < often) and end != missing
              for side in ("pop", "push") for end in ("previous", "next")}  # fmt: skip

    def below(most: int) -> int:
        return int(rng.integers(most))

    if kind is Load:
        return Load(rows=below(3), columns=below(3), stride=below(4), pad_left=below(2), **tokens)
    if kind is Store:
        return Store(memory=Memory.ACCUMULATOR, dram=output, columns=below(3), **tokens)
    if kind is Gemm:
        return Gemm(outer=below(3), inner=below(4), **tokens)
    return Alu(operation=Operation.ADD, use_immediate=True, outer=below(3), inner=below(4), **tokens)


def without_most_waits(instructions: list[Instruction]) -> list[Instruction]:
    """Take no token that no instruction before gave; what still waits forever is for want of room."""
    there, found = dict.fromkeys(Queue, 0), list[Instruction]()
    for one in instructions:
        for queue in pops(one):
            there[queue] -= 1
            if there[queue] < 0:
                there[queue] = 0
                side = "previous" if queue.value[0] < unit_of(one) else "next"
                one = replace(one, **{f"pop_{side}": False})
        for queue in pushes(one):
            there[queue] += 1
        found.append(one)
    return found


def random_program(seed: int, sizes: Configuration) -> Program:
    """Micro-ops for everything, and then instructions whose tokens nothing orders."""
    rng = np.random.default_rng(seed)
    machine = replace(sizes, queue_depth=int(rng.integers(1, 5)), token_depth=int(rng.integers(1, 4)))
    count, often = int(rng.integers(5, 60)), float(rng.choice([0.1, 0.25, 0.4]))
    entry = machine.entry_bytes["accumulator"]
    first = -(-machine.micro_op_bytes // entry)
    body = [random_instruction(rng, often, first) for _ in range(count)]
    if rng.random() < 0.9:
        body = without_most_waits(body)
    finish = Finish(**{name: bool(rng.random() < 0.2) for name in ("pop_previous", "pop_next", "push_next")})
    start = (
        Load(memory=Memory.MICRO_OP, columns=machine.micro_op_entries, push_next=True),
        Gemm(outer=0, pop_previous=True, push_next=True),
        Alu(outer=0, pop_previous=True),
    )
    micro_ops = Tensor("m", Role.MICRO_OPS, 0, machine.micro_op_bytes, bytes(machine.micro_op_bytes))
    rest = Tensor("y", Role.WORKSPACE, first * entry, 8 * max(machine.entry_bytes.values()))
    return Program(machine, (micro_ops, rest), (*start, *body, finish))


def check_tokens(machine: int, programs: int) -> Counter[bool]:
    sizes = random_configuration(np.random.default_rng(machine))
    return Counter(check_times(random_program(seed, sizes)) for seed in range(programs))


def test_programs_of_any_tokens_take_the_cycles_that_the_page_says_or_wait_forever_in_both() -> None:
    ends = sum((check_tokens(machine, 6) for machine in MACHINES), Counter[bool]())
    assert min(ends[True], ends[False]) > 20


@pytest.mark.conformance
@pytest.mark.parametrize("machine", MACHINES)
def test_hundreds_of_programs_of_any_tokens_do(machine: int) -> None:
    assert check_tokens(machine, PROGRAMS // 5)
