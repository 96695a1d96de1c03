"""The primitive that counts quotients and remainders on from one iteration to the next: count."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.dependence import ENDLESS
from graft.core.schedule.primitives.loop_order import with_symbols
from graft.core.schedule.primitives.step import (
    Step,
    around,
    bounded,
    constant_extent,
    find,
    index,
    with_body,
    with_loop,
)
from graft.core.tensor_ir import ir, visit
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.statements import bind

Pair: TypeAlias = tuple[ir.Expression, ir.Expression]
"""A dividend and what divides it."""


@dataclass(frozen=True, slots=True)
class Count(Step):
    """Copies of a loop's body, of which only the first divides: the others count its places on, with carries.

    That is strength reduction (Allen, Cocke, Kennedy, "Reduction of operator strength", 1981) of the places along the
    axes of a number that goes up by one, or stays where a minimum holds it.
    """

    form = "count {loop}"
    loop: str

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with copies in the place of the loop."""
        loop = find(self, function.body, self.loop)
        stores = loop.body.statements if isinstance(loop.body, ir.Block) else (loop.body,)
        if loop.kind != "serial" or any(not isinstance(one, ir.Store) or one.mask for one in stores):
            self.fail(f"'{self.loop}' does more than store, or is no serial loop")
        simplifier = with_symbols(function, bounded(function.body))
        for one in around(function.body, loop.variable):
            if isinstance(one, ir.For) and simplifier.ranges.get(one.variable) is None:
                simplifier = simplifier.with_range(one.variable, (0, ENDLESS))
        number = _Number(self, loop.variable, simplifier)
        copies = [store for turn in range(constant_extent(self, loop)) for store in number.copy(turn, stores)]
        needed = visit.free_variables(*(one for store in copies for one in visit.statement_expressions(store)))
        known = list[tuple[ir.Variable, ir.Expression]]()
        for variable, value in reversed(number.known):
            if variable in needed:
                needed |= visit.free_variables(value)
                known.insert(0, (variable, value))
        new = bind(known, ir.Block(tuple(copies)))
        return with_body(function, with_loop(function.body, loop.variable, lambda _: new))


@dataclass(slots=True)
class _Number:
    """What is made of a loop's variable, copy by copy: what is ``known``, in order.

    ``parts`` are, by dividend and divisor, the quotient, the remainder, and by how much the quotient grew.
    """

    step: Count
    variable: ir.Variable
    simplifier: Simplifier
    parts: dict[Pair, tuple[ir.Variable, ir.Variable, ir.Expression]] = field(default_factory=dict)
    turn: int = 0
    known: list[tuple[ir.Variable, ir.Expression]] = field(default_factory=list)

    def copy(self, turn: int, stores: Iterable[ir.Statement]) -> list[ir.Statement]:
        """Return a copy of what the loop stores."""
        self.turn, done = turn, set[Pair]()

        def value(node: ir.Expression) -> ir.Expression:
            if self.variable not in visit.free_variables(node):
                return node
            if isinstance(node, ir.Variable):
                return index(turn)
            if isinstance(node, ir.Binary) and node.operator in ("div", "mod"):
                pair = node.left, node.right
                if pair not in done:
                    done.add(pair)
                    self._divide(pair, value(node.left))
                return self.parts[pair][node.operator == "mod"]
            return visit.with_children(node, tuple(value(one) for one in visit.children(node)))

        return [visit.with_parts(one, value, lambda inner: inner) for one in stores]

    def _divide(self, pair: Pair, dividend: ir.Expression) -> None:
        """Find the quotient and the remainder of a dividend, which was or was not one less in the copy before."""
        divisor, moved = pair[1], self._moved(pair[0])
        if moved is None or self.variable in visit.free_variables(divisor) or visit.loads(*pair):
            self.step.fail(f"what '{self.step.loop}' divides is read, does not go up by one, or its divisor changes")
        if not all(map(self._is_natural, pair)):
            self.step.fail(f"what '{self.step.loop}' divides, or its divisor, may be negative")
        quotient, remainder = (ir.Variable(f"{self.variable.name}.{what}") for what in ("div", "mod"))
        if pair not in self.parts:
            carry: ir.Expression = index(0)
            self.known += [(quotient, ir.Binary("div", dividend, divisor)), (remainder, b.modulo(dividend, divisor))]
        else:
            before, rest, _ = self.parts[pair]
            next_one, carry = ir.Variable(f"{self.variable.name}.next"), ir.Variable(f"{self.variable.name}.carry")
            is_over = b.equal(next_one, divisor)
            self.known += [
                (next_one, b.add(rest, moved)),
                (carry, b.select(is_over, index(1), index(0))),
                (remainder, b.select(is_over, index(0), next_one)),
                (quotient, b.add(before, carry)),
            ]
        self.parts[pair] = quotient, remainder, carry

    def _is_natural(self, node: ir.Expression) -> bool:
        """Whether a number is not negative: intervals tell nothing of what has no greatest value."""
        match node:
            case ir.Binary("add" | "mul" | "div" | "mod" | "min", left, right):
                return self._is_natural(left) and self._is_natural(right)
            case ir.Binary("max", left, right):
                return self._is_natural(left) or self._is_natural(right)
        bounds = self.simplifier.interval(self.simplifier(node))
        return bounds is not None and bounds[0] >= 0

    def _moved(self, node: ir.Expression) -> ir.Expression | None:
        """Return by how much a number grew since the copy before, 0 or 1; None if it may be more."""
        form = self.simplifier.form(self.simplifier(node))
        steps = {self.simplifier.atom(number): factor for number, factor in form.terms.items()}
        if {one: n for one, n in steps.items() if self.variable in visit.free_variables(one)} == {self.variable: 1}:
            return index(1)
        match node:
            case ir.Binary("div", left, right) if (left, right) in self.parts:
                return self.parts[left, right][2]
            case ir.Binary("add", left, right) if self.variable not in visit.free_variables(left):
                return self._moved(right)
            case ir.Binary("min", left, right) if self.variable not in visit.free_variables(right):
                moved = self._moved(left)
                is_free = b.less_equal(visit.substitute(left, {self.variable: index(self.turn)}), right)
                return None if moved is None else b.select(is_free, moved, index(0))
        return None
