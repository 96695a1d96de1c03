"""Primitives that split a sum, or another reduction, into parts, or add up a vector: rfactor, subtotal, horizontal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from graft.core.machine.instructions import DOTS
from graft.core.schedule.primitives.dependence import accesses
from graft.core.schedule.primitives.staging import buffer_named, check_shared, copied, redirected, region_of
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
from graft.core.schedule.primitives.vectorize import vectorize_expression
from graft.core.tensor_ir import ir, visit
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.statements import loops_over
from graft.core.types import Type, element_bits, storage_dtype


@dataclass(frozen=True, slots=True)
class Rfactor(Step):
    """Lets each iteration of a loop reduce into a part of its own; a loop behind it reduces these.

    So iterations no longer depend on each other (Suriana, Adams, Kamil, "Parallel associative reductions in Halide",
    2017). Sums and products of floats are taken in another order: of n terms the sum moves by at most 2 n eps times the
    sum of their magnitudes. Minima, maxima (of zeros perhaps the other one) and integers keep every bit. With a loop
    ``around`` it, all iterations of that go on with the same parts.
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
        outer = self._outer(function, loop, buffer)
        operator, simplifier = _operator(self, outer, buffer), bounded(function.body)
        region = region_of(self, loop.body if outer is loop else outer, buffer, simplifier)
        shape = (index(constant_extent(self, loop)), *map(index, region.size))
        parts = ir.Buffer(self.parts, buffer.dtype, shape, None, self.memory)

        def own(_: ir.Buffer, places: tuple[ir.Expression, ...]) -> tuple[ir.Buffer, tuple[ir.Expression, ...]]:
            offsets = (
                simplifier(combine("sub", place, begin)) for place, begin in zip(places, region.begin, strict=True)
            )
            return parts, (loop.variable, *offsets)

        turn, home = (ir.Variable(f"{self.parts}.{what}") for what in ("turn", "in"))
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

        def nest(places: Sequence[ir.Expression], body: ir.Statement) -> ir.Statement:
            pairs = zip(places, shape[1:], strict=True)
            return loops_over([(one, size) for one, size in pairs if isinstance(one, ir.Variable)], body)

        place = region.place(last)
        joined = ir.Binary(operator, ir.Load(buffer, place), ir.Load(parts, (turn, *last)))
        inside = region.inside(last, simplifier)
        add: ir.Statement = ir.Store(buffer, place, joined)
        add = nest(last, add if inside is None else ir.If(inside, add))
        at = loop.variable if outer is loop else home
        start = nest(clear, ir.Store(parts, (at, *clear), identity_of(operator, Type(buffer.dtype))))
        if outer is not loop:
            start = ir.For(home, shape[0], "serial", start)
        inner = visit.map_accesses(loop.body, {buffer}, own)
        reduced = replace(loop, body=ir.Block((start, inner)) if outer is loop else inner)
        whole = with_loop(outer, loop.variable, lambda _: reduced)
        behind = ir.For(turn, shape[0], "serial", visit.map_statement(add, visit.substitution({loop.variable: turn})))
        new = ir.Allocate(parts, ir.Block((whole, behind) if outer is loop else (start, whole, behind)))
        changed = with_loop(function.body, outer.variable, lambda _: new)
        check_shared(self, changed, outer, buffer, "add to what others add to")
        return with_body(function, changed)

    def _outer(self, function: ir.Function, loop: ir.For, buffer: ir.Buffer) -> ir.For:
        """Return the loop around which the parts are kept: the loop itself, or one around it."""
        if not self.outer:
            return loop
        if len(self.outer) > 1:
            self.fail(f"one loop is around '{self.loop}', not '{' '.join(self.outer)}'")
        outer = find_place(self, function.body, self.outer[0])
        uses, inside = (sum(one.buffer is buffer for one in accesses(body)) for body in (outer.body, loop.body))
        if uses != inside or not any(one is loop for one in visit.walk_statements(outer.body)):
            self.fail(f"'{outer.variable.name}' does more to '{self.buffer}' than '{self.loop}' in it")
        return outer


