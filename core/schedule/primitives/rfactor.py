"""The primitive that splits a sum, or another reduction, among the iterations of a loop: rfactor."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graft.core.schedule.primitives.dependence import accesses
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
    sum of their magnitudes. Minima, maxima and integers keep every bit.
    """

    form = "rfactor {buffer} at {loop} in {memory} -> {parts}"
    buffer: str
    loop: str
    memory: str
    parts: str

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with a buffer of parts around the loop, and a loop behind it."""
        loop, buffer = find_place(self, function.body, self.loop), buffer_named(self, function, self.buffer)
        if loop.kind != "serial":
            self.fail(f"'{self.loop}' is {loop.kind} already; split its sums before")
        operator, simplifier = self._operator(loop, buffer), bounded(function.body)
        region = region_of(self, loop.body, buffer, simplifier)
        shape = (index(constant_extent(self, loop)), *map(index, region.size))
        parts = ir.Buffer(self.parts, buffer.dtype, shape, None, self.memory)

        def own(_: ir.Buffer, places: tuple[ir.Expression, ...]) -> tuple[ir.Buffer, tuple[ir.Expression, ...]]:
            offsets = (
                simplifier(combine("sub", place, begin)) for place, begin in zip(places, region.begin, strict=True)
            )
            return parts, (loop.variable, *offsets)

        turn = ir.Variable(f"{self.parts}.turn")
        clear, last = (
            [ir.Variable(f"{self.parts}.{what}.{number}") for number in range(len(region.size))]
            for what in ("in", "out")
        )
        for offset, size in zip(last, region.size, strict=True):
            simplifier.with_range(offset, (0, size - 1))
        first = ir.Store(parts, (loop.variable, *clear), _identity(operator, buffer.dtype))
        place = region.place(last)
        joined = ir.Binary(operator, ir.Load(buffer, place), ir.Load(parts, (loop.variable, *last)))
        inside = region.inside(last, simplifier)
        add: ir.Statement = ir.Store(buffer, place, joined)
        add = loops_over(zip(last, shape[1:], strict=True), add if inside is None else ir.If(inside, add))
        each = ir.Block(
            (loops_over(zip(clear, shape[1:], strict=True), first), visit.map_accesses(loop.body, {buffer}, own))
        )
        behind = ir.For(turn, shape[0], "serial", visit.map_statement(add, visit.substitution({loop.variable: turn})))
        new = ir.Allocate(parts, ir.Block((replace(loop, body=each), behind)))
        changed = with_loop(function.body, loop.variable, lambda _: new)
        check_shared(self, changed, loop, buffer, "add to what others add to")
        return with_body(function, changed)

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
        case ir.Binary(("add" | "mul" | "min" | "max") as operator, ir.Load() as old, term):
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
