"""Loops over extents that are known only when a kernel runs: rows of fused stages, the innermost axis in vectors.

One kernel serves all shapes. Vectors have a constant length; what is left over at the end of an axis is one masked
vector, or single elements on a machine without masks. Stages that agree on their leading axes and read each other only
within a row run row by row, where what lies between them has a size that is known; others run one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from graft.core.machine.machine import Machine
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.accumulate import identity_of, joined
from graft.core.schedule.loops.flat_stages import FlatStage
from graft.core.schedule.loops.inline import constant_shape, inline_stages, stage_expressions
from graft.core.schedule.loops.loop_frames import lanes_of
from graft.core.schedule.loops.nest import operations
from graft.core.schedule.loops.segments import MOST, SHORTEST
from graft.core.schedule.primitives.vectorize import broadcast, finished, vectorize_expression
from graft.core.schedule.strategies.nests.clipped_windows import cut_windows
from graft.core.schedule.strategies.nests.fused_elementwise import overwritable
from graft.core.schedule.strategies.nests.generic_nest import CHEAP, with_epilogues
from graft.core.schedule.strategies.strategy import Strategy, of_kernel
from graft.core.tensor_ir import ir, visit
from graft.core.tensor_ir.ordered_stages import is_sequential
from graft.core.tensor_ir.statements import allocate

GATHERED, SCATTERED = 1.5, 4.0
"""What each element of a strided load and store costs, where a whole vector of neighbours costs 1."""
UNROLLED = 16
"""Positions of a window that are written out."""
SHORTEST_VECTOR = 4
"""Elements of an axis that are worth a vector."""
SHORT_TASK = 4096
"""Iterations of inner loops that are no task of their own."""
Place = Callable[[ir.Expression, ir.Expression | None], ir.Statement]
"""Gives the code for one position, or a vector of positions, and the mask of those that exist."""


@dataclass(frozen=True, slots=True)
class _Loop:
    variable: ir.Variable
    extent: ir.Expression
    begin: int = 0

    def at(self, index: ir.Expression) -> ir.Expression:
        """Return the positions along the axis of turns, or of a vector of them."""
        if self.begin == 0:
            return index
        if isinstance(index, ir.Ramp):
            return replace(index, base=b.add(index.base, self.begin))
        return b.add(index, self.begin)


def schedule_varying(kernel: Kernel, target: Target) -> Scheduled | None:
    """Return loops for a kernel of any extents; None for stages with an order of their own."""
    if any(map(is_sequential, kernel.stages)):
        return None
    stages = with_epilogues(inline_stages(kernel.stages, kernel.outputs, _is_cheap(kernel.stages)), kernel.outputs)
    between = [stage.buffer for stage in stages if stage.buffer not in kernel.outputs]
    nests, rows = Nests(target.machine), common_rows(stages, between)

    def function() -> ir.Function:
        body = nests.row_by_row(stages, between, rows) if rows else nests.one_by_one(stages, between)
        body = finished(body)
        return replace(kernel.function(body), in_place=overwritable(kernel))

    return Scheduled(function, knobs={"rows": rows})


def _is_cheap(stages: Sequence[ir.Stage]) -> Callable[[ir.Stage], bool]:
    """Whether a stage is rather repeated than kept: it is short, or one stage of its shape reads it once."""

    def wanted(stage: ir.Stage) -> bool:
        reads = [one for one in stages for load in visit.loads(*stage_expressions(one)) if load.buffer is stage.buffer]
        once = len(reads) == 1 and reads[0].reduction is None
        return once or operations(stage.value) <= CHEAP

    return wanted


def common_rows(stages: Sequence[ir.Stage], between: Sequence[ir.Buffer]) -> int:
    """Return the number of leading axes that all stages share, such that a row of what lies between has known size."""
    made = {stage.buffer for stage in stages}
    most = min(len(stage.axes) for stage in stages)
    if not between and all(len(stage.axes) == most and stage.reduction is None for stage in stages):
        most -= 1  # the last axis is that of the vectors
    for rows in range(most, 0, -1):
        same = all(stage.buffer.shape[:rows] == stages[0].buffer.shape[:rows] for stage in stages)
        known = all(constant_shape(replace(buffer, shape=buffer.shape[rows:])) is not None for buffer in between)
        if len(stages) > 1 and same and known and all(_stays(stage, made, rows) for stage in stages):
            return rows
    return 0


def _stays(stage: ir.Stage, made: set[ir.Buffer], rows: int) -> bool:
    """Whether a stage reads what others make only in the row that it writes."""
    return all(
        all(index is axis for index, axis in zip(load.indices[:rows], stage.axes, strict=False))
        for load in visit.loads(*stage_expressions(stage))
        if load.buffer in made
    )


class Nests:
    """Writes the loops of stages for one machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def one_by_one(self, stages: Sequence[ir.Stage], between: Sequence[ir.Buffer]) -> ir.Statement:
        """Return a nest for each stage, the first loops of each in parallel."""
        own = {buffer: replace(buffer, memory="scratch") for buffer in between}
        body = _in_row(ir.Block(tuple(self.nest(stage, 0) for stage in stages)), own, 0)
        return allocate([*own.values()], body)

    def row_by_row(self, stages: Sequence[ir.Stage], between: Sequence[ir.Buffer], rows: int) -> ir.Statement:
        """Return the stages in one nest over their common rows."""
        axes = stages[0].axes[:rows]
        own = {
            buffer: ir.Buffer(buffer.name, buffer.dtype, buffer.shape[rows:], None, "scratch", 64) for buffer in between
        }
        parts = []
        for stage in stages:
            moved = visit.substitution(dict(zip(stage.axes[:rows], axes, strict=True)))
            renamed = replace(_mapped(stage, moved), axes=(*axes, *stage.axes[rows:]))
            parts.append(_in_row(self.nest(renamed, rows), own, rows))
        body = allocate([own[buffer] for buffer in between], ir.Block(tuple(parts)))
        return _around([_Loop(*pair) for pair in zip(axes, stages[0].buffer.shape, strict=False)], body, "parallel")

    def nest(self, stage: ir.Stage, rows: int) -> ir.Statement:
        """Return the loops of a stage inside of the loops over its first ``rows`` axes."""
        own = [_Loop(*pair) for pair in zip(stage.axes[rows:], stage.buffer.shape[rows:], strict=True)]
        parts = [self._nest(part, loops, rows) for part, loops in _sources(stage, own)]
        return parts[0] if len(parts) == 1 else ir.Block(tuple(parts))

    def _nest(self, stage: ir.Stage, own: list[_Loop], rows: int) -> ir.Statement:
        reduced = _loops_of(stage)
        lanes = lanes_of(_as_flat(stage), self.machine)
        axis, lanes = self._vector_axis(stage, own, reduced, lanes)
        kind: ir.LoopKind = "serial" if rows else "parallel"
        terms = [loop.extent for loop in reduced]
        moved = {loop.variable: loop.at(loop.variable) for loop in own if loop.begin}
        if axis is None:
            body = self._reduced(stage, reduced, {}, None) if reduced else _stored(stage, moved, None)
            return _around(own, body, kind, terms)
        outer = [loop for loop in own if loop is not axis]
        if axis in reduced:
            rest = [loop for loop in reduced if loop is not axis]
            return _around(own, self._across(stage, rest, axis, lanes), kind, terms)

        cut = cut_windows(stage) if reduced else None
        if cut is not None and axis.variable in visit.free_variables(cut.inside):
            cut = None

        def place(index: ir.Expression, mask: ir.Expression | None) -> ir.Statement:
            values = {**moved, axis.variable: axis.at(index)}
            if cut is None:
                return self._reduced(stage, reduced, values, mask) if reduced else _stored(stage, values, mask)
            window = prod(int(loop.extent.value) for loop in reduced if isinstance(loop.extent, ir.Constant))
            whole = self._reduced(cut.whole, reduced, values, mask, "unrolled" if window <= UNROLLED else "serial")
            return ir.If(cut.inside, whole, self._reduced(cut.clipped, _loops_of(cut.clipped), values, mask))

        along = self.along(axis.variable, axis.extent, lanes, place, "serial" if outer else kind)
        return _around(outer, along, kind, [axis.extent, *terms])

    def _vector_axis(
        self, stage: ir.Stage, own: list[_Loop], reduced: list[_Loop], most: int
    ) -> tuple[_Loop | None, int]:
        """Return the axis along which most accesses are contiguous, with the length of its vectors, at most ``most``.

        There is none where single elements are as good.
        """
        if most == 1:
            return None, 1
        ordered = stage.reduction is not None and ir.is_ordered(stage.reduction.operator, stage.value.type)
        best: tuple[float, _Loop | None, int] = (1.0, None, 1)
        for loop in (*reversed(own), *(() if ordered else reversed(reduced))):
            lanes = self._lanes(loop.extent, most) if loop in own else most
            is_short = loop in reduced and isinstance(loop.extent, ir.Constant) and int(loop.extent.value) < lanes
            if lanes < SHORTEST_VECTOR or is_short:
                continue
            costs = [
                _cost(load.indices, loop.variable, GATHERED * lanes) for load in visit.loads(*stage_expressions(stage))
            ]
            if loop in own and not reduced:  # a sum is stored once
                costs.append(_cost(stage.axes, loop.variable, SCATTERED * lanes))
            cost = (sum(costs) / len(costs) + (1.0 if loop in reduced else 0.0)) / lanes
            if cost < best[0]:
                best = (cost, loop, lanes)
        return best[1], best[2]

    def _lanes(self, extent: ir.Expression, most: int) -> int:
        """Return the length of vectors along an axis: of one that is short one masked vector, or a shorter one."""
        if not isinstance(extent, ir.Constant) or int(extent.value) >= most:
            return most
        length = int(extent.value)
        longest = 1 << length.bit_length() >> 1
        return longest if longest == length or not self.machine.masks else 2 * longest

    def along(
        self, variable: ir.Variable, extent: ir.Expression, lanes: int, place: Place, kind: ir.LoopKind
    ) -> ir.Statement:
        """Return the loop over whole vectors along an axis, and what is left over at its end."""
        whole, rest = divided(extent, lanes)
        block = ir.Variable(f"{variable.name}_block")
        parts: list[ir.Statement] = []
        if whole != b.index(0):
            parts.append(ir.For(block, whole, kind, place(ir.Ramp(b.multiply(block, lanes), 1, lanes), None)))
        if rest != b.index(0):
            parts.append(self._tail(variable, b.multiply(whole, lanes), rest, lanes, place))
        return ir.Block(tuple(parts))

    def _tail(
        self, axis: ir.Variable, begin: ir.Expression, rest: ir.Expression, lanes: int, place: Place
    ) -> ir.Statement:
        if self.machine.masks:
            mask = ir.Binary("lt", ir.Ramp(b.index(0), 1, lanes), ir.Broadcast(rest, lanes))
            body = place(ir.Ramp(begin, 1, lanes), mask)
            return body if isinstance(rest, ir.Constant) else ir.If(b.greater(rest, 0), body)
        element = ir.Variable(axis.name)
        return ir.For(element, rest, "serial", place(b.add(begin, element), None))

    def _reduced(
        self,
        stage: ir.Stage,
        reduced: Sequence[_Loop],
        values: dict[ir.Variable, ir.Expression],
        mask: ir.Expression | None,
        kind: ir.LoopKind = "serial",
    ) -> ir.Statement:
        """Return a reduction into one register, or one vector of a kept axis."""
        assert stage.reduction is not None, stage.buffer.name
        lanes = max((value.type.lanes for value in values.values()), default=1)
        total, home = _register(stage, lanes)
        start = broadcast(vectorize_expression(stage.reduction.initial, values, mask), lanes)
        value = broadcast(vectorize_expression(stage.value, values, mask), lanes)
        step = ir.Store(total, home, ir.Binary(stage.reduction.operator, ir.Load(total, home), value))
        end = _finished(stage, values, ir.Load(total, home), mask)
        return ir.Allocate(total, ir.Block((ir.Store(total, home, start), _around(reduced, step, kind), end)))

    def _across(self, stage: ir.Stage, others: Sequence[_Loop], axis: _Loop, lanes: int) -> ir.Statement:
        """Return a reduction whose innermost axis is vectors of terms, joined at the end."""
        assert stage.reduction is not None, stage.buffer.name
        operator = stage.reduction.operator
        total, home = _register(stage, lanes)
        neutral = broadcast(identity_of(operator, stage.value.type), lanes)

        def term(index: ir.Expression, mask: ir.Expression | None) -> ir.Statement:
            value = vectorize_expression(stage.value, {axis.variable: index}, mask)
            if value.type.lanes == lanes or index.type.lanes > 1:
                value = broadcast(value, lanes)
                value = value if mask is None else b.select(mask, value, neutral)
            else:  # one term: it is lane 0's
                value = b.select(ir.Binary("lt", ir.Ramp(b.index(0), 1, lanes), broadcast(b.index(1), lanes)),
                                 broadcast(value, lanes), neutral)  # fmt: skip
            return ir.Store(total, home, ir.Binary(operator, ir.Load(total, home), value))

        loop = _around(others, self.along(axis.variable, axis.extent, lanes, term, "serial"), "serial")
        result = joined(operator, stage.reduction.initial, ir.Horizontal(operator, ir.Load(total, home)))
        return ir.Allocate(total, ir.Block((ir.Store(total, home, neutral), loop, _finished(stage, {}, result, None))))


