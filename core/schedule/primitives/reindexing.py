"""Primitives that give a copy a layout of its own: reindex_cache_read, pad."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.dependence import accesses, reads_written
from graft.core.schedule.primitives.staging import buffer_named
from graft.core.schedule.primitives.step import (
    Step,
    constant_extent,
    find,
    find_place,
    fresh,
    index,
    with_body,
    with_loop,
)
from graft.core.tensor_ir import ir, visit
from graft.core.tensor_ir.statements import bind, loops_over


@dataclass(frozen=True, slots=True)
class ReindexCacheRead(Step):
    """Copies what one iteration of a loop reads of a buffer; ``axes``, loops in it, are the dimensions of the copy.

    Where an element lies in the buffer may be told by any index: it is read as often as the axes come to it.
    """

    form = "reindex_cache_read {buffer} at {loop} in {memory} -> {cache} over {axes}"
    buffer: str
    loop: str
    memory: str
    cache: str
    axes: tuple[str, ...]

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with a copy in front of the loop's body."""
        loop, buffer = find_place(self, function.body, self.loop), buffer_named(self, function, self.buffer)
        if any(one.writes for one in accesses(loop.body) if one.buffer is buffer):
            self.fail(f"'{self.buffer}' is written inside of '{self.loop}'")
        axes = [find(self, loop.body, axis) for axis in self.axes]
        readers = [
            (load, one)
            for one in visit.walk_statements(loop.body)
            for load in {*visit.loads(*visit.statement_expressions(one))}
            if load.buffer is buffer
        ]
        if any(isinstance(one, ir.CallExtern) for _, one in readers):
            self.fail(
                f"'{self.buffer}' is an operand of an instruction, which takes the place, inside of '{self.loop}'"
            )
        if len(readers) != 1:
            self.fail(f"'{self.buffer}' is read at {len(readers) or 'no'} places inside of '{self.loop}'")
        ((load, reader),) = readers
        path = _path(visit.chain_of_lets(loop.body)[1], reader)
        if outside := next((axis for axis in axes if not any(axis is one for one in path)), None):
            self.fail(f"'{self.buffer}' is not read in '{outside.variable.name}'")
        place, condition = self._place(loop, load, path, [axis.variable for axis in axes])
        shape = tuple(index(constant_extent(self, axis)) for axis in axes)
        cache = ir.Buffer(self.cache, buffer.dtype, shape, None, self.memory)
        own = fresh(self, function.body, *(f"{self.cache}.{number}" for number in range(len(axes))))
        moved = visit.substitution({axis.variable: one for axis, one in zip(axes, own, strict=True)})
        fill: ir.Statement = ir.Store(cache, tuple(own), moved(place))
        if condition is not None:
            fill = ir.If(moved(condition), fill)
        near = ir.Load(cache, tuple(axis.variable for axis in axes))
        lets, rest = visit.chain_of_lets(loop.body)
        used = visit.map_statement(rest, visit.ExpressionMap(lambda node: near if node == load else node))
        both = ir.Block((loops_over(zip(own, shape, strict=True), fill), used))
        new = ir.Allocate(cache, bind(((one.variable, one.value) for one in lets), both))
        return with_body(function, with_loop(function.body, loop.variable, lambda one: replace(one, body=new)))

    def _place(
        self, loop: ir.For, load: ir.Load, path: list[ir.Statement], axes: list[ir.Variable]
    ) -> tuple[ir.Expression, ir.Expression | None]:
        """Return what is read in terms of the axes and what stands still, and the condition under which it is."""
        inner, conditions = set[ir.Variable](), list[ir.Expression]()
        values: dict[ir.Variable, ir.Expression] = {}
        for one, below in pairwise(path):
            match one:
                case ir.For(variable):
                    inner.add(variable)
                case ir.Let(variable, value):
                    values[variable] = visit.substitute(value, values)
                case ir.If(test, then_body):
                    test = visit.substitute(test, values)
                    conditions.append(test if then_body is below else ir.Unary("not", test))
        place, condition = visit.substitute(load, values), b.all_of(conditions)
        wanted = [place] if condition is None else [place, condition]
        if other := next((one for one in visit.free_variables(*wanted) if one in inner and one not in axes), None):
            self.fail(f"what is read of '{self.buffer}' depends on '{other.name}', which is no axis of the copy")
        if reads_written(loop.body, *wanted):
            self.fail(f"what tells the places in '{self.buffer}' is written inside of '{self.loop}'")
        return place, condition


def _path(body: ir.Statement, wanted: ir.Statement) -> list[ir.Statement]:
    """Return the statements around one, outermost first, and it."""
    if body is wanted:
        return [body]
    for inner in visit.statement_children(body):
        if below := _path(inner, wanted):
            return [body, *below]
    return []


@dataclass(frozen=True, slots=True)
class Pad(Step):
    """Makes a dimension of memory between the loops longer than what is used of it, so that rows lie in other banks."""

    form = "pad {buffer} {dimension} {extent}"
    buffer: str
    dimension: int
    extent: int

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with the longer buffer."""
        buffer = buffer_named(self, function, self.buffer)
        if buffer in function.parameters or buffer.strides is not None:
            self.fail(f"'{self.buffer}' lies as its caller says")
        if self.dimension >= len(buffer.shape):
            self.fail(f"dimension {self.dimension} is out of range for '{self.buffer}' of rank {len(buffer.shape)}")
        extent = buffer.shape[self.dimension]
        if not isinstance(extent, ir.Constant) or extent.value > self.extent:
            self.fail(
                f"dimension {self.dimension} of '{self.buffer}' is not known to have {self.extent} or fewer elements"
            )
        shape = (*buffer.shape[: self.dimension], index(self.extent), *buffer.shape[self.dimension + 1 :])
        longer = replace(buffer, shape=shape)

        def rule(one: ir.Statement) -> ir.Statement:
            return ir.Allocate(longer, one.body) if isinstance(one, ir.Allocate) and one.buffer is buffer else one

        changed = visit.map_accesses(function.body, {buffer}, lambda _, indices: (longer, indices))
        return with_body(function, visit.map_nested(changed, rule))
