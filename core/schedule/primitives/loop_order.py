"""Primitives that change which loops there are and in which order they run: split, peel, reorder, fuse, merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise

from graft.core.schedule.primitives.dependence import (
    ENDLESS,
    Conflict,
    conflicts,
    in_order,
    reads_written,
    stores_alike,
)
from graft.core.schedule.primitives.step import (
    Step,
    around,
    bounded,
    combine,
    delinearize,
    find,
    fresh,
    index,
    loops,
    multiplied,
    with_body,
    with_loop,
)
from graft.core.schedule.primitives.vectorize import instantiate
from graft.core.tensor_ir.ir import (
    Barrier,
    Binary,
    Block,
    Expression,
    For,
    Function,
    If,
    Issue,
    Let,
    Pop,
    Push,
    Statement,
    Variable,
)
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import (
    free_variables,
    map_nested,
    map_statement,
    statement_children,
    statement_expressions,
    substitution,
    walk_statements,
)


@dataclass(frozen=True, slots=True)
class Split(Step):
    """Makes one loop two; where ``factor`` does not divide the extent, a condition guards the last iterations.

    With a ``tail`` there is no condition: the last iterations are a loop of their own behind the two, in which the
    loops inside have names that end with the tail's.
    """

    form = "split {loop} {factor} -> {outer} {inner} tail {tail}"
    loop: str
    factor: int
    outer: str
    inner: str
    tail: tuple[str, ...] = ()

    def change(self, function: Function) -> Function:
        """Return the function with two loops, or three, in the place of one."""
        loop = find(self, function.body, self.loop)
        if loop.kind != "serial":
            self.fail(f"'{self.loop}' is {loop.kind} already; split it before")
        if self.factor < 1:
            self.fail("the factor is less than 1")
        if reads_written(loop.body, loop.extent):
            self.fail(f"'{self.loop}' writes what its extent is read from")
        names = (self.outer, self.inner, *self.tail)
        outer, inner, *tail = fresh(self, function.body, *names, instead=(self.loop,))
        place = combine("add", combine("mul", outer, self.factor), inner)
        body = map_statement(loop.body, substitution({loop.variable: place}))
        same = Simplifier() if self.tail else with_symbols(function, Simplifier())
        up = 0 if self.tail else self.factor - 1
        count = same(Binary("div", combine("add", loop.extent, up), index(self.factor)))
        rest = same(Binary("mod", loop.extent, index(self.factor)))
        if not self.tail and rest != index(0):
            left = combine("sub", loop.extent, combine("mul", outer, self.factor))
            body = If(Binary("lt", inner, left), body)
        new: Statement = For(outer, count, "serial", For(inner, index(self.factor), "serial", body))
        if tail and rest != index(0):
            new = Block((new, _behind(loop, same(combine("mul", count, self.factor)), rest, tail[0])))
        return with_body(function, with_loop(function.body, loop.variable, lambda _: new))


@dataclass(frozen=True, slots=True)
class Peel(Step):
    """Makes the iterations of a loop behind the first ``count`` a loop of their own: index-set splitting.

    The loops inside of that have names that end with its name.
    """

    form = "peel {loop} {count} -> {rest}"
    loop: str
    count: int
    rest: str

    def change(self, function: Function) -> Function:
        """Return the function with two loops, one behind the other, in the place of one."""
        loop = find(self, function.body, self.loop)
        if loop.kind != "serial":
            self.fail(f"'{self.loop}' is {loop.kind} already; peel it before")
        if self.count < 1:
            self.fail("the first iterations are less than 1")
        if reads_written(loop.body, loop.extent):
            self.fail(f"'{self.loop}' writes what its extent is read from")
        (rest,) = fresh(self, function.body, self.rest)
        same = Simplifier()
        left = same(Binary("max", combine("sub", loop.extent, self.count), index(0)))
        if left == index(0):
            self.fail(f"'{self.loop}' has no more than {self.count} iterations")
        first = replace(loop, extent=same(Binary("min", index(self.count), loop.extent)))
        new = Block((first, _behind(loop, index(self.count), left, rest)))
        return with_body(function, with_loop(function.body, loop.variable, lambda _: new))


def _behind(loop: For, start: Expression, extent: Expression, variable: Variable) -> For:
    """Return so many iterations of a loop, from one on, as a loop of their own."""
    place = combine("add", start, variable)
    return For(variable, extent, "serial", renamed(loop.body, {loop.variable: place}, variable.name))


def renamed(body: Statement, values: Mapping[Variable, Expression], suffix: str) -> Statement:
    """Return a copy of a statement with variables replaced, whose loops have names of their own: with a suffix."""
    copy = instantiate(body, values)
    names = {one.variable: Variable(f"{one.variable.name}.{suffix}") for one in loops(copy)}

    def rule(one: Statement) -> Statement:
        return replace(one, variable=names[one.variable]) if isinstance(one, For) else one

    return map_statement(copy, substitution(names), rule) if names else copy


@dataclass(frozen=True, slots=True)
class Reorder(Step):
    """Puts loops that stand directly in each other into the order given; others between them keep their places."""

    form = "reorder {order}"
    order: tuple[str, ...]

    def check(self, function: Function) -> None:
        """Check that what depends on each other stays in order."""
        chain, after, inside, body = self._loops(function)
        sunk, simplifier = _sunk(inside, body), bounded(function.body)
        for conflict in conflicts(sunk, chain, simplifier):
            if not in_order(conflict, chain, after) and not stores_alike(sunk, conflict, simplifier):
                apart = [loop.variable.name for loop in chain if conflict.distance[loop.variable] != 0]
                self.fail(f"{conflict} is written and used again along {', '.join(map(repr, apart))}, in that order")
            for loop in after:
                is_open = not set(_outside(loop, chain)) <= set(_outside(loop, after))  # one around it moved inside
                if loop.kind == "parallel" and is_open and _meet_in(loop, conflict, after):
                    self.fail(f"iterations of '{loop.variable.name}', which is parallel, would share {conflict}")
        if any(isinstance(one, Barrier) for one in walk_statements(body)):
            bound = {loop.variable for loop in chain if loop.binding}
            for loop in (one for one in chain if one.kind == "parallel" and not one.binding):
                if not bound & set(_outside(loop, after)) <= set(_outside(loop, chain)):
                    self.fail(f"in '{loop.variable.name}', which is bound to no level, units wait for each other")

    def change(self, function: Function) -> Function:
        """Return the function with the loops in another order."""
        chain, after, inside, body = self._loops(function)
        new = _sunk(inside, body)
        for loop in reversed(after):
            new = replace(loop, body=new)
        return with_body(function, with_loop(function.body, chain[0].variable, lambda _: new))

    def _loops(self, function: Function) -> tuple[list[For], list[For], list[If | Let], Statement]:
        """Return the loops as they are and as they are wanted, what stands between them, and their body."""
        if len(set(self.order)) != len(self.order) or len(self.order) < 2:
            self.fail("it takes the names of two or more different loops")
        chain, inside, body = perfect_nest(self, function, self.order)
        wanted = iter(self.order)
        by_name = {loop.variable.name: loop for loop in chain}
        after = [by_name[next(wanted)] if loop.variable.name in self.order else loop for loop in chain]
        own = {loop.variable for loop in chain} | {one.variable for one in inside if isinstance(one, Let)}
        for loop in chain:
            if not free_variables(loop.extent).isdisjoint(own):
                self.fail(f"the extent of '{loop.variable.name}' depends on another of them")
        return chain, after, inside, body


def _meet_in(loop: For, conflict: Conflict, order: Sequence[For]) -> bool:
    """Whether iterations of a loop meet in a conflict while the loops around it stand still."""
    is_still = all(conflict.distance[one] in (0, None) for one in _outside(loop, order))
    return is_still and conflict.distance[loop.variable] != 0


def _outside(loop: For, order: Sequence[For]) -> list[Variable]:
    """Return the variables of the loops around a loop."""
    variables = [one.variable for one in order]
    return variables[: variables.index(loop.variable)]


@dataclass(frozen=True, slots=True)
class Fuse(Step):
    """Makes loops that stand directly in each other one loop over the product of their extents."""

    form = "fuse {loops} -> {loop}"
    loops: tuple[str, ...]
    loop: str

    def change(self, function: Function) -> Function:
        """Return the function with one loop in the place of several."""
        chain, inside, body = perfect_nest(self, function, self.loops)
        if tuple(loop.variable.name for loop in chain) != self.loops or len(chain) < 2:
            self.fail(f"{', '.join(map(repr, self.loops))} do not stand directly in each other, in this order")
        for loop in chain:
            if loop.kind != "serial":
                self.fail(f"'{loop.variable.name}' is {loop.kind}; fuse it before")
        varied = {one.variable for one in (*chain, *inside) if not isinstance(one, If)}
        for loop in chain[1:]:
            if not varied.isdisjoint(free_variables(loop.extent)):
                self.fail(f"the extent of '{loop.variable.name}' is not the same everywhere")
        first, *widths = _counts(function, chain)
        (variable,) = fresh(self, function.body, self.loop, instead=self.loops)
        new = _sunk(inside, body)
        for loop, place in reversed(list(zip(chain, delinearize(variable, widths), strict=True))):
            new = Let(loop.variable, place, new)
        extent = Simplifier()(reduce(multiplied, widths, first))
        fused = For(variable, extent, "serial", new)
        return with_body(function, with_loop(function.body, chain[0].variable, lambda _: fused))


@dataclass(frozen=True, slots=True)
class Merge(Step):
    """Makes two loops of as many iterations, one directly behind the other, one loop with both bodies: loop fusion.

    (Kennedy and Allen, "Optimizing Compilers for Modern Architectures", 2001, chapter 8.)
    """

    form = "merge {first} {second} -> {loop}"
    first: str
    second: str
    loop: str

    def check(self, function: Function) -> None:
        """Check that no iteration of the second loop meets a later one of the first."""
        changed, merged = self._merged(function)
        own = set(map(id, walk_statements(statement_children(merged.body)[0])))
        for conflict in conflicts(merged.body, [merged], bounded(changed.body)):
            crosses = id(conflict.first.statement) in own and id(conflict.second.statement) not in own
            apart = conflict.distance[merged.variable]
            if crosses and (apart is None or apart < 0):
                self.fail(f"'{self.second}' would use {conflict} before '{self.first}' is done with it")

    def change(self, function: Function) -> Function:
        """Return the function with one loop in the place of two."""
        return self._merged(function)[0]

    def _merged(self, function: Function) -> tuple[Function, For]:
        """Return the function with the loop in the place of both, and that loop."""
        first, second = (find(self, function.body, name) for name in (self.first, self.second))
        block = next((one for one in walk_statements(function.body) if _follows(one, first, second)), None)
        if not isinstance(block, Block):
            self.fail(f"'{self.second}' does not stand directly behind '{self.first}'")
        for loop in (first, second):
            if loop.kind != "serial":
                self.fail(f"'{loop.variable.name}' is {loop.kind} already; merge it before")
            if any(isinstance(one, Barrier | Issue | Push | Pop) for one in walk_statements(loop.body)):
                self.fail(f"in '{loop.variable.name}' units or queues wait for each other")
        same = Simplifier()
        if same(first.extent) != same(second.extent):
            self.fail(f"'{self.first}' and '{self.second}' have different extents")
        if reads_written(Block((first.body, second.body)), first.extent):
            self.fail(f"'{self.first}' or '{self.second}' writes what their extent is read from")
        (variable,) = fresh(self, function.body, self.loop, instead=(self.first, self.second))
        bodies = tuple(map_statement(one.body, substitution({one.variable: variable})) for one in (first, second))
        merged = For(variable, first.extent, "serial", Block(bodies))
        parts = (merged if one is first else one for one in block.statements if one is not second)

        def rule(one: Statement) -> Statement:
            return new if _follows(one, first, second) else one

        new = Block(tuple(parts))
        return with_body(function, map_nested(function.body, rule)), merged


def _follows(block: Statement, first: For, second: For) -> bool:
    """Whether a statement is a block in which one loop stands directly behind another."""
    return isinstance(block, Block) and any(
        one.variable is first.variable and other.variable is second.variable
        for one, other in pairwise(block.statements)
        if isinstance(one, For) and isinstance(other, For)
    )


def _counts(function: Function, chain: Sequence[For]) -> list[Expression]:
    """Return the extents of loops for a product: where several may be below zero, lest two make iterations, none is."""
    simplifier = with_symbols(function, bounded(function.body))
    bounds = [simplifier.interval(simplifier(loop.extent)) for loop in chain]
    loose = [known is None or known[0] < 0 for known in bounds]
    if sum(loose) < 2:
        return [loop.extent for loop in chain]
    return [
        Binary("max", loop.extent, index(0)) if is_loose else loop.extent
        for loop, is_loose in zip(chain, loose, strict=True)
    ]


def with_symbols(function: Function, simplifier: Simplifier) -> Simplifier:
    """Return a simplifier that knows that what a function's shapes are made of is not below 0."""
    shapes = [one for buffer in function.parameters for one in buffer.outside.shape]
    return _not_below_zero(shapes, simplifier)