def _sources(stage: ir.Stage, own: Sequence[_Loop]) -> list[tuple[ir.Stage, list[_Loop]]]:
    """Return what an elementwise stage does in each segment of an axis along which its source changes, as of Concat.

    A choice between loads for every element is a branch, and keeps dequantised parts from being vectors.
    """
    if stage.reduction is None:
        for place, loop in enumerate(own):
            ends = _ends(stage, loop)
            lengths = [end - begin for begin, end in pairwise(ends)]
            if 1 < len(lengths) <= MOST and (loop is not own[-1] or min(lengths) >= SHORTEST):
                return [
                    (
                        replace(stage, value=_decided(stage.value, loop.variable, begin, end)),
                        [*own[:place], _Loop(loop.variable, b.index(end - begin), begin), *own[place + 1 :]],
                    )
                    for begin, end in pairwise(ends)
                ]
    return [(stage, list(own))]


def _ends(stage: ir.Stage, loop: _Loop) -> list[int]:
    """Where the segments of an axis begin and end; of an axis of unknown extent, nowhere."""
    if not isinstance(loop.extent, ir.Constant):
        return []
    extent = int(loop.extent.value)
    found = {0, extent}
    for node in visit.walk_expressions(stage.value):
        match node:
            case ir.Select(ir.Binary("lt", ir.Variable() as variable, ir.Constant(value)), left, right):
                if variable is loop.variable and visit.loads(left) and visit.loads(right):
                    found.add(min(max(int(value), 0), extent))
    return sorted(found)


