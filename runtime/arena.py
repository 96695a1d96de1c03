"""What lies in an arena when: its tensors with their places and lives, and the call at which it is fullest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graft.runtime.dtypes import element_type
from graft.runtime.procedure import ALIGNMENT, Procedure, TensorSpec, contiguous_bytes
from graft.runtime.spans import spans_of


@dataclass(frozen=True, slots=True)
class Block:
    """A tensor in the arena, from its first call to its last, both included."""

    name: str
    offset: int
    bytes: int
    first: int
    last: int

    @property
    def room(self) -> int:
        """What it takes of the arena: its bytes up to the next multiple of the alignment."""
        return -(-max(self.bytes, 1) // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class Moment:
    """A call, and what is in the arena while it runs, the largest first."""

    step: int
    blocks: tuple[Block, ...]

    @property
    def bytes(self) -> int:
        """What is used of the arena."""
        return sum(one.room for one in self.blocks)


def blocks_of(procedure: Procedure) -> list[Block]:
    """Return the tensors of the arena in main memory; none where it is planned later, for each binding."""
    if not procedure.arena_bytes:
        return []
    spans = spans_of(procedure.tensors, procedure.calls)
    return [
        Block(tensor.name, tensor.offset, _bytes(tensor), *spans[index])
        for index, tensor in enumerate(procedure.tensors)
        if tensor.storage == "arena" and tensor.device == 0 and index in spans
    ]


def _bytes(tensor: TensorSpec) -> int:
    shape = tensor.static_shape
    return tensor.room if shape is None else contiguous_bytes(element_type(tensor.dtype).bytes, shape)


def fullest_moment(procedure: Procedure) -> Moment | None:
    """Return the first call at which most of the arena is used; None where nothing is in it."""
    blocks = blocks_of(procedure)
    moments = [Moment(step, _live(blocks, step)) for step in range(len(procedure.calls))]
    return max(moments, key=lambda one: one.bytes) if blocks else None


def _live(blocks: Sequence[Block], step: int) -> tuple[Block, ...]:
    """Return what is live at a step; of tensors that take one another's place, the last."""
    live = {one.offset: one for one in blocks if one.first <= step <= one.last}
    return tuple(sorted(live.values(), key=lambda one: (-one.room, one.offset)))
