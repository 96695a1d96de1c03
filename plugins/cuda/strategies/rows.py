"""Rows by blocks: Softmax, LayerNormalization, reductions of whole rows, and what is fused with them.

A block of threads has a row. Every stage of it goes over the row in turns, neighbouring threads at neighbouring places;
what is reduced is combined in shared memory, and what lies between stages stays there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.build import Count
from graft.core.operators.definition.table import Trait
from graft.core.reject import Reject
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.accumulate import finish, joined
from graft.core.schedule.loops.flat_stages import FlatStage, Layout, LoopAxis, collapse, collapse_own, flatten, stride
from graft.core.schedule.loops.fused_stages import fuse
from graft.core.schedule.loops.inline import constant_shape, map_stage, stage_expressions
from graft.core.schedule.loops.kept_stages import keep_costly, with_reciprocals
from graft.core.schedule.loops.loop_frames import nested, taken
from graft.core.schedule.loops.nest import named
from graft.core.schedule.parameters import BlockParameters, Parameters, of_family
from graft.core.schedule.primitives.schedule_text import parse_schedule
from graft.core.schedule.primitives.vectorize import instantiate, lower_loops
from graft.core.schedule.strategies.nests.fused_elementwise import overwritable
from graft.core.schedule.strategies.nests.generic_nest import with_epilogues
from graft.core.schedule.strategies.strategy import OTHER_FORM, Anchor, Strategy
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.ordered_stages import is_sequential
from graft.core.tensor_ir.rewriting.simplify import Simplifier, simplify_statement
from graft.core.tensor_ir.statements import allocate
from graft.core.tensor_ir.visit import ExpressionMap, loads
from graft.core.types import element_bits
from graft.plugins.cuda.machines import WARP
from graft.plugins.cuda.strategies.elements import lanes_of
from graft.plugins.cuda.strategies.frames import ACCESS
from graft.plugins.cuda.strategies.plain import joined_stages

WRITTEN_OUT = 8
"""Turns of the threads that are written out."""
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
        simplifier, (stages, between) = Simplifier(), self._kept()
        layout = Layout(simplifier, self.rows, between)
        extents = enumerate(stages[0].buffer.shape[: self.rows])
        axes = [LoopAxis.over(ir.Variable(f"row{number}"), extent) for number, extent in extents]
        rows, flat = collapse(axes, [flatten(stage, layout, axes) for stage in stages], simplifier)
        behind, nests = "", list[ir.Statement]()
        for number, stage in enumerate(flat):
            one = named(collapse_own(stage, simplifier), simplifier, f"stage{number}.")
            make = self._elements if stage.operator is None else self._reduction
            nest, steps = make(one, f"stage{number}", lanes_of(one, simplifier))
            nests.append(nest)
            behind += steps
        rows = rows or (LoopAxis(ir.Variable("row"), 1),)
        names = tuple(axis.variable.name for axis in rows)
        body = nested(rows, allocate([layout.flat(one) for one in between], ir.Block(tuple(nests))))
        row = "row" if len(names) > 1 else names[0]
        steps = f"fuse {' '.join(names)} -> row\n" if len(names) > 1 else ""
        steps += f"bind {row} block.x\nspmd {row} {self.threads} thread.x -> thread\n"
        written = instantiate(simplify_statement(taken(body, parse_schedule(steps + behind), rows)), {})
        parameters = tuple(layout.flat(buffer) for buffer in (*kernel.inputs, *kernel.outputs))
        function = ir.Function(kernel.name, parameters, len(kernel.outputs), written, kernel.origin)
        return Scheduled(replace(function, in_place=overwritable(kernel)), knobs={"threads": self.threads})

    def _kept(self) -> tuple[list[ir.Stage], list[ir.Buffer]]:
        """Return the stages with what lies between them near, and its buffers.

        Results of reductions are in each thread's registers, from where those that are outputs are stored, too; all
        else is shared.
        """
        near: dict[ir.Buffer, ir.Buffer] = {}
        for stage in self.stages:
            dtype, shape = stage.buffer.dtype, stage.buffer.shape
            if stage.reduction is not None:
                near[stage.buffer] = ir.Buffer(f"{stage.buffer.name}_kept", dtype, shape, memory="register")
            elif stage.buffer not in self.kernel.outputs:
                near[stage.buffer] = ir.Buffer(stage.buffer.name, dtype, shape, memory="shared", alignment=ACCESS)

        def rule(node: ir.Expression) -> ir.Expression:
            if not isinstance(node, ir.Load) or node.buffer not in near:
                return node
            return replace(node, buffer=near[node.buffer])

        found = list[ir.Stage]()
        for stage in self.stages:
            read = map_stage(stage, ExpressionMap(rule))
            found.append(replace(read, buffer=near.get(stage.buffer, stage.buffer)))
            if stage.reduction is not None and stage.buffer in self.kernel.outputs:
                axes = tuple(ir.Variable(axis.name) for axis in stage.axes)
                found.append(ir.Stage(stage.buffer, axes, ir.Load(near[stage.buffer], axes), origin=stage.origin))
        return found, list(near.values())

    def _elements(self, stage: FlatStage, name: str, lanes: int) -> tuple[ir.Statement, str]:
        """Return the loops of a stage, which threads share, and the steps behind that."""
        place, steps, turns = self._place(stage.axes, name, lanes)
        steps += "vectorize lane\n" if lanes > 1 else ""
        steps += f"parallel {place}\n" if place else ""
        nest = nested(stage.axes, ir.Store(stage.target, (stage.place,), stage.value))
        behind = f"unroll {place}.turn\n" if 1 < turns <= WRITTEN_OUT else ""
        return lower_loops(taken(nest, parse_schedule(steps), stage.axes)), behind

    def _reduction(self, stage: FlatStage, name: str, lanes: int) -> tuple[ir.Statement, str]:
        """Return the loops of a reduction: a part for each thread, in vectors, and what reduces the parts."""
        assert stage.initial is not None and stage.operator is not None, "a reduction"
        total, zero = ir.Buffer("total", stage.initial.type.dtype, (b.index(1),), memory="register"), (b.index(0),)
        added = ir.Store(total, zero, joined(stage.operator, ir.Load(total, zero), stage.value))
        first, last = ir.Store(total, zero, stage.initial), finish(stage, ir.Load(total, zero))
        nest: ir.Statement = ir.Allocate(total, ir.Block((first, nested(stage.reduced, added), last)))
        place, steps, turns = self._place(stage.reduced, name, lanes)
        if not place:
            return nest, ""
        steps += f"""
        split {place} {self.threads} -> turn unit
        rfactor total at unit in shared -> {name}.parts around turn
        reorder unit turn
        merge {name}.parts.in unit -> unit
        cache_write {name}.parts at unit in register -> own
        """
        if lanes > 1:
            steps += "rfactor own at lane in register -> each around turn\nvectorize each.in\nvectorize lane\n"
        steps += "unroll turn\n" if 0 < turns <= WRITTEN_OUT else ""
        nest = lower_loops(taken(nest, parse_schedule(f"{steps}parallel unit"), stage.reduced))
        return nest, f"tree {name}.parts.turn by thread {WARP} warp\nunroll {name}.parts.turn\n"

    def _place(self, axes: Sequence[LoopAxis], name: str, lanes: int) -> tuple[str, str, int]:
        """Return the loop over all axes, the steps that make it, and its turns, 0 where their number varies."""
        names = [axis.variable.name for axis in axes]
        steps = f"split {names[-1]} {lanes} -> {names[-1]} lane\n" if lanes > 1 else ""
        if len(names) > 1:
            steps += f"fuse {' '.join(names)} -> {name}\n"
        count = prod(axis.extent for axis in axes) // lanes if all(axis.is_known for axis in axes) else 0
        return name if len(names) > 1 else "".join(names), steps, -(-count // self.threads)


def _measured(anchor: Anchor, target: Target, stage: int) -> list[Parameters]:
    """Return every number of threads that a block may have, in the first stage of tuning."""
    counts = (WARP << power for power in range((MOST // WARP).bit_length()))
    return [BlockParameters(threads=threads) for threads in counts] if stage == 0 else []


ANCHORS = frozenset({Trait.ROW_WISE, Trait.REDUCTION})
STRATEGY = Strategy("cuda.rows", ANCHORS, build, candidates=_measured, varies=None)
