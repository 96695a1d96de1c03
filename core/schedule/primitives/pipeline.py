"""Primitives that fetch for the next iterations while this one computes: pipeline, pipeline_async."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from graft.core.schedule.primitives.dependence import Access, accesses, reads_written
from graft.core.schedule.primitives.staging import buffer_named
from graft.core.schedule.primitives.step import Step, around, combine, find_place, fresh, index, with_body
from graft.core.schedule.primitives.units import PRIVATE
from graft.core.schedule.primitives.vectorize import instantiate
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import (
    free_variables,
    loads,
    map_accesses,
    map_nested,
    statement_expressions,
    walk_statements,
)
from graft.core.types import element_bits

SIZES = (4, 8, 16)
"""Bytes that a unit can copy past its registers at one time."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """A loop's body taken apart: what fills the caches, what stands before all units wait, and what is done then."""

    loop: ir.For
    own: list[ir.Buffer]
    """Caches that the body allocates."""
    places: dict[ir.Buffer, ir.Buffer]
    """The caches with several places."""
    fills: list[ir.Statement]
    before: list[ir.Statement]
    barrier: tuple[ir.Barrier, ...]
    used: list[ir.Statement]

    def filled(self, number: ir.Expression, slot: ir.Expression) -> ir.Statement:
        """Return what fills a place of each cache for an iteration; ``slot`` is told by that."""
        fill = self.placed(ir.Block(tuple(self.fills)), slot)
        return instantiate(fill, {self.loop.variable: number})

    def placed(self, statement: ir.Statement, slot: ir.Expression) -> ir.Statement:
        """Return a statement that uses one of the places of each cache."""
        return map_accesses(statement, self.places, lambda buffer, indices: (self.places[buffer], (slot, *indices)))


