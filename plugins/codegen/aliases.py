"""Views inside a kernel: what reads or follows a view is written over the shape of what it is a view of.

The two shapes differ in dimensions of 1 only, so an index of one is an index of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graft.core.operators.definition.build import Count, counts, index, variables
from graft.core.schedule.loops.inline import map_stage, stage_expressions
from graft.core.tensor_ir.anchors import weakened
from graft.core.tensor_ir.ir import Buffer, Expression, Load, Stage, Variable
from graft.core.tensor_ir.visit import ExpressionMap, loads


class Aliases:
    """Buffers that hold the same elements as another buffer, index for index but for dimensions of 1."""

    def __init__(self) -> None:
        self._of: dict[Buffer, Buffer] = {}  # what the kernel has computed so far is there too, as itself

    def add(self, alias: Buffer, buffer: Buffer) -> None:
        """Record that ``alias`` is ``buffer`` under another shape."""
        self._of[alias] = self.get(buffer)

    def get(self, buffer: Buffer) -> Buffer:
        """Return what a buffer is an alias of, itself if it is none."""
        return self._of.get(buffer, buffer)

    def rewritten(self, stage: Stage, *, elementwise: bool) -> Stage:
        """Return a stage that reads no alias; an elementwise one takes the shape of what it reads of this kernel."""
        found = [load.buffer for load in loads(*stage_expressions(stage)) if load.buffer in self._of]
        plain = stage
        if any(self.get(one) is not one for one in found):
            plain = replace(map_stage(stage, ExpressionMap(self._load)), structure=weakened(stage.structure))
        like = next(
            (one for one in map(self.get, found) if _are_alike(counts(one), counts(plain.buffer))), plain.buffer
        )
        if elementwise and counts(like) != counts(plain.buffer):
            return self._moved(plain, like)
        self._of[stage.buffer] = plain.buffer
        return plain

    def _load(self, node: Expression) -> Expression:
        if not isinstance(node, Load) or self.get(node.buffer) is node.buffer:
            return node
        target = self._of[node.buffer]
        return Load(target, moved_index(node.indices, counts(node.buffer), counts(target)), node.mask)

    def _moved(self, stage: Stage, like: Buffer) -> Stage:
        """The stage over the shape of ``like``; its buffer becomes an alias of the new one."""
        shape = counts(like)
        axes = variables(len(shape))
        places = dict(zip(stage.axes, moved_index(axes, shape, counts(stage.buffer)), strict=True))

        def rule(node: Expression) -> Expression:
            if isinstance(node, Load) and counts(node.buffer) == shape:
                # In a dimension of 1 the axis is as good as 0, and shows that the load is at the stage's own index.
                own = zip(node.indices, axes, shape, strict=True)
                return Load(node.buffer, tuple(a if extent == 1 else i for i, a, extent in own), node.mask)
            return places.get(node, node) if isinstance(node, Variable) else node

        buffer = replace(stage.buffer, shape=like.shape)
        self._of[stage.buffer] = buffer
        return replace(map_stage(stage, ExpressionMap(rule)), buffer=buffer, axes=axes)


def _are_alike(left: Sequence[Count], right: Sequence[Count]) -> bool:
    """Whether shapes differ in dimensions of 1 only; an operand that is broadcast does not."""
    return [extent for extent in left if extent != 1] == [extent for extent in right if extent != 1]


def moved_index(
    place: Sequence[Expression], source: Sequence[Count], target: Sequence[Count]
) -> tuple[Expression, ...]:
    """Return the index in shape ``target`` of element ``place`` of shape ``source``, equal but for dimensions of 1."""
    rest = [axis for axis, extent in zip(place, source, strict=True) if extent != 1]
    return tuple(index(0) if extent == 1 else rest.pop(0) for extent in target)
