"""Random configurations, instructions and programs."""

from __future__ import annotations

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.isa import (
    FLAGS,
    FLOATING,
    KINDS,
    QUANTIZING,
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    Memory,
    MicroOp,
    Operation,
    Store,
    fault,
    field_table,
    micro_op_fields,
)
from graft.plugins.accelerator.program import Program, Role, Tensor, encode_micro_ops
from graft.plugins.accelerator.proof.dependences import with_tokens

DEFAULT = Configuration()
SMALL = Configuration(
    batch=2, block_in=4, block_out=8, input_bytes=512, weight_bytes=1024, accumulator_bytes=4096, micro_op_bytes=256,
    queue_depth=4, token_depth=3,
)  # fmt: skip
CONFIGURATIONS = st.sampled_from((DEFAULT, SMALL))


@st.composite
def instructions(draw: st.DrawFn, configuration: Configuration) -> Instruction:
    """Any instruction that has a meaning: extreme fields are as likely as others."""
    kind = draw(st.sampled_from(KINDS))
    values: dict[str, object] = {}
    for field in field_table(configuration)[kind]:
        if field.name == "memory":
            values[field.name] = draw(st.sampled_from(Memory))
        elif field.name == "operation":
            values[field.name] = draw(st.sampled_from(Operation))
        elif field.name in FLAGS:
            values[field.name] = draw(st.booleans())
        else:
            values[field.name] = draw(st.sampled_from((field.least, field.most)) | st.integers(field.least, field.most))
    instruction = kind(**values)  # type: ignore[arg-type]
    assume(fault(instruction, configuration) is None)
    return instruction


@st.composite
def micro_ops(draw: st.DrawFn, configuration: Configuration) -> MicroOp:
    return MicroOp(*(draw(st.integers(field.least, field.most)) for field in micro_op_fields(configuration)))


# ---- Whole programs -----------------------------------------------------------------------------------------------

TINY = Configuration(
    batch=1, block_in=4, block_out=4, input_bytes=64, weight_bytes=128, accumulator_bytes=384, micro_op_bytes=64,
    queue_depth=64, token_depth=64,
)  # fmt: skip
"""16 blocks of inputs, 8 of weights, 24 of accumulators, 16 micro-ops: so few that everything collides."""


def random_program(
    seed: int, length: int = 24, configuration: Configuration = TINY
) -> tuple[Program, dict[str, bytes]]:
    """A legal program of random instructions, with tokens for its dependences, and inputs for it."""
    rng = np.random.default_rng(seed)
    micro = [MicroOp(*map(int, rng.integers(0, (6, 6, 4)))) for _ in range(16)]
    whole, outputs = 24 * 16, 24 * 4
    workspace = 16 * 4
    tensors = (
        Tensor("x", Role.INPUT, 0, 512),
        Tensor("w", Role.CONSTANT, 512, 256, rng.bytes(256)),
        Tensor("m", Role.MICRO_OPS, 768, 64, encode_micro_ops(micro, TINY)),
        Tensor("wide", Role.OUTPUT, 832, whole),
        Tensor("narrow", Role.OUTPUT, 832 + whole, outputs),
        Tensor("kept", Role.WORKSPACE, 832 + whole + outputs, workspace),
    )
    start = [
        Load(memory=Memory.MICRO_OP, dram=768 // 4, columns=16),
        Load(memory=Memory.INPUT, columns=16),
        Load(memory=Memory.WEIGHT, dram=512 // 16, columns=8),
        Load(memory=Memory.ACCUMULATOR, dram=8, columns=24),
        Store(sram=3, dram=tensors[5].offset // 4, columns=16),
    ]
    end = [
        Store(memory=Memory.ACCUMULATOR, dram=832 // 16, columns=24),
        Store(memory=Memory.OUTPUT, dram=tensors[4].offset // 4, columns=24),
        Finish(),
    ]
    body = [_random_instruction(rng, tensors) for _ in range(length)]
    program = with_tokens(Program(configuration, tensors, (*start, *body, *end)))
    return program, {"x": rng.bytes(512)}


def _random_instruction(rng: np.random.Generator, tensors: tuple[Tensor, ...]) -> Instruction:
    def below(most: int) -> int:
        return int(rng.integers(most))

    loop = {"begin": below(8), "end": 9 + below(8), "outer": 1 + below(2), "inner": 1 + below(2)}
    factors = {
        f"{side}_{level}": below(4) for side in ("destination", "source") for level in ("outer", "inner")
    }  # 5 + 3 + 3 < 16
    kept = tensors[5].offset // 4
    match below(6):
        case 0:
            window = {"rows": 1 + below(2), "columns": 1 + below(2), "stride": below(3)}
            pads = {f"pad_{side}": below(2) for side in ("top", "bottom", "left", "right")}
            dram = below(100) if below(2) else kept + below(10)
            return Load(memory=Memory.INPUT, sram=0, dram=dram, pad_value=below(256) - 128, **window, **pads)
        case 1:
            return Load(memory=Memory.WEIGHT, sram=below(4), dram=32 + below(4), rows=2, columns=2, stride=below(8))
        case 2:
            memory = (Memory.ACCUMULATOR, Memory.ACCUMULATOR_8)[below(2)]
            return Load(memory=memory, sram=below(12), dram=below(10), rows=2, columns=3, stride=3, pad_left=below(2))
        case 3:
            return Store(sram=below(20), dram=kept + below(8), rows=2, columns=2, stride=2 + below(4))
        case 4:
            weights = {"weight_outer": below(2), "weight_inner": below(2)}
            return Gemm(reset=not below(6), lanes=not below(3), **loop, **factors, **weights)
        case _:
            operation = Operation(below(len(Operation)))
            flags = below(1024) if operation in QUANTIZING else below(65536) - 32768
            if operation is Operation.SCALE:
                flags &= 255
            use = operation not in FLOATING and bool(below(2))
            return Alu(operation=operation, use_immediate=use, immediate=flags, **loop, **factors)
