"""Rows by blocks: Softmax, LayerNormalization, reductions of whole rows, and what is fused with them.

A block of threads has a row. Every stage of it goes over the row in turns, neighbouring threads at neighbouring places;
what is reduced is combined in shared memory, and what lies between stages stays there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from math import prod

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.build import Count
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.accumulate import joined
from graft.core.schedule.loops.flat_stages import stride
from graft.core.schedule.loops.inline import constant_shape, stage_expressions
from graft.core.schedule.parameters import BlockParameters, Parameters, of_family
from graft.core.schedule.primitives.vectorize import broadcast, vectorize_expression
from graft.core.schedule.strategies.nests.fused_rows import keep_costly, with_reciprocals
from graft.core.schedule.strategies.nests.generic_nest import fuse, with_epilogues
from graft.core.schedule.strategies.strategy import OTHER_FORM, Anchor, Strategy
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.ordered_stages import is_sequential
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import ExpressionMap, loads, map_statement, substitute, substitution
from graft.core.types import element_bits
from graft.plugins.cuda.machines import WARP
from graft.plugins.cuda.strategies.frames import ACCESS, in_turns, launched, neutral, places, summed
from graft.plugins.cuda.strategies.plain import finished, joined_stages

PART = 2
"""A block may have one of so many parts of a multiprocessor's shared memory, so that others run beside it."""
PER_THREAD = 8
"""Elements of a row that one thread has, if there are threads for it."""
MOST = 512
SHORT = 16
"""A row of less is for one thread."""


def build(anchor: Anchor, target: Target) -> Scheduled | Reject:
    """Return a kernel with a block for each row, or why its stages have none."""
    kernel = anchor.kernel
    if any(map(is_sequential, kernel.stages)):
        return OTHER_FORM
    for stages in _candidates(anchor):
        found = _rows_of(stages, kernel, target, of_family(anchor.parameters, BlockParameters))
        if found is not None:
            return found.scheduled(kernel)
    return Reject("no-pattern", "its stages have no rows that fit a block")


def _candidates(anchor: Anchor) -> list[tuple[ir.Stage, ...]]:
    """Return the kernel's stages, with what is costly kept, and without."""
    kernel = anchor.kernel
    plain = joined_stages(kernel.stages, kernel.outputs)
    if anchor.varies:
        return [with_reciprocals(plain, kernel.outputs)]
    fused = with_reciprocals(keep_costly(fuse(kernel.stages, kernel.outputs)), kernel.outputs)
    return [with_epilogues(fused, kernel.outputs), plain]