@dataclass(frozen=True, slots=True)
class Pipeline(Step):
    """Gives caches of a loop's body two places: one is filled for the next iteration while the other is used.

    The body must begin with what fills the caches (`CacheRead`). Where units fill them together, one barrier an
    iteration remains.
    """

    form = "pipeline {loop} {caches}"
    loop: str
    caches: tuple[str, ...]

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with the first fill before the loop and the next one in each iteration."""
        parts = self._taken_apart(function, 2, 1)
        loop, count = parts.loop, parts.loop.extent
        following = combine("add", loop.variable, index(1))
        first, slot = parts.filled(index(0), index(0)), ir.Binary("mod", loop.variable, index(2))
        if not isinstance(count, ir.Constant):
            first = ir.If(ir.Binary("gt", count, index(0)), first)
        ahead, used = parts.filled(following, slot), parts.placed(ir.Block(tuple(parts.used)), slot)
        body = ir.Block((ir.If(ir.Binary("lt", following, count), ahead), used, *parts.barrier))
        return self._rebuilt(function, parts, ir.Block((first, *parts.barrier, replace(loop, body=body))))

    def _taken_apart(self, function: ir.Function, places: int, far: int | None = None) -> _Parts:
        """Return the parts of the loop's body, with so many places for caches.

        The barrier behind the fills is looked for among the ``far`` first statements behind them.
        """
        loop = find_place(self, function.body, self.loop)
        count = loop.extent
        runs = not isinstance(count, ir.Constant) or count.value > 0
        if loop.kind != "serial" or not runs:
            self.fail(f"'{self.loop}' is {loop.kind}{'' if runs else ' and empty'}; it takes a serial loop that runs")
        if reads_written(loop.body, count):
            self.fail(f"'{self.loop}' writes what its extent is read from")
        caches = {buffer_named(self, function, name): name for name in self.caches}
        own, parts = _opened(loop.body, caches)
        fills = [one for one in parts if _filled(one) in caches]
        if not fills or parts[: len(fills)] != fills or {_filled(one) for one in fills} != set(caches):
            self.fail(f"the body of '{self.loop}' does not begin with what fills {', '.join(map(repr, self.caches))}")
        rest = parts[len(fills) :]
        written = {one.buffer for part in rest for one in accesses(part) if one.writes and not _is_read(one)}
        if not rest or any(one.buffer in written for fill in fills for one in accesses(fill)):
            self.fail(f"'{self.loop}' writes what the next iteration would be filled from too early")
        self._check_outside(around(function.body, loop.variable), fills, [one for one in caches if one not in own])
        several = {one: replace(one, shape=(index(places), *one.shape)) for one in caches}
        for number, barrier in enumerate(rest[:far]):
            if isinstance(barrier, ir.Barrier) and not barrier.units:
                behind = rest[number + 1 :]
                used = behind[:-1] if behind[-1:] == [barrier] else behind
                return _Parts(loop, own, several, fills, rest[:number], (barrier,), used)
            if any(one.buffer in caches for one in accesses(barrier)):
                break
        return _Parts(loop, own, several, fills, [], (), rest)

    def _rebuilt(self, function: ir.Function, parts: _Parts, new: ir.Statement) -> ir.Function:
        for cache in parts.own:
            new = ir.Allocate(parts.places[cache], new)
        return with_body(function, self._replaced(function.body, parts.loop, new, parts.places))

    def _check_outside(
        self, path: Sequence[ir.Statement], fills: Sequence[ir.Statement], caches: Sequence[ir.Buffer]
    ) -> None:
        """Check that caches that are allocated around the loop keep nothing from one iteration to the next."""
        for cache in caches:
            home = next((n for n, one in enumerate(path) if isinstance(one, ir.Allocate) and one.buffer is cache), -1)
            if home < 0:
                self.fail(f"'{cache.name}' is no memory that is allocated in '{self.loop}' or around it")
            if sum(one.buffer is cache for one in accesses(path[home + 1])) > sum(
                one.buffer is cache for one in accesses(path[-1])
            ):
                self.fail(f"'{cache.name}' is used outside of '{self.loop}'")
            around_it = [one for one in path[home + 1 :] if isinstance(one, ir.For | ir.Let)]
            changing = {one.variable for one in around_it if isinstance(one, ir.Let) or not one.binding}
            if not all(_fills_alike(fill, changing, set(caches)) for fill in fills):
                self.fail(f"iterations of '{self.loop}' do not fill '{cache.name}' alike")

    def _replaced(
        self, body: ir.Statement, loop: ir.For, new: ir.Statement, doubled: dict[ir.Buffer, ir.Buffer]
    ) -> ir.Statement:
        """Return a body with the loop replaced, and the caches around it doubled."""
        outside = {one.buffer for one in around(body, loop.variable) if isinstance(one, ir.Allocate)}

        def rule(one: ir.Statement) -> ir.Statement:
            if isinstance(one, ir.For) and one.variable is loop.variable:
                return new
            if isinstance(one, ir.Allocate) and one.buffer in outside and one.buffer in doubled:
                return ir.Allocate(doubled[one.buffer], one.body)
            return one

        return map_nested(body, rule)


@dataclass(frozen=True, slots=True)
class PipelineAsync(Pipeline):
    """Gives caches of a loop's body ``stages`` places: all but one are filled while one is used.

    What a unit stores as it was loaded, 4, 8 or 16 bytes at one time, is copied past its registers (`copy_async`), and
    lands before the unit's `wait_copies` for that iteration returns. All else, and zeros where a mask leaves elements
    out, is stored at once. Where units fill caches together, one barrier an iteration remains.
    """

    form = "pipeline_async {loop} {stages} {caches}"
    stages: int

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with the first fills before the loop, and in each iteration a later one."""
        if self.stages < 2:
            self.fail("with one place no copy is under way while it is used")
        parts, ahead = self._taken_apart(function, self.stages), self.stages - 1
        loop, slot = parts.loop, ir.Binary("mod", parts.loop.variable, index(self.stages))
        (early,) = fresh(self, function.body, f"{self.loop}.early")

        def begun(number: ir.Expression) -> ir.Statement:
            fill = ir.If(ir.Binary("lt", number, loop.extent), _copied(parts.filled(number, slot)))
            return ir.Block((fill, ir.CallExtern("commit_copies", ())))

        wait = ir.CallExtern("wait_copies", (index(ahead - 1),))
        before, used = (parts.placed(ir.Block(tuple(one)), slot) for one in (parts.before, parts.used))
        body = ir.Block((wait, before, *parts.barrier, begun(combine("add", loop.variable, index(ahead))), used))
        first = ir.For(early, index(ahead), "unrolled", begun(early))
        return self._rebuilt(function, parts, ir.Block((first, replace(loop, body=body))))


