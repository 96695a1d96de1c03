"""Numbers of the ALU that round in a way of their own: special ones, and ties that are none in 64 bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.isa import (
    FLOATING,
    QUANTIZING,
    WIDE,
    Alu,
    Finish,
    Instruction,
    Load,
    Memory,
    MicroOp,
    Operation,
    Store,
)
from graft.plugins.accelerator.model import run
from graft.plugins.accelerator.program import Program, Role, Tensor, encode_micro_ops
from graft.plugins.accelerator.proof.dependences import with_tokens
from graft.plugins.accelerator.simulator import run_functional
from tests.plugins.accelerator.page.compare import PROGRAMS, by_the_page
from tests.plugins.accelerator.page.random_programs import SPECIAL

MACHINE = Configuration()
COUNT, LANES, ENTRY = 256, 16, 64
"""Destinations; behind them lie, for each of them, a multiplier, a divisor and a bias."""
Lanes = npt.NDArray[Any]
WHOLE = [0, 1, -1, 31, 32, 33, -31, -32, -33, 127, 128, -129, 2**24 + 1, 2**24 + 3, -(2**24) - 1, 2**30 + 64,
         2**31 - 1, -(2**31), 0x7F800001, 0x7FC00001, -4194303]  # fmt: skip
"""Shifts about 31, halves of floats' last bits, the ends of 32 bits, NaNs of other bits."""


def bits(numbers: Lanes) -> Lanes:
    return np.asarray(numbers, np.float32).view(np.int32)


def special(rng: np.random.Generator) -> Lanes:
    n = (COUNT, LANES)
    return np.choose(
        rng.integers(0, 8, n),
        [
            rng.integers(-(2**31), 2**31, n).astype(np.int32) >> rng.integers(0, 31, n).astype(np.int32),
            rng.integers(-300, 300, n).astype(np.int32),
            rng.choice(np.array(WHOLE, np.int64), n).astype(np.int32),
            bits(rng.uniform(-300, 300, n)),
            bits(rng.integers(-600, 600, n) / 2),
            bits(rng.choice(SPECIAL, n)),
            bits(2.0 ** rng.integers(-149, 127, n) * rng.choice([1, -1, 1.5], n)),
            bits(rng.uniform(-2, 2, n) * 2.0 ** rng.integers(-10, 32, n)),
        ],
    )


def of_special_numbers(rng: np.random.Generator) -> list[Lanes]:
    return [special(rng) for _ in range(4)]


def of_quotients(rng: np.random.Generator) -> list[Lanes]:
    """Quotients that are ties where they are rounded to 32 bits, and none where they are not."""
    y = rng.uniform(0.01, 4, (COUNT, LANES)).astype(np.float32)
    x = y * (rng.integers(-140, 140, (COUNT, LANES)) + 0.5).astype(np.float32)
    assert np.any((x / y % 1 == 0.5) & (x.astype(float) / y % 1 != 0.5))
    return [bits(x), bits(y), special(rng), special(rng)]


def of_products(rng: np.random.Generator) -> list[Lanes]:
    """Products likewise: an integer by a multiplier."""
    x = rng.integers(1, 2**20, (COUNT, LANES)).astype(np.int32)
    y = ((rng.integers(-140, 140, (COUNT, LANES)) + 0.5) / x).astype(np.float32)
    assert np.any((x.astype(np.float32) * y % 1 == 0.5) & (x * y.astype(float) % 1 != 0.5))
    return [x, bits(y), np.full_like(x, bits(np.float32(1))), np.zeros_like(x)]


KINDS = [of_special_numbers, of_quotients, of_products]


def operations(rng: np.random.Generator) -> Iterator[Alu]:
    """Each operation, with and without what its immediate number can say."""
    for operation in Operation:
        for twice in (False, True):
            most = 256 if operation is Operation.SCALE else 1024 if operation is Operation.QUANTIZE else WIDE
            immediate = int(rng.integers(most)) if operation in FLOATING else int(rng.integers(-32768, 32768))
            if operation is Operation.SHIFT_RIGHT:
                immediate = int(rng.integers(-70, 70))
            if operation is Operation.REQUANTIZE:
                immediate |= WIDE * twice
            if not twice or operation in QUANTIZING or operation not in FLOATING:
                use = twice and operation not in FLOATING
                yield Alu(operation=operation, use_immediate=use, immediate=immediate,
                          inner=COUNT, destination_inner=1, source_inner=3)  # fmt: skip


def program_of(rng: np.random.Generator) -> Program:
    size = 4 * COUNT * ENTRY
    instructions: list[Instruction] = [Load(memory=Memory.MICRO_OP, dram=size // 4)]
    at = first = size // ENTRY + 1
    for one in operations(rng):
        load = Load(memory=Memory.ACCUMULATOR, columns=4 * COUNT)
        instructions += [load, one, Store(memory=Memory.ACCUMULATOR, dram=at, columns=COUNT)]
        at += COUNT
    tensors = (
        Tensor("x", Role.INPUT, 0, size),
        Tensor("m", Role.MICRO_OPS, size, 4, encode_micro_ops([MicroOp(0, COUNT)], MACHINE)),
        Tensor("y", Role.OUTPUT, first * ENTRY, (at - first) * ENTRY),
    )
    return with_tokens(Program(MACHINE, tensors, (*instructions, Finish())))


def check_numbers(kind: Callable[[np.random.Generator], list[Lanes]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, *behind = kind(rng)
    data = {"x": np.concatenate([x, np.stack(behind, axis=1).reshape(-1, LANES)]).astype(np.int32).tobytes()}
    program = program_of(rng)
    found = run_functional(program, data, seed).outputs
    assert by_the_page(program, data, seed) == found, seed
    assert seed % 8 or run(program, data) == found, seed


@pytest.mark.parametrize("kind", KINDS)
def test_every_operation_rounds_as_the_page_says(kind: Callable[[np.random.Generator], list[Lanes]]) -> None:
    for seed in range(3):
        check_numbers(kind, seed)


@pytest.mark.conformance
@pytest.mark.parametrize("kind", KINDS)
def test_every_operation_rounds_many_numbers_as_the_page_says(
    kind: Callable[[np.random.Generator], list[Lanes]],
) -> None:
    for seed in range(PROGRAMS // 10):
        check_numbers(kind, seed)
