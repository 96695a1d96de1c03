"""The primitive that splits a sum, or another reduction, among the iterations of a loop: rfactor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from graft.core.schedule.primitives.dependence import accesses
from graft.core.schedule.primitives.loop_order import perfect_nest
from graft.core.schedule.primitives.staging import buffer_named, check_shared, region_of
from graft.core.schedule.primitives.step import (
    Step,
    bounded,
    combine,
    constant_extent,
    find_place,
    index,
    with_body,
    with_loop,
)
from graft.core.tensor_ir import ir, numerics, visit
from graft.core.tensor_ir.statements import loops_over
from graft.core.types import Type


@dataclass(frozen=True, slots=True)
class Rfactor(Step):
    """Lets each iteration of a loop reduce into a part of its own; a loop behind it reduces these.

    So iterations no longer depend on each other (Suriana, Adams, Kamil, "Parallel associative reductions in Halide",
    2017). Sums and products of floats are taken in another order: of n terms the sum moves by at most 2 n eps times the
    sum of their magnitudes. Minima, maxima and integers keep every bit. The loop may stand in others, of which the
    outermost is named: then each of its iterations has one part for all of theirs.
    """

    form = "rfactor {buffer} at {loop} in {memory} -> {parts} around {outer}"
    buffer: str
    loop: str
    memory: str
    parts: str
    outer: tuple[str, ...] = ()

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with a buffer of parts, loops that clear them, and loops behind that add them up."""
        loop, buffer = find_place(self, function.body, self.loop), buffer_named(self, function, self.buffer)
        if loop.kind != "serial":
            self.fail(f"'{self.loop}' is {loop.kind} already; split its sums before")
        whole = self._whole(function, loop)
        operator, simplifier = self._operator(whole, buffer), bounded(function.body)
        if whole is not loop and sum(one.buffer is buffer for one in accesses(whole.body)) != sum(
            one.buffer is buffer for one in accesses(loop.body)
        ):
            self.fail(f"'{self.buffer}' is used around '{self.loop}', too")
        region = region_of(self, whole.body, buffer, simplifier, [whole.variable] if whole is not loop else ())
        shape = (index(constant_extent(self, loop)), *map(index, region.size))
        parts = ir.Buffer(self.parts, buffer.dtype, shape, None, self.memory)

        def own(_: ir.Buffer, places: tuple[ir.Expression, ...]) -> tuple[ir.Buffer, tuple[ir.Expression, ...]]:
            offsets = (
                simplifier(combine("sub", place, begin)) for place, begin in zip(places, region.begin, strict=True)
            )
            return parts, (loop.variable, *offsets)

        clear, last = (
            [
                ir.Variable(f"{self.parts}.{what}.{number}") if size > 1 else index(0)
                for number, size in enumerate(region.size)
            ]
            for what in ("in", "out")
        )
        for offset, size in zip(last, region.size, strict=True):
            if isinstance(offset, ir.Variable):
                simplifier.with_range(offset, (0, size - 1))
        turn = ir.Variable(f"{self.parts}.turn")
        begin = loop.variable if whole is loop else ir.Variable(f"{self.parts}.in")

        def nest(places: Sequence[ir.Expression], body: ir.Statement) -> ir.Statement:
            pairs = zip(places, shape[1:], strict=True)
            return loops_over([(one, size) for one, size in pairs if isinstance(one, ir.Variable)], body)

        first = nest(clear, ir.Store(parts, (begin, *clear), _identity(operator, buffer.dtype)))
        place = region.place(last)
        joined = ir.Binary(operator, ir.Load(buffer, place), ir.Load(parts, (turn, *last)))
        inside = region.inside(last, simplifier)
        add: ir.Statement = ir.Store(buffer, place, joined)
        add = nest(last, add if inside is None else ir.If(inside, add))
        behind = ir.For(turn, shape[0], "serial", visit.map_statement(add, visit.substitution({loop.variable: turn})))
        each = visit.map_accesses(whole.body, {buffer}, own)
        if whole is loop:
            main: tuple[ir.Statement, ...] = (replace(loop, body=ir.Block((first, each))),)
        else:
            main = (ir.For(begin, shape[0], "serial", first), replace(whole, body=each))
        new = ir.Allocate(parts, ir.Block((*main, behind)))
        changed = with_loop(function.body, whole.variable, lambda _: new)
        check_shared(self, changed, whole, buffer, "add to what others add to")
        return with_body(function, changed)

    def _whole(self, function: ir.Function, loop: ir.For) -> ir.For:
        """Return the outermost loop of the reduction."""
        if not self.outer:
            return loop
        (name, *others) = self.outer
        chain, _, _ = perfect_nest(self, function, (name, self.loop))
        if others or chain[0].variable.name != name or chain[-1] is not loop or name == self.loop:
            self.fail(f"'{' '.join(self.outer)}' is not the outermost of the loops around '{self.loop}'")
        return chain[0]

    def _operator(self, loop: ir.For, buffer: ir.Buffer) -> ir.BinaryOperator:
        """Return by what all that a loop does to a buffer reduces into it."""
        used = [one.statement for one in accesses(loop.body) if one.buffer is buffer]
        operators = {_reduces(one, buffer) for one in used}
        if not used or None in operators or len(operators) > 1 or Type(buffer.dtype).is_custom:
            self.fail(f"'{self.loop}' does not just add to '{self.buffer}', or reduce into it by one operation")
        (operator,) = operators
        assert operator is not None
        return operator


def _reduces(statement: ir.Statement, buffer: ir.Buffer) -> ir.BinaryOperator | None:
    """Return by what a store reduces into an element of a buffer of which it uses nothing else, None if it does not."""
    if not isinstance(statement, ir.Store) or statement.buffer is not buffer:
        return None
    match statement.value:
        case ir.Binary(("add" | "mul" | "min" | "max" | "and" | "or" | "xor") as operator, ir.Load() as old, term):
            terms = [term]
        case ir.Intrinsic("fma", (left, right, ir.Load() as old)):
            operator, terms = "add", [left, right]
        case _:
            return None
    is_same = old.buffer is buffer and old.indices == statement.indices and old.mask is None
    switch = () if statement.mask is None else (statement.mask,)
    others = visit.loads(*terms, *statement.indices, *switch)
    return operator if is_same and all(one.buffer is not buffer for one in others) else None


def _identity(operator: ir.BinaryOperator, dtype: str) -> ir.Constant:
    """Return what changes nothing."""
    kind = Type(dtype)
    if operator in ("add", "mul"):
        value: int | float = int(operator == "mul")
        return ir.Constant(float(value) if kind.is_float else value, kind)
    if kind.is_float:
        return ir.Constant(float("inf" if operator == "min" else "-inf"), kind)
    limits = np.iinfo(numerics.storage(dtype))
    return ir.Constant(int(limits.max if operator == "min" else limits.min), kind)