def _decided(value: ir.Expression, axis: ir.Variable, begin: int, end: int) -> ir.Expression:
    """Return a value where an axis is at least ``begin`` and less than ``end``."""

    def rule(node: ir.Expression) -> ir.Expression:
        match node:
            case ir.Select(ir.Binary("lt", ir.Variable() as variable, ir.Constant(bound)), left, right) if (
                variable is axis
            ):
                if end <= int(bound):
                    return left
                if begin >= int(bound):
                    return right
        return node

    return visit.ExpressionMap(rule)(value)


def _loops_of(stage: ir.Stage) -> list[_Loop]:
    """Return the loops of a reduction."""
    return [] if stage.reduction is None else [_Loop(axis.variable, axis.extent) for axis in stage.reduction.axes]


def divided(extent: ir.Expression, lanes: int) -> tuple[ir.Expression, ir.Expression]:
    """Return how many whole vectors an axis has, and how many elements behind them."""
    if isinstance(extent, ir.Constant):
        whole, rest = divmod(int(extent.value), lanes)
        return b.index(whole), b.index(rest)
    return b.divide(extent, lanes), b.modulo(extent, lanes)


def _cost(indices: Sequence[ir.Expression], variable: ir.Variable, apart: float) -> float:
    """Return what one access costs if a variable becomes vectors: 1 for neighbours in memory, ``apart`` for others."""
    used = [place for place, index in enumerate(indices) if variable in visit.free_variables(index)]
    if not used:
        return 0.5
    is_last = used == [len(indices) - 1]
    return 1.0 if is_last and moves_by_one(indices[-1], variable) else apart