def _not_below_zero(extents: Sequence[Expression], simplifier: Simplifier) -> Simplifier:
    for symbol in free_variables(*extents):
        simplifier.with_range(symbol, (0, ENDLESS))
    return simplifier


def divides(factor: int, extent: Expression) -> bool:
    """Whether an extent is a multiple of a factor, so that a `Split` by it guards nothing."""
    return _not_below_zero([extent], Simplifier())(Binary("mod", extent, index(factor))) == index(0)


def perfect_nest(step: Step, function: Function, names: tuple[str, ...]) -> tuple[list[For], list[If | Let], Statement]:
    """Return the loops from the outermost to the innermost named one, what stands between them, and the body.

    Between them may only be conditions and ``let``, which can as well stand inside of all of them.
    """
    variables = [find(step, function.body, name).variable for name in names]
    deepest = max((around(function.body, variable) for variable in variables), key=len)
    missing = [one.name for one in variables if not any(isinstance(s, For) and s.variable is one for s in deepest)]
    if missing:
        step.fail(f"'{missing[0]}' is not in one nest with the others")
    start = next(n for n, one in enumerate(deepest) if isinstance(one, For) and one.variable in variables)
    chain: list[For] = []
    inside: list[If | Let] = []
    for one in deepest[start:]:
        if isinstance(one, For):
            chain.append(one)
        elif isinstance(one, Let) or (isinstance(one, If) and one.else_body is None):
            inside.append(one)
        else:
            what = type(one).__name__.lower()
            step.fail(f"between '{chain[0].variable.name}' and '{_name(deepest[-1])}' stands more than loops: a {what}")
    for one in deepest[start + 1 :]:
        if reads_written(chain[-1].body, *statement_expressions(one)):
            where = f"between '{chain[0].variable.name}' and '{chain[-1].variable.name}'"
            step.fail(f"what stands {where} reads what the loops write")
    kinds = {loop.variable.name: loop.kind for loop in chain if loop.kind == "vector"}
    if kinds:
        step.fail(f"'{next(iter(kinds))}' is a vector already; put loops in order before")
    return chain, inside, chain[-1].body


def _name(statement: Statement) -> str:
    return statement.variable.name if isinstance(statement, For) else ""


def _sunk(inside: list[If | Let], body: Statement) -> Statement:
    """Return a body with conditions and ``let`` around it."""
    for one in reversed(inside):
        body = If(one.condition, body) if isinstance(one, If) else Let(one.variable, one.value, body)
    return body
