"""Random configurations, instructions and micro-ops."""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st

from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.isa import (
    FLAGS,
    KINDS,
    Instruction,
    Memory,
    MicroOp,
    Operation,
    fault,
    field_table,
    micro_op_fields,
)

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
    assume(fault(instruction) is None)
    return instruction


@st.composite
def micro_ops(draw: st.DrawFn, configuration: Configuration) -> MicroOp:
    return MicroOp(*(draw(st.integers(field.least, field.most)) for field in micro_op_fields(configuration)))
