"""What is fused behind a sum of products: the stages after the anchor, applied to accumulators.

Each of those stages is elementwise over the anchor's index space, so a vector of accumulators at a *point* (one index
per output axis, the last of them perhaps a ramp) goes through all of them before anything is stored. Where products
stand side by side, each of them has its own stages, over its own columns (`Branch`), or their columns take turns, a
vector of each, and the stages combine them (`Epilogue.picks`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import is_

from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.inline import inline_into, map_stage
from graft.core.schedule.loops.narrowing import ROUNDING
from graft.core.schedule.primitives.vectorize import align, both, vector_load
from graft.core.tensor_ir.ir import Binary, Buffer, Constant, Expression, Intrinsic, Load, Stage, Store, Variable
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
    branches: tuple[Branch, ...] = ()
    """If there are any, they cover all columns, and ``followers`` is empty."""
    picks: tuple[Stage, ...] = ()
    """If there are any, columns take turns, and each of these stages picks its own; the followers have their shape."""
    lanes: int = 1
    """The columns of one turn."""

    @property
    def initial(self) -> Expression:
        """What the sums start from."""
        assert self.anchor.reduction is not None, f"'{self.anchor.buffer.name}' is no sum"
        return self.anchor.reduction.initial

    @property
    def turns(self) -> int:
        """How many products take turns; 1 if none do."""
        return len(self.picks) or 1

    @property
    def every(self) -> tuple[Stage, ...]:
        """The stages behind the anchor, those that pick columns included."""
        own = (stage for branch in self.branches for stage in (branch.epilogue.anchor, *branch.epilogue.followers))
        return (*self.picks, *self.followers, *own)

    def allows(self, columns: int) -> bool:
        """Whether a tile of so many columns has as many columns of each turn."""
        return columns % (self.turns * self.lanes) == 0

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

    def stores(
        self, point: Sequence[Expression], total: Expression, mask: Expression | None, *others: Expression
    ) -> list[Store]:
        """Return the stores of all outputs at ``point``, where the reduction is ``total``; ``mask`` as for a vector.

        ``others`` are the reductions of the other products if they take turns.
        """
        values = self.values(point, total, mask, *others)
        return [
            Store(stage.buffer, tuple(point), values[stage.buffer], mask)
            for stage in (*(self.picks or (self.anchor,)), *self.followers)
            if stage.buffer in self.outputs
        ]

    def values(
        self, point: Sequence[Expression], total: Expression, mask: Expression | None, *others: Expression
    ) -> dict[Variable | Buffer, Expression]:
        """Return the values of all stages at ``point``, in order."""
        assert not self.branches, "a point of which branch?"
        sums = self.picks or (self.anchor,)
        values: dict[Variable | Buffer, Expression] = {}
        for stage, one in zip(sums, (total, *others), strict=True):
            values[stage.buffer] = one
            if stage.epilogue is not None:
                assert stage.epilogue_variable is not None
                values[stage.buffer] = _at(stage, stage.epilogue, point, {stage.epilogue_variable: one}, mask)
        for stage in self.followers:
            values[stage.buffer] = _at(stage, stage.value, point, values, mask)
        return values


@dataclass(frozen=True, slots=True)
class Branch:
    """The columns of the sums from ``begin`` to ``end``, and what is fused behind them: its anchor picks them."""

    begin: int
    end: int
    epilogue: Epilogue


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
    if rest and _first_column(rest[0], anchor.buffer) is not None:
        return _branched(anchor, rest, outputs)
    picks, lanes = _picks(anchor, rest)
    followers = tuple(rest[len(picks) :])
    sums = picks or (anchor,)
    known = {stage.buffer for stage in sums}
    for stage in followers:
        same = stage.buffer.shape == sums[0].buffer.shape
        if stage.reduction is not None or not same or not _is_pointwise(stage, known):
            return None
        known.add(stage.buffer)
    epilogue = Epilogue(anchor, followers, frozenset(outputs), picks=picks, lanes=lanes)
    return epilogue if known.issuperset(outputs) else None


def turn(axis: Expression, number: int, count: int, lanes: int) -> Expression:
    """Return the column of product ``number`` of ``count`` that take turns, ``lanes`` columns each."""
    begin = b.multiply(b.divide(axis, lanes), count * lanes)
    return b.add(begin, b.add(b.modulo(axis, lanes), number * lanes))


def _picks(anchor: Stage, rest: Sequence[Stage]) -> tuple[tuple[Stage, ...], int]:
    """Return the stages that pick the columns of products that take turns, and the columns of a turn."""
    whole, own = _columns(anchor), _columns(rest[0]) if rest else None
    if not whole or not own or whole % own or whole == own:
        return (), 1
    count, axes = whole // own, [stage.axes for stage in rest]
    steps = (
        node.right for node in walk_expressions(rest[0].value) if isinstance(node, Binary) and node.operator == "mod"
    )
    lanes = next((int(step.value) for step in steps if isinstance(step, Constant)), 1)
    wanted = [(*place[:-1], turn(place[-1], number, count, lanes)) for number, place in enumerate(axes[:count])]
    found = [stage.value for stage in rest[:count]]
    same = len(found) == count and found == [Load(anchor.buffer, place) for place in wanted]
    return (tuple(rest[:count]), lanes) if same else ((), 1)


def _columns(stage: Stage) -> int | None:
    """Return the number of columns of a result, None where it varies or there are none."""
    last = stage.buffer.shape[-1] if stage.buffer.shape else None
    return int(last.value) if isinstance(last, Constant) else None


def _branched(anchor: Stage, rest: Sequence[Stage], outputs: Sequence[Buffer]) -> Epilogue | None:
    """Return the epilogue of sums of which each branch takes columns of its own, one branch behind the other."""
    pieces: list[list[Stage]] = []
    for stage in rest:
        if _first_column(stage, anchor.buffer) is not None:
            pieces.append([])
        pieces[-1].append(stage)
    branches: list[Branch] = []
    for piece in pieces:
        own = {stage.buffer for stage in piece}
        epilogue = epilogue_of(piece, [buffer for buffer in outputs if buffer in own])
        begin = branches[-1].end if branches else 0
        width = _columns(piece[0])
        if epilogue is None or width is None or _first_column(piece[0], anchor.buffer) != begin:
            return None
        branches.append(Branch(begin, begin + width, epilogue))
    whole = branches[-1].end == _columns(anchor)
    stored = {buffer for branch in branches for buffer in branch.epilogue.outputs}
    return Epilogue(anchor, (), frozenset(outputs), tuple(branches)) if whole and stored.issuperset(outputs) else None


def _first_column(stage: Stage, sums: Buffer) -> int | None:
    """Return the first of the columns of the sums that a stage picks; None if it does anything else."""
    load = stage.value
    if not isinstance(load, Load) or load.buffer is not sums or load.mask is not None or stage.reduction is not None:
        return None
    if not stage.axes or stage.buffer.shape[:-1] != sums.shape[:-1] or stage.buffer.shape == sums.shape:
        return None
    *leading, column = load.indices
    if not all(map(is_, leading, stage.axes[:-1])):
        return None
    match column:
        case Binary("add", Variable() as axis, Constant(begin)) if axis is stage.axes[-1]:
            return int(begin)
        case Variable() if column is stage.axes[-1]:
            return 0
    return None


def _is_pointwise(stage: Stage, known: set[Buffer]) -> bool:
    """Whether a stage reads what was computed before it only at its own index."""
    for node in walk_expressions(stage.value):
        if isinstance(node, Load) and node.buffer in known:
            own = len(node.indices) == len(stage.axes) and all(map(is_, node.indices, stage.axes))
            if not own or node.mask is not None:
                return False
    return True


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
