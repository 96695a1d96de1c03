"""Tensors between kernels in bfloat16: a kernel rounds what it stores, and widens what it reads.

A factor of a bfloat16 product is rounded all the same; what is also added somewhere loses as much there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graft.core.operators.definition import build as b
from graft.core.schedule.loops.inline import map_stage
from graft.core.tensor_ir.ir import Buffer, Cast, Expression, Intrinsic, Load, Stage
from graft.core.tensor_ir.visit import ExpressionMap
from graft.core.types import Type

ROUNDING = "round_bf16"
"""The intrinsic that makes float32 bfloat16: one instruction where processors have it."""


def rounded(value: Expression) -> Expression:
    """Return a float32 as bfloat16: what was widened is itself."""
    if isinstance(value, Cast) and value.value.type.dtype == "bfloat16":
        return value.value
    return Intrinsic(ROUNDING, (value,), Type("bfloat16", value.type.lanes))


def pixel_of(value: Expression) -> Load | None:
    """Return the load of a float32 or of a widened bfloat16; None for anything else."""
    inner = value.value if isinstance(value, Cast) and value.value.type.dtype == "bfloat16" else value
    return inner if isinstance(inner, Load) else None


def widened(load: Load) -> Expression:
    """Return an element of an image as float32."""
    return b.cast(load, "float32")


def reading(stage: Stage, narrow: Mapping[Buffer, Buffer]) -> Stage:
    """Return the stage with loads of float32 buffers as loads of the bfloat16 ones that stand for them."""

    def rule(node: Expression) -> Expression:
        if not isinstance(node, Load) or node.buffer not in narrow:
            return node
        return widened(Load(narrow[node.buffer], node.indices, node.mask))

    return map_stage(stage, ExpressionMap(rule))


def storing(stages: Sequence[Stage], narrow: Mapping[Buffer, Buffer]) -> list[Stage]:
    """Return stages that round the buffers in ``narrow`` behind those that compute them."""
    result = list(stages)
    for wide, buffer in narrow.items():
        axes = b.variables(len(wide.shape))
        origin = next((stage.origin for stage in stages if stage.buffer is wide), ())
        result.append(Stage(buffer, axes, rounded(b.load(wide, *axes)), origin=origin))
    return result