def moves_by_one(index: ir.Expression, variable: ir.Variable) -> bool:
    """Whether an index grows by one with a variable."""
    if index is variable:
        return True
    match index:
        case ir.Binary("add", left, right):
            sides = [side for side in (left, right) if variable in visit.free_variables(side)]
            return len(sides) == 1 and moves_by_one(sides[0], variable)
        case ir.Binary("sub", left, right):
            return variable not in visit.free_variables(right) and moves_by_one(left, variable)
    return False


def _register(stage: ir.Stage, lanes: int) -> tuple[ir.Buffer, tuple[ir.Expression, ...]]:
    total = ir.Buffer("total", stage.value.type.dtype, (b.index(lanes),), memory="register")
    return total, (ir.Ramp(b.index(0), 1, lanes) if lanes > 1 else b.index(0),)


def _stored(stage: ir.Stage, values: dict[ir.Variable, ir.Expression], mask: ir.Expression | None) -> ir.Statement:
    return _store(stage, values, stage.value, mask)


def _finished(
    stage: ir.Stage, values: dict[ir.Variable, ir.Expression], total: ir.Expression, mask: ir.Expression | None
) -> ir.Statement:
    """Store a reduced value through the epilogue."""
    if stage.epilogue is None or stage.epilogue_variable is None:
        variable = ir.Variable("total", total.type)
        return _store(stage, {**values, variable: total}, variable, mask)
    return _store(stage, {**values, stage.epilogue_variable: total}, stage.epilogue, mask)


