"""A primitive that adds zeros where a condition would leave terms of a sum out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graft.core.schedule.primitives.bounds import factors
from graft.core.schedule.primitives.step import Step, bounded, with_body
from graft.core.schedule.primitives.vectorize import both
from graft.core.tensor_ir import ir, visit
from graft.core.tensor_ir.printer import print_expression
from graft.core.tensor_ir.rewriting.simplify import Simplifier


@dataclass(frozen=True, slots=True)
class Mask(Step):
    """Lets iterations that a condition leaves out add zeros to a sum: it becomes a mask of both factors, as of `Guard`.

    So no lane of a vector chooses between the sum and what it was before. A sum that is -0 may become 0.
    """

    form = "mask {buffer}"
    buffer: str

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with masks in the place of conditions."""
        loops = {one.variable: one for one in visit.walk_statements(function.body) if isinstance(one, ir.For)}
        simplifier, found = bounded(function.body), list[ir.Expression]()

        def rule(one: ir.Statement) -> ir.Statement:
            if not isinstance(one, ir.If) or one.else_body is not None or not isinstance(one.then_body, ir.Store):
                return one
            if one.then_body.buffer.name != self.buffer:
                return one
            found.append(one.condition)
            self._check(one.condition, one.then_body, loops, simplifier)
            read = factors(one.then_body)
            masked = visit.ExpressionMap(
                lambda node: replace(node, mask=both(node.mask, one.condition)) if node in read else node
            )
            return replace(one.then_body, value=masked(one.then_body.value))

        changed = visit.map_nested(function.body, rule)
        if not found:
            self.fail(f"nothing that is added to '{self.buffer}' has a condition of its own")
        return with_body(function, changed)

    def _check(
        self, condition: ir.Expression, store: ir.Store, loops: Mapping[ir.Variable, ir.For], simplifier: Simplifier
    ) -> None:
        """Check that a store adds a product of what is loaded, and may do so where the condition does not hold."""
        read = factors(store)
        if len(read) < 2 or any(one.buffer is store.buffer for one in read):
            self.fail(f"to '{self.buffer}' something else is added than a product of two elements")
        if any(visit.loads(*one.indices) for one in read):
            self.fail("places of factors are read from memory, which may not be where the condition does not hold")
        if visit.loads(condition):
            self.fail(f"the condition '{print_expression(condition)}' reads what may be written")
        shared = [one for one in visit.free_variables(condition) if one in loops and loops[one].kind == "parallel"]
        if shared:
            self.fail(f"iterations of '{shared[0].name}' that add nothing may write what others add to")
        for place, extent in zip(store.indices, store.buffer.shape, strict=True):
            reached = simplifier.interval(place)
            most = simplifier.interval(extent)
            if reached is None or most is None or reached[0] < 0 or reached[1] >= most[0]:
                written, known = print_expression(place), print_expression(condition)
                self.fail(f"'{written}' may lie outside of '{self.buffer}' where '{known}' does not hold")
