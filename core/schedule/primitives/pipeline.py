"""The primitive that fetches for the next iteration while this one computes: pipeline."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from graft.core.schedule.primitives.dependence import accesses, reads_written
from graft.core.schedule.primitives.staging import buffer_named
from graft.core.schedule.primitives.step import Step, around, combine, find_place, index, with_body
from graft.core.schedule.primitives.vectorize import instantiate
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.visit import (
    free_variables,
    loads,
    map_accesses,
    map_statement,
    statement_expressions,
    walk_statements,
)


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
        loop = find_place(self, function.body, self.loop)
        count, variable = loop.extent, loop.variable
        runs = not isinstance(count, ir.Constant) or count.value > 0
        if loop.kind != "serial" or not runs:
            self.fail(f"'{self.loop}' is {loop.kind}{'' if runs else ' and empty'}; it takes a serial loop that runs")
        if reads_written(loop.body, count):
            self.fail(f"'{self.loop}' writes what its extent is read from")
        caches = {buffer_named(self, function, name): name for name in self.caches}
        doubled = {one: replace(one, shape=(index(2), *one.shape)) for one in caches}
        own, parts = _opened(loop.body, caches)
        fills = [one for one in parts if _fills(one, caches)]
        if not fills or parts[: len(fills)] != fills or {_filled(one) for one in fills} != set(caches):
            self.fail(f"the body of '{self.loop}' does not begin with what fills {', '.join(map(repr, self.caches))}")
        rest = parts[len(fills) :]
        written = {one.buffer for part in rest for one in accesses(part) if one.writes}
        if not rest or any(one.buffer in written for fill in fills for one in accesses(fill)):
            self.fail(f"'{self.loop}' writes what the next iteration would be filled from too early")
        self._check_outside(around(function.body, variable), fills, [one for one in caches if one not in own])
        barrier = rest[0] if isinstance(rest[0], ir.Barrier) else None
        rest = [one for one in rest if barrier is None or one != barrier]
        fill = ir.Block(tuple(fills))
        slot = ir.Binary("mod", variable, index(2))
        following = combine("add", variable, index(1))
        first = instantiate(_placed(fill, doubled, index(0)), {variable: index(0)})
        if not isinstance(count, ir.Constant):
            first = ir.If(ir.Binary("gt", count, index(0)), first)
        ahead = instantiate(_placed(fill, doubled, slot), {variable: following})
        used = _placed(ir.Block(tuple(rest)), doubled, slot)
        met = () if barrier is None else (barrier,)
        body = ir.Block((ir.If(ir.Binary("lt", following, count), ahead), used, *met))
        new: ir.Statement = ir.Block((first, *met, replace(loop, body=body)))
        for cache in own:
            new = ir.Allocate(doubled[cache], new)
        return with_body(function, self._replaced(function.body, loop, new, doubled))

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

        return map_statement(body, lambda expression: expression, rule)


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
    stores = [one.buffer for one in walk_statements(statement) if isinstance(one, ir.Store)]
    return stores[0] if len(stores) == 1 else None


def _fills(statement: ir.Statement, caches: dict[ir.Buffer, str]) -> bool:
    return _filled(statement) in caches


def _fills_alike(fill: ir.Statement, changing: set[ir.Variable], caches: set[ir.Buffer]) -> bool:
    """Whether a fill sets the same places whatever the variables are, and reads none of the caches."""
    for one in walk_statements(fill):
        expressions = statement_expressions(one)
        if any(load.buffer in caches for load in loads(*expressions)):
            return False
        if isinstance(one, ir.Store):
            expressions = one.indices if one.mask is None else (*one.indices, one.mask)
        if any(loads(each) for each in expressions) or not free_variables(*expressions).isdisjoint(changing):
            if not isinstance(one, ir.Let):
                return False
            changing = {*changing, one.variable}
    return True


def _placed(statement: ir.Statement, doubled: dict[ir.Buffer, ir.Buffer], slot: ir.Expression) -> ir.Statement:
    """Return a statement that uses one of the two places of each cache."""
    return map_accesses(statement, doubled, lambda buffer, indices: (doubled[buffer], (slot, *indices)))
