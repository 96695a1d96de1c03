"""What is fused behind a sum of products: the stages after the anchor, applied to accumulators.

Each of those stages is elementwise over the anchor's index space, so a vector of accumulators at a *point* (one index
per output axis, the last of them perhaps a ramp) goes through all of them before anything is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graft.core.operators import build as b
from graft.core.schedule.inline import inline_into, map_stage
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.narrowing import ROUNDING
from graft.core.schedule.vectorize import align, both, vector_load
from graft.core.tensor_ir.ir import Buffer, Expression, Intrinsic, Load, Stage, Store, Variable
from graft.core.tensor_ir.visit import ExpressionMap, walk_expressions

INTRINSIC_WORK = 25
INLINE_WORK = 24
"""An epilogue of at most this many operations is repeated for every vector of a tile, a larger one in a loop."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """The anchor's stage and those behind it, with the buffers that are kernel outputs."""

    anchor: Stage
    followers: tuple[Stage, ...]
    outputs: frozenset[Buffer]

    @property
    def last(self) -> Buffer:
        """The buffer of the last stage."""
        return self.followers[-1].buffer if self.followers else self.anchor.buffer

    @property
    def is_heavy(self) -> bool:
        """Whether the code is too long to be repeated for every vector of a tile."""
        values = [stage.value for stage in self.followers]
        if self.anchor.epilogue is not None:
            values.append(self.anchor.epilogue)
        nodes = list(walk_expressions(*values))
        heavy = [node for node in nodes if isinstance(node, Intrinsic) and node.name != ROUNDING]
        return len(nodes) + (INTRINSIC_WORK - 1) * len(heavy) > INLINE_WORK

    def stores(self, point: Sequence[Expression], total: Expression, mask: Expression | None) -> list[Store]:
        """Return the stores of all outputs at ``point``, where the reduction is ``total``; ``mask`` as for a vector."""
        values = self.values(point, total, mask)
        return [
            Store(stage.buffer, tuple(point), values[stage.buffer], mask)
            for stage in (self.anchor, *self.followers)
            if stage.buffer in self.outputs
        ]

    def values(
        self, point: Sequence[Expression], total: Expression, mask: Expression | None
    ) -> dict[Variable | Buffer, Expression]:
        """Return the values of all stages at ``point``, in order."""
        if self.anchor.epilogue is not None:
            assert self.anchor.epilogue_variable is not None
            total = _at(self.anchor, self.anchor.epilogue, point, {self.anchor.epilogue_variable: total}, mask)
        values: dict[Variable | Buffer, Expression] = {self.anchor.buffer: total}
        for stage in self.followers:
            values[stage.buffer] = _at(stage, stage.value, point, values, mask)
        return values


def fused_stages(kernel: Kernel) -> tuple[Stage, ...] | None:
    """Return the sum of products and the stages behind it, all before it inlined; None where that is impossible."""
    sums = [number for number in range(kernel.anchor_stage + 1) if kernel.stages[number].reduction is not None]
    if len(sums) != 1:
        return None
    producers: dict[Buffer, Stage] = {}
    for stage in kernel.stages[: sums[0]]:
        if stage.buffer in kernel.outputs:
            return None
        producers[stage.buffer] = inline_into(stage, producers)
    anchor, *followers = (inline_into(stage, producers) for stage in kernel.stages[sums[0] :])
    stages = (anchor, *(indexed_by_axes(stage, anchor.buffer) for stage in followers))
    reduction = anchor.reduction
    return stages if reduction is not None and reduction.operator == "add" else None


def indexed_by_axes(stage: Stage, sums: Buffer) -> Stage:
    """Return the stage with 0 as an index into an axis of extent 1 replaced by the stage's variable of that axis."""

    def rule(node: Expression) -> Expression:
        if not isinstance(node, Load) or node.buffer.shape != sums.shape or len(node.indices) != len(stage.axes):
            return node
        pairs = zip(node.indices, stage.axes, node.buffer.shape, strict=True)
        places = (axis if extent == b.index(1) and index == b.index(0) else index for index, axis, extent in pairs)
        return Load(node.buffer, tuple(places), node.mask)

    return map_stage(stage, ExpressionMap(rule))


def epilogue_of(stages: Sequence[Stage], outputs: Sequence[Buffer]) -> Epilogue | None:
    """Return the epilogue of what `fused_stages` gave, None if a stage behind the anchor is not elementwise."""
    anchor, *rest = stages
    known = {anchor.buffer}
    for stage in rest:
        if stage.reduction is not None or stage.buffer.shape != anchor.buffer.shape or not _is_pointwise(stage, known):
            return None
        known.add(stage.buffer)
    return Epilogue(anchor, tuple(rest), frozenset(outputs)) if known.issuperset(outputs) else None


def _is_pointwise(stage: Stage, known: set[Buffer]) -> bool:
    """Whether a stage reads what was computed before it only at its own index."""
    for node in walk_expressions(stage.value):
        if isinstance(node, Load) and node.buffer in known:
            own = len(node.indices) == len(stage.axes) and all(map(_same, node.indices, stage.axes))
            if not own or node.mask is not None:
                return False
    return True


def _same(index: Expression, axis: Variable) -> bool:
    return index is axis


def _at(
    stage: Stage,
    value: Expression,
    point: Sequence[Expression],
    known: Mapping[Variable | Buffer, Expression],
    mask: Expression | None,
) -> Expression:
    """Return ``value`` with the stage's axes at ``point`` and what is in ``known`` in place of variables and loads.

    Only the vector loads of ``value`` itself get the mask, not those of ``known``'s values.
    """
    places = dict(zip(stage.axes, point, strict=True))

    def rule(node: Expression) -> Expression:
        if isinstance(node, Variable):
            return known.get(node) or places.get(node, node)
        if not isinstance(node, Load):
            return align(node)
        if node.buffer in known:
            return known[node.buffer]
        if mask is not None and node.type.lanes > 1:
            return Load(node.buffer, node.indices, both(node.mask, mask))
        return vector_load(node)

    return ExpressionMap(rule)(value)