def _rows_of(
    stages: Sequence[ir.Stage], kernel: Kernel, target: Target, wanted: BlockParameters | None
) -> _Rows | None:
    reduces = [stage for stage in stages if stage.reduction is not None]
    made = {stage.buffer for stage in stages}
    memory = target.machine.memory("shared")
    if not reduces or memory is None or any(stage.value.type.is_custom for stage in stages):
        return None
    if any(one.reduction is not None and ir.is_ordered(one.reduction.operator, one.value.type) for one in reduces):
        return None
    for rows in range(min(len(stage.axes) for stage in stages), -1, -1):
        same = all(stage.buffer.shape[:rows] == stages[0].buffer.shape[:rows] for stage in stages)
        own = all(_is_one(stage.buffer.shape[rows:]) for stage in reduces)
        if same and own and all(_stays(stage, made, rows) for stage in stages):
            found = _Rows(tuple(stages), rows, kernel, target, wanted)
            return found if found.fits(memory.bytes // PART) else None
    return None


def _is_one(shape: Sequence[ir.Expression]) -> bool:
    return all(extent == b.index(1) for extent in shape)


def _stays(stage: ir.Stage, made: set[ir.Buffer], rows: int) -> bool:
    return all(
        load.mask is None and all(index is axis for index, axis in zip(load.indices[:rows], stage.axes, strict=False))
        for load in loads(*stage_expressions(stage))
        if load.buffer in made
    )


class _Rows:
    """Stages that share their first ``rows`` axes."""

    def __init__(
        self, stages: tuple[ir.Stage, ...], rows: int, kernel: Kernel, target: Target, wanted: BlockParameters | None
    ) -> None:
        self.stages, self.rows, self.kernel, self.target = stages, rows, kernel, target
        self.extents = b.counts(replace(stages[0].buffer, shape=stages[0].buffer.shape[:rows]))
        self.axes = tuple(ir.Variable(f"row{number}") for number in range(rows))
        self.thread = ir.Variable("thread")
        lengths = [self._length(stage) for stage in stages]
        known = [one for one in lengths if isinstance(one, int)]
        self.longest: Count = max(known) if len(known) == len(lengths) else lengths[0]
        self.threads = self._threads(wanted)

    def _threads(self, parameters: BlockParameters | None) -> int:
        wanted = 128 * PER_THREAD if not isinstance(self.longest, int) else self.longest
        if parameters is not None and parameters.threads is not None:
            wanted = PER_THREAD * parameters.threads
        threads = WARP
        while threads < MOST and threads * PER_THREAD < wanted:
            threads *= 2
        return threads

    def _length(self, stage: ir.Stage) -> Count:
        """The number of places of a stage's row: those it reduces over, or stores."""
        if stage.reduction is not None:
            return b.product_of([b.counted(axis.extent) for axis in stage.reduction.axes])
        return b.product_of(b.counts(stage.buffer)[self.rows :])

    def fits(self, most: int) -> bool:
        """Whether what lies between the stages fits a block, and rows are long enough to be shared."""
        total = 0
        for stage in self.stages:
            if stage.buffer in self.kernel.outputs or stage.reduction is not None:
                continue
            shape = constant_shape(replace(stage.buffer, shape=stage.buffer.shape[self.rows :]))
            if shape is None:
                return False
            total += prod(shape) * element_bits(stage.buffer.dtype) // 8
        long_enough = not isinstance(self.longest, int) or self.longest >= SHORT
        return long_enough and total + 8 * MOST * len(self.stages) <= most and self._walks()

    def _walks(self) -> bool:
        """Whether neighbouring threads read neighbouring elements of what is reduced."""
        simplifier = Simplifier()
        for stage in self.stages:
            if stage.reduction is None:
                continue
            inner = stage.reduction.axes[-1].variable
            outside = [load for load in loads(stage.value) if load.buffer in self.kernel.inputs]
            steps = [stride(load.indices[-1], inner, simplifier) for load in outside if load.indices]
            if steps and all(step == 0 for step in steps):
                return False
        return True

    def scheduled(self, kernel: Kernel) -> Scheduled:
        """Return the kernel."""
        own = {stage.buffer: self._own(stage) for stage in self.stages if stage.buffer not in kernel.outputs}
        row = ir.Variable("row")
        body = self._stage(0, own)
        for axis, place in zip(reversed(self.axes), reversed(places(row, self.extents)), strict=True):
            body = ir.Let(axis, place, body)
        for stage in reversed(self.stages):
            if stage.buffer in own and stage.reduction is None:
                body = ir.Allocate(own[stage.buffer], body)
        return finished(
            kernel, launched(row, b.product_of(self.extents), self.thread, self.threads, body), threads=self.threads
        )

    def _own(self, stage: ir.Stage) -> ir.Buffer:
        """The buffer of one row of a stage that is no output."""
        shape = stage.buffer.shape[self.rows :]
        return ir.Buffer(stage.buffer.name, stage.buffer.dtype, shape, memory="shared", alignment=ACCESS)

    def _stage(self, number: int, own: dict[ir.Buffer, ir.Buffer]) -> ir.Statement:
        """Return a stage and those behind it."""
        if number == len(self.stages):
            return ir.Block(())
        stage = self.stages[number]
        moved = substitution(dict(zip(stage.axes[: self.rows], self.axes, strict=True)))
        if stage.reduction is None:
            return ir.Block((self._elements(stage, moved, own), ir.Barrier("block"), self._stage(number + 1, own)))
        return self._reduced(stage, moved, own, number)

    def _elements(self, stage: ir.Stage, moved: ExpressionMap, own: dict[ir.Buffer, ir.Buffer]) -> ir.Statement:
        """Return what computes the places of a row."""
        axes, extents = stage.axes[self.rows :], b.counts(stage.buffer)[self.rows :]
        target = own.get(stage.buffer)
        lanes = self._lanes(stage, axes, extents)

        def at(place: ir.Expression) -> ir.Statement:
            indices = places(place, extents)
            value = _at(self._read(moved(stage.value), own), axes, indices, lanes)
            leading = () if target is not None else self.axes
            return ir.Store(target or stage.buffer, (*leading, *indices), value)

        return in_turns(self._length(stage), self.thread, self.threads, at, lanes)

    def _lanes(self, stage: ir.Stage, axes: Sequence[ir.Variable], extents: Sequence[Count]) -> int:
        """Return how many neighbouring places a thread computes at one time: 16 bytes of the device's memory."""
        if not axes or not isinstance(extents[-1], int):
            return 1
        reads = loads(stage.value)
        buffers = {stage.buffer, *(load.buffer for load in reads)}
        outside = buffers & {*self.kernel.inputs, *self.kernel.outputs}
        widest = max(element_bits(one.dtype) // 8 for one in outside or buffers)
        simplifier = Simplifier()
        for load in reads:
            steps = [stride(index, axes[-1], simplifier) for index in load.indices]
            if load.mask is not None or any(step != 0 for step in steps[:-1]) or (steps and steps[-1] not in (0, 1)):
                return 1
        lanes = ACCESS // widest
        while lanes > 1 and extents[-1] % lanes:
            lanes //= 2
        return max(1, lanes)

    def _reduced(
        self, stage: ir.Stage, moved: ExpressionMap, own: dict[ir.Buffer, ir.Buffer], number: int
    ) -> ir.Statement:
        """Return a reduction of the row, and the stages behind it, which read its result."""
        reduction = stage.reduction
        assert reduction is not None, "a stage that reduces"
        kind = reduction.initial.type
        axes, extents = [axis.variable for axis in reduction.axes], [b.counted(axis.extent) for axis in reduction.axes]
        lanes = self._lanes(stage, axes, extents)
        part = ir.Buffer(
            f"{stage.buffer.name}_part", kind.dtype, (b.index(lanes),), memory="register", alignment=ACCESS
        )
        parts = (b.index(0) if lanes == 1 else ir.Ramp(b.index(0), 1, lanes),)
        rest = {axis: b.index(0) for axis in stage.axes[self.rows :]}

        def at(place: ir.Expression) -> ir.Statement:
            value = substitute(self._read(moved(stage.value), own), rest)
            value = _at(value, axes, places(place, extents), lanes)
            return ir.Store(part, parts, joined(reduction.operator, ir.Load(part, parts), value))

        def then(total: ir.Expression) -> ir.Statement:
            total = joined(reduction.operator, self._read(moved(reduction.initial), own), total)
            if stage.epilogue is not None:
                assert stage.epilogue_variable is not None, "an epilogue of something"
                value = self._read(moved(stage.epilogue), own)
                total = substitute(value, {**rest, stage.epilogue_variable: total})
            result = ir.Variable(stage.buffer.name, total.type)
            behind = self._stage(number + 1, own)
            if stage.buffer in own:
                behind = _with_number(behind, own[stage.buffer], result)
            else:
                first: tuple[ir.Expression, ...] = (*self.axes, *(b.index(0) for _ in rest))
                behind = ir.Block((ir.If(b.equal(self.thread, 0), ir.Store(stage.buffer, first, result)), behind))
                behind = _with_number(behind, stage.buffer, result)
            return ir.Let(result, total, behind)

        start = ir.Store(part, parts, broadcast(neutral(reduction.operator, kind), lanes))
        turns = in_turns(self._length(stage), self.thread, self.threads, at, lanes)
        each: list[ir.Expression] = [ir.Load(part, (b.index(lane),)) for lane in range(lanes)]
        own_total = reduce(partial(joined, reduction.operator), each)
        whole = summed(reduction.operator, own_total, self.thread, self.threads, f"{stage.buffer.name}_total", then)
        return ir.Allocate(part, ir.Block((start, turns, whole)))

    def _read(self, value: ir.Expression, own: dict[ir.Buffer, ir.Buffer]) -> ir.Expression:
        """Return a value in which what lies between the stages is read where it is in shared memory."""

        def rule(node: ir.Expression) -> ir.Expression:
            if isinstance(node, ir.Load) and node.buffer in own:
                return ir.Load(own[node.buffer], node.indices[self.rows :], node.mask)
            return node

        return ExpressionMap(rule)(value)


def _at(value: ir.Expression, axes: Sequence[ir.Variable], indices: list[ir.Expression], lanes: int) -> ir.Expression:
    """Return a value at a place, or at neighbouring ones, whose last index is made a vector of them."""
    if lanes == 1:
        return substitute(value, dict(zip(axes, indices, strict=True)))
    indices[-1] = ir.Ramp(indices[-1], 1, lanes)
    return broadcast(vectorize_expression(value, dict(zip(axes, indices, strict=True))), lanes)


def _with_number(body: ir.Statement, buffer: ir.Buffer, number: ir.Variable) -> ir.Statement:
    """Return a body in which a number stands where the one element of a buffer is read."""

    def rule(node: ir.Expression) -> ir.Expression:
        return number if isinstance(node, ir.Load) and node.buffer is buffer and node.type.lanes == 1 else node

    return map_statement(body, ExpressionMap(rule))


def _measured(anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    """Return every number of threads that a block may have, in the first stage of tuning."""
    counts = (WARP << power for power in range((MOST // WARP).bit_length()))
    return [BlockParameters(threads=threads) for threads in counts] if stage == 0 else []


ANCHORS = frozenset({Trait.ROW_WISE, Trait.REDUCTION})
STRATEGY = Strategy("cuda.rows", ANCHORS, build, candidates=_measured)
VARYING = replace(STRATEGY, name="cuda.rows_varying", varies=True)