def _store(
    stage: ir.Stage, values: dict[ir.Variable, ir.Expression], value: ir.Expression, mask: ir.Expression | None
) -> ir.Statement:
    lanes = max((one.type.lanes for one in values.values()), default=1)
    indices = tuple(vectorize_expression(axis, values) for axis in stage.axes)
    return ir.Store(stage.buffer, indices, broadcast(vectorize_expression(value, values, mask), lanes), mask)


def _around(
    loops: Sequence[_Loop], body: ir.Statement, kind: ir.LoopKind, inside: Sequence[ir.Expression] = ()
) -> ir.Statement:
    """Return loops around a body, the first outermost, where the body runs as often as the extents ``inside`` say.

    Of parallel loops those of a short task are serial: nested ones that are parallel find their places by divisions.
    """
    turns = _turns(inside)
    for place, loop in reversed(list(enumerate(loops))):
        turns *= _turns((loop.extent,))
        is_short = kind == "parallel" and place > 0 and turns <= SHORT_TASK
        body = ir.For(loop.variable, loop.extent, "serial" if is_short else kind, body)
    return body


def _turns(extents: Sequence[ir.Expression]) -> int:
    """Return the product of extents: more than `SHORT_TASK` where one is not known."""
    return prod(int(one.value) if isinstance(one, ir.Constant) else SHORT_TASK + 1 for one in extents)


def _mapped(stage: ir.Stage, moved: Callable[[ir.Expression], ir.Expression]) -> ir.Stage:
    reduction = stage.reduction
    if reduction is not None:
        axes = tuple(replace(axis, extent=moved(axis.extent)) for axis in reduction.axes)
        reduction = replace(reduction, axes=axes, initial=moved(reduction.initial))
    epilogue = None if stage.epilogue is None else moved(stage.epilogue)
    return replace(stage, value=moved(stage.value), reduction=reduction, epilogue=epilogue)


def _as_flat(stage: ir.Stage) -> FlatStage:
    """Return what `lanes_of` looks at."""
    initial = None if stage.reduction is None else stage.reduction.initial
    return FlatStage(stage.buffer, b.index(0), (), stage.value, initial=initial, epilogue=stage.epilogue)


def _in_row(body: ir.Statement, new: dict[ir.Buffer, ir.Buffer], rows: int) -> ir.Statement:
    """Return the body with accesses of some buffers, less the first ``rows`` indices, to others."""

    def rule(node: ir.Expression) -> ir.Expression:
        if isinstance(node, ir.Load) and node.buffer in new:
            return ir.Load(new[node.buffer], node.indices[rows:], node.mask)
        return node

    def change(statement: ir.Statement) -> ir.Statement:
        if isinstance(statement, ir.Store) and statement.buffer in new:
            return replace(statement, buffer=new[statement.buffer], indices=statement.indices[rows:])
        return statement

    return visit.map_statement(body, visit.ExpressionMap(rule), change)


STRATEGY = Strategy("varying_nest", frozenset(Trait), of_kernel(schedule_varying), varies=True)
"""Takes every kernel whose stages have no order of their own."""