def _opened(body: ir.Statement, caches: Collection[ir.Buffer]) -> tuple[list[ir.Buffer], list[ir.Statement]]:
    """Return the caches that a body allocates, and its statements without these."""
    if isinstance(body, ir.Allocate) and body.buffer in caches:
        own, statements = _opened(body.body, caches)
        return [body.buffer, *own], statements
    if not isinstance(body, ir.Block):
        return [], [body]
    own, last = [], [body.statements[-1]]
    if isinstance(last[0], ir.Allocate):
        own, last = _opened(last[0], caches)
    return own, [*body.statements[:-1], *last]


def _filled(statement: ir.Statement) -> ir.Buffer | None:
    """Return the one buffer that a statement stores to, or begins to copy to."""
    inside = list(walk_statements(statement))
    targets = {one.buffer for one in inside if isinstance(one, ir.Store)}
    calls = (one.arguments[0] for one in inside if isinstance(one, ir.CallExtern) and one.arguments)
    targets |= {one.buffer for one in calls if isinstance(one, ir.Load)}
    return targets.pop() if len(targets) == 1 else None


def _is_read(access: Access) -> bool:
    """Whether a buffer is an operand of an instruction that it does not write: that is its first one."""
    called = access.statement
    if not isinstance(called, ir.CallExtern):
        return False
    first = called.arguments[0]
    return not isinstance(first, ir.Load) or first.buffer is not access.buffer


def _fills_alike(fill: ir.Statement, changing: set[ir.Variable], caches: set[ir.Buffer]) -> bool:
    """Whether a fill sets the same places whatever the variables are, and reads none of the caches."""
    for one in walk_statements(fill):
        expressions = statement_expressions(one)
        target, read = None, [*expressions]
        if isinstance(one, ir.CallExtern) and one.arguments:
            target, *read = one.arguments
        if any(load.buffer in caches for load in loads(*read)):
            return False
        if isinstance(target, ir.Load):
            expressions = target.indices
        if isinstance(one, ir.Store):
            expressions = one.indices if one.mask is None else (*one.indices, one.mask)
        if any(loads(each) for each in expressions) or not free_variables(*expressions).isdisjoint(changing):
            if not isinstance(one, ir.Let):
                return False
            changing = {*changing, one.variable}
    return True


def _copied(fill: ir.Statement) -> ir.Statement:
    """Return a statement with copies past the registers in the place of stores that are such."""
    simplifier = Simplifier()

    def rule(store: ir.Statement) -> ir.Statement:
        if not isinstance(store, ir.Store) or not isinstance(store.value, ir.Load) or store.mask is not None:
            return store
        load, lanes, zero = store.value, store.value.type.lanes, ir.Constant(0, store.value.type)
        to, near = (_begin(tuple(map(simplifier, one.indices))) for one in (store, load))
        size = lanes * element_bits(load.buffer.dtype) // 8
        mask = load.mask.value if isinstance(load.mask, ir.Broadcast) else load.mask
        moves = store.buffer.memory not in PRIVATE and load.buffer.memory == "host" and size in SIZES
        if to is None or near is None or not moves or (mask is not None and mask.type.lanes > 1):
            return store
        places = ir.Load(store.buffer, to), ir.Load(load.buffer, near)
        copy = ir.CallExtern("copy_async", (*places, index(size)))
        return copy if mask is None else ir.If(mask, copy, replace(store, value=zero))

    return map_nested(fill, rule)


def _begin(indices: tuple[ir.Expression, ...]) -> tuple[ir.Expression, ...] | None:
    """Return the place of the first of neighbouring elements, None if they are apart."""
    last = indices[-1] if indices else None
    if isinstance(last, ir.Ramp) and last.stride == 1:
        indices = (*indices[:-1], last.base)
    return None if any(one.type.lanes > 1 for one in indices) else indices
