"""Primitives that change which loops there are and in which order they run: split, reorder, fuse."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graft.core.schedule.primitives.dependence import conflicts, in_order
from graft.core.schedule.primitives.step import (
    Step,
    around,
    bounded,
    combine,
    constant_extent,
    find,
    fresh,
    index,
    with_body,
    with_loop,
)
from graft.core.tensor_ir.ir import Binary, Constant, Expression, For, Function, If, Let, Statement
from graft.core.tensor_ir.visit import free_variables, map_statement, substitution


@dataclass(frozen=True, slots=True)
class Split(Step):
    """Makes one loop two; where ``factor`` does not divide the extent, a condition guards the last iterations."""

    form = "split {loop} {factor} -> {outer} {inner}"
    loop: str
    factor: int
    outer: str
    inner: str

    def change(self, function: Function) -> Function:
        """Return the function with two loops in the place of one."""
        loop = find(self, function.body, self.loop)
        if loop.kind != "serial":
            self.fail(f"'{self.loop}' is {loop.kind} already; split it before")
        if self.factor < 1:
            self.fail("the factor is less than 1")
        outer, inner = fresh(self, function.body, self.outer, self.inner)
        place = combine("add", combine("mul", outer, self.factor), inner)
        body = map_statement(loop.body, substitution({loop.variable: place}))
        extent = loop.extent
        if isinstance(extent, Constant):
            count: Expression = index(-(-int(extent.value) // self.factor))
        else:
            count = Binary("div", Binary("add", extent, index(self.factor - 1)), index(self.factor))
        if not isinstance(extent, Constant) or int(extent.value) % self.factor:
            body = If(Binary("lt", place, extent), body)
        new = For(outer, count, "serial", For(inner, index(self.factor), "serial", body))
        return with_body(function, with_loop(function.body, loop.variable, lambda _: new))


@dataclass(frozen=True, slots=True)
class Reorder(Step):
    """Puts loops that stand directly in each other into the order given; others between them keep their places."""

    form = "reorder {order}"
    order: tuple[str, ...]

    def change(self, function: Function) -> Function:
        """Return the function with the loops in another order."""
        if len(set(self.order)) != len(self.order) or len(self.order) < 2:
            self.fail("it takes the names of two or more different loops")
        chain, inside, body = perfect_nest(self, function, self.order)
        wanted = iter(self.order)
        by_name = {loop.variable.name: loop for loop in chain}
        after = [by_name[next(wanted)] if loop.variable.name in self.order else loop for loop in chain]
        own = {loop.variable for loop in chain}
        for loop in chain:
            if not free_variables(loop.extent).isdisjoint(own):
                self.fail(f"the extent of '{loop.variable.name}' depends on another of them")
        simplifier = bounded(function.body)
        for conflict in conflicts(_sunk(inside, body), chain, simplifier):
            if not in_order(conflict, chain, after):
                apart = [loop.variable.name for loop in chain if conflict.distance[loop.variable] != 0]
                self.fail(f"{conflict} is written and used again along {', '.join(map(repr, apart))}, in that order")
        new = _sunk(inside, body)
        for loop in reversed(after):
            new = replace(loop, body=new)
        return with_body(function, with_loop(function.body, chain[0].variable, lambda _: new))


@dataclass(frozen=True, slots=True)
class Fuse(Step):
    """Makes two loops, one directly in the other, one loop over the product of their extents."""

    form = "fuse {outer} {inner} -> {loop}"
    outer: str
    inner: str
    loop: str

    def change(self, function: Function) -> Function:
        """Return the function with one loop in the place of two."""
        chain, inside, body = perfect_nest(self, function, (self.outer, self.inner))
        first, second = chain[0], chain[-1]
        if len(chain) != 2 or first.variable.name != self.outer:
            self.fail(f"'{self.inner}' does not stand directly in '{self.outer}'")
        if first.kind != "serial" or second.kind != "serial":
            self.fail(f"'{self.outer}' is {first.kind}, '{self.inner}' {second.kind}; fuse them before")
        width = constant_extent(self, second)
        (variable,) = fresh(self, function.body, self.loop)
        inner: Statement = Let(second.variable, Binary("mod", variable, index(width)), _sunk(inside, body))
        inner = Let(first.variable, Binary("div", variable, index(width)), inner)
        new = For(variable, combine_extents(first.extent, width), "serial", inner)
        return with_body(function, with_loop(function.body, first.variable, lambda _: new))


def combine_extents(extent: Expression, factor: int) -> Expression:
    """Return the product of two extents."""
    return index(int(extent.value) * factor) if isinstance(extent, Constant) else combine("mul", extent, factor)


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
