"""The primitive that leaves out loops whose iterations a condition leaves out, all tested at once: skip."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.bounds import at_least_zero, check_lanes, factor_of
from graft.core.schedule.primitives.dependence import reads_written
from graft.core.schedule.primitives.statements import ramp
from graft.core.schedule.primitives.step import Step, bounded, constant_extent, find, index, with_body, with_loop
from graft.core.schedule.primitives.vectorize import guarded, vectorize_expression
from graft.core.tensor_ir import ir, visit
from graft.core.tensor_ir.rewriting.simplify import Simplifier


@dataclass(frozen=True, slots=True)
class Skip(Step):
    """Leaves out a loop if a condition leaves out all its iterations, which is tested for all of them together.

    As long as no iteration does anything nothing changes: what holds for none of them at the start never does. Where
    a condition is one of places, the loop's first or last iteration is tested, of any other a vector of all of them.
    """

    form = "skip {loop}"
    loop: str

    def check(self, function: ir.Function) -> None:
        """Check that what the condition reads lies where it does before the loop runs."""
        loop = find(self, function.body, self.loop)
        conditions = [*_conditions(loop.body)]
        if any(node.type.lanes > 1 for node in visit.walk_expressions(*conditions)):
            self.fail(f"conditions in '{self.loop}' are of vectors already")
        for load in visit.loads(*conditions):
            if reads_written(loop.body, *load.indices, *([load.mask] if load.mask is not None else [])):
                self.fail(f"where the condition reads '{load.buffer.name}' depends on what '{self.loop}' writes")

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with conditions around the loop."""
        loop, simplifier = find(self, function.body, self.loop), bounded(function.body)
        if loop.kind != "serial":
            self.fail(f"'{self.loop}' is {loop.kind} already; skip it before")
        check_lanes(self, function, loop, "conditions")
        count, tests = constant_extent(self, loop), list[ir.Expression]()
        if count < 1:
            self.fail(f"'{self.loop}' has no iterations")
        before: ir.Expression | None = None
        for condition in _conditions(loop.body):
            at_ends = self._at_an_end(condition, loop, count, simplifier)
            if at_ends is not None:
                tests.append(at_ends)
                before = condition if before is None else b.both(before, condition)
                continue
            own = guarded(condition, before, {loop.variable})
            every = own if before is None else b.both(before, own)
            lanes = vectorize_expression(every, {loop.variable: ramp(0, count)})
            tests.append(ir.Horizontal("or", lanes) if lanes.type.lanes > 1 else lanes)
        if not tests:
            self.fail(f"'{self.loop}' does more than what a condition leaves out")
        new: ir.Statement = loop
        for test in reversed(tests):
            new = ir.If(test, new)
        return with_body(function, with_loop(function.body, loop.variable, lambda _: new))

    def _at_an_end(
        self, condition: ir.Expression, loop: ir.For, count: int, simplifier: Simplifier
    ) -> ir.Expression | None:
        """Return whether a condition on places holds for any iteration; None of any other condition."""
        form = at_least_zero(condition, simplifier)
        step = None if form is None else factor_of(form, loop.variable, (), simplifier)
        if step is None:
            return None
        return simplifier(visit.substitute(condition, {loop.variable: index(count - 1 if step > 0 else 0)}))


def _conditions(body: ir.Statement) -> Iterator[ir.Expression]:
    """Yield the conditions without which a statement does nothing, of places before those that they guard."""
    values: dict[ir.Variable, ir.Expression] = {}
    while True:
        match body:
            case ir.Let(variable, value, inner):
                values[variable] = visit.substitute(value, values)
                body = inner
            case ir.If(condition, inner, None):
                yield from (visit.substitute(one, values) for one in visit.conjuncts(condition))
                body = inner
            case _:
                return