@dataclass(frozen=True, slots=True)
class Subtotal(Step):
    """Lets each iteration of a loop reduce into a part that begins anew, and is added to the whole at its end.

    So errors of floats grow with the length of a part and the number of parts, not with that of the sum (Higham, "The
    accuracy of floating point summation", 1993). The order is another one, as `Rfactor` says.
    """

    form = "subtotal {buffer} at {loop} in {memory} -> {part}"
    buffer: str
    loop: str
    memory: str
    part: str

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with a buffer for a part, loops that clear it, and loops behind that add it up."""
        loop, buffer = find_place(self, function.body, self.loop), buffer_named(self, function, self.buffer)
        operator, simplifier = _operator(self, loop, buffer), bounded(function.body)
        region = region_of(self, loop.body, buffer, simplifier)
        part, identity = region.cache(self.part, self.memory), identity_of(operator, Type(buffer.dtype))
        home = tuple(ir.Variable(f"{self.part}.in.{number}") for number in range(len(part.shape)))

        def added(one: ir.Statement) -> ir.Statement:
            if not isinstance(one, ir.Store):
                return one
            return replace(one, value=ir.Binary(operator, ir.Load(one.buffer, one.indices), one.value))

        back = copied(f"{self.part}.out", region, part, simplifier, back=True)
        parts = (
            loops_over(zip(home, part.shape, strict=True), ir.Store(part, home, identity)),
            redirected(loop.body, region, part, simplifier),
            visit.map_nested(back, added),
        )
        new = ir.Allocate(part, ir.Block(parts))
        changed = with_loop(function.body, loop.variable, lambda one: replace(one, body=new))
        check_shared(self, changed, loop, buffer, "add to what others add to")
        return with_body(function, changed)


def _operator(step: Rfactor | Subtotal, loop: ir.For, buffer: ir.Buffer) -> ir.BinaryOperator:
    """Return by what all that a loop does to a buffer reduces into it."""
    used = [one.statement for one in accesses(loop.body) if one.buffer is buffer]
    operators = {_reduces(one, buffer) for one in used}
    if not used or None in operators or len(operators) > 1 or Type(buffer.dtype).is_custom:
        step.fail(f"'{step.loop}' does not just add to '{buffer.name}', or reduce into it by one operation")
    (operator,) = operators
    assert operator is not None
    return operator


@dataclass(frozen=True, slots=True)
class Horizontal(Step):
    """Makes a loop that reduces neighbouring elements into one element a single operation across the lanes of a vector.

    Sums and products of floats are taken in another order, as by `Rfactor`, whose parts it adds up.
    """

    form = "horizontal {loop}"
    loop: str

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with one store in the place of the loop."""
        loop = find_place(self, function.body, self.loop)
        count, (store, parts) = constant_extent(self, loop), self._reduction(loop)
        if count < 2:
            self.fail(f"'{self.loop}' has {count} iteration{'s' * (count != 1)}, and a vector has two lanes or more")
        assert isinstance(store.value, ir.Binary)
        lanes = vectorize_expression(parts, {loop.variable: ir.Ramp(index(0), 1, count)})
        value = ir.Binary(store.value.operator, store.value.left, ir.Horizontal(store.value.operator, lanes))
        new = replace(store, value=value)
        return with_body(function, with_loop(function.body, loop.variable, lambda _: new))

    def _reduction(self, loop: ir.For) -> tuple[ir.Store, ir.Load]:
        """Return the store of a loop, and what it reduces."""
        store = loop.body
        while isinstance(store, ir.For) and store.extent == index(1):  # as of parts of one element
            store = visit.map_statement(store.body, visit.substitution({store.variable: index(0)}))
        match store:
            case ir.Store(buffer, indices, ir.Binary(_, ir.Load(), ir.Load(places, _, None) as parts), None) if (
                loop.kind == "serial"
                and _reduces(store, buffer)
                and places is not buffer
                and loop.variable not in visit.free_variables(*indices)
                and self._are_neighbours(parts, loop.variable)
            ):
                return store, parts
        self.fail(f"'{self.loop}' does more than reduce neighbouring elements of one buffer into an element of another")

    def _are_neighbours(self, parts: ir.Load, variable: ir.Variable) -> bool:
        """Whether iterations read one element after the other: a step of one along the last axis that is longer."""
        *_, last = [n for n, extent in enumerate(parts.buffer.shape) if extent != index(1)] or [-1]
        others = [place for n, place in enumerate(parts.indices) if n != last]
        step = Simplifier()(combine("sub", parts.indices[last], variable))
        return last >= 0 and not any(variable in visit.free_variables(one) for one in (*others, step))


def _reduces(statement: ir.Statement, buffer: ir.Buffer) -> ir.BinaryOperator | None:
    """Return by what a store reduces into an element of a buffer of which it uses nothing else, None if it does not."""
    if not isinstance(statement, ir.Store) or statement.buffer is not buffer:
        return None
    match statement.value:
        case ir.Binary(("add" | "mul" | "min" | "max" | "and" | "or" | "xor") as operator, ir.Load() as old, term):
            terms = [term]
        case ir.Intrinsic("fma", (left, right, ir.Load() as old)):
            operator, terms = "add", [left, right]
        case ir.Intrinsic(name, (ir.Load() as old, *terms)) if name in DOTS:
            operator = "add"
        case ir.Select(ir.Binary("gt", term, ir.Load() as old), chosen, kept) if chosen == term and kept == old:
            operator, terms = "max", [term]  # a NaN is never greater: what is reduced has none
        case _:
            return None
    is_same = old.buffer is buffer and old.indices == statement.indices and old.mask is None
    switch = () if statement.mask is None else (statement.mask,)
    others = visit.loads(*terms, *statement.indices, *switch)
    return operator if is_same and all(one.buffer is not buffer for one in others) else None


def identity_of(operator: ir.BinaryOperator, kind: Type) -> ir.Constant:
    """Return what changes nothing: the neutral element of a reduction."""
    kind = kind.with_lanes(1)
    if kind.dtype == "bool":
        return ir.Constant(operator in ("and", "min", "mul"), kind)
    if operator in ("add", "or", "xor"):
        return ir.Constant(0.0 if kind.is_float else 0, kind)
    if operator == "mul":
        return ir.Constant(1.0 if kind.is_float else 1, kind)
    if kind.is_float or kind.is_custom:
        return ir.Constant(float("inf") if operator == "min" else float("-inf"), kind)
    bits = element_bits(storage_dtype(kind.dtype))
    low, high = (0, (1 << bits) - 1) if kind.dtype.startswith("u") else (-(1 << bits - 1), (1 << bits - 1) - 1)
    return ir.Constant({"min": high, "max": low, "and": high if low == 0 else -1}[operator], kind)
