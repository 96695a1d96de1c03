"""Primitives that get rid of conditions: by tiles that overlap, bounds of loops, copies in which none is left, skewing.

A condition is a sum of conjuncts ``place >= 0``, each a linear form of the loops around it. What follows from them is
what compilers call loop versioning, unswitching and index-set splitting (Wolfe, "High Performance Compilers for
Parallel Computing", 1996, chapter 9).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from graft.core.affine.linear import Linear
from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.dependence import accesses, conflicts, reads_written
from graft.core.schedule.primitives.loop_order import perfect_nest, renamed
from graft.core.schedule.primitives.statements import wide
from graft.core.schedule.primitives.step import (
    Step,
    all_reach,
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
from graft.core.tensor_ir import ir, visit
from graft.core.tensor_ir.rewriting.simplify import Simplifier

TRUE = b.constant(True, "bool")


@dataclass(frozen=True, slots=True)
class Overlap(Step):
    """Makes one loop tiles of ``factor`` iterations, of which the last ends where the loop does.

    Iterations that two tiles share run in both, so they may read nothing that the loop writes. Of a loop of fewer
    iterations than a tile, which only one whose extent varies may be, the tile's others are guarded.
    """

    form = "overlap {loop} {factor} -> {outer} {inner}"
    loop: str
    factor: int
    outer: str
    inner: str

    def check(self, function: ir.Function) -> None:
        """Check that an iteration may run twice."""
        loop = find(self, function.body, self.loop)
        if reads_written(loop.body, loop.extent):
            self.fail(f"'{self.loop}' writes what its extent is read from")
        if any(isinstance(one, ir.CallExtern) for one in visit.walk_statements(loop.body)):
            self.fail(f"'{self.loop}' calls what may not run twice")
        own = accesses(loop.body)
        written = {one.buffer for one in own if one.writes}
        read = next((one.buffer for one in own if not one.writes and one.buffer in written), None)
        if read is not None:
            self.fail(f"'{self.loop}' reads '{read.name}', which it writes: no iteration may run twice")

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with two loops in the place of one."""
        loop = find(self, function.body, self.loop)
        if loop.kind != "serial":
            self.fail(f"'{self.loop}' is {loop.kind} already; split it before")
        if self.factor < 1:
            self.fail("the factor is less than 1")
        outer, inner = fresh(self, function.body, self.outer, self.inner, instead=(self.loop,))
        simplifier = bounded(function.body)
        begin = combine("mul", outer, self.factor)
        last = combine("sub", loop.extent, self.factor)
        bounds = simplifier.interval(simplifier(last))
        if bounds is not None and bounds[1] < 0:
            self.fail(f"'{self.loop}' has fewer iterations than a tile")
        if simplifier(ir.Binary("mod", loop.extent, index(self.factor))) != index(0):
            begin = ir.Binary("min", begin, last)
        is_whole = bounds is not None and bounds[0] >= 0
        begin = begin if is_whole else ir.Binary("max", begin, index(0))
        place = simplifier(combine("add", begin, inner))
        body = visit.map_statement(loop.body, visit.substitution({loop.variable: place}))
        if not is_whole:
            body = ir.If(ir.Binary("lt", place, loop.extent), body)
        count = simplifier(ir.Binary("div", combine("add", loop.extent, self.factor - 1), index(self.factor)))
        new = ir.For(outer, count, "serial", ir.For(inner, index(self.factor), "serial", body))
        return with_body(function, with_loop(function.body, loop.variable, lambda _: new))


@dataclass(frozen=True, slots=True)
class Skew(Step):
    """Makes two loops that stand directly in each other one over ``factor * loop + step * other``, ``other`` inside.

    So what is read at such places, as by windows that slide, is read by one iteration for all that use it. (Wolf and
    Lam, "A loop transformation theory and an algorithm to maximize parallelism", 1991.)
    """

    form = "skew {loop} {factor} {other} {step} -> {front}"
    loop: str
    factor: int
    other: str
    step: int
    front: str

    def check(self, function: ir.Function) -> None:
        """Check that what depends on each other stays in order."""
        chain, _, body = perfect_nest(self, function, (self.loop, self.other))
        for conflict in conflicts(body, chain, bounded(function.body)):
            by_name = {variable.name: distance for variable, distance in conflict.distance.items()}
            along, across = by_name[self.loop], by_name[self.other]
            if 0 in (along, across) or conflict.reassociates:
                continue
            outermost = by_name[chain[0].variable.name]
            ahead = None if along is None or across is None else along * self.factor + across * self.step or across
            if ahead is None or outermost is None or ahead * outermost < 0:
                self.fail(f"{conflict} is written and used again along '{self.loop}' and '{self.other}'")

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with a loop over the sum and one over ``other``."""
        if self.factor < 1 or self.step < 1:
            self.fail("the factors must be 1 or more")
        chain, inside, body = perfect_nest(self, function, (self.loop, self.other))
        if len(chain) != 2 or inside or any(one.kind != "serial" for one in chain):
            self.fail(f"'{self.loop}' and '{self.other}' are not serial loops directly in each other")
        loop, other = (next(one for one in chain if one.variable.name == name) for name in (self.loop, self.other))
        (front,) = fresh(self, function.body, self.front, instead=(self.loop,))
        count, many = constant_extent(self, loop), constant_extent(self, other)
        ahead = combine("sub", front, combine("mul", other.variable, self.step))
        limits = [ir.Binary("ge", ahead, index(0)), ir.Binary("lt", ahead, index(count * self.factor))]
        if self.factor > 1:
            limits.append(ir.Binary("eq", ir.Binary("mod", ahead, index(self.factor)), index(0)))
        condition = b.all_of(limits)
        assert condition is not None
        moved = visit.map_statement(body, visit.substitution({loop.variable: combine("div", ahead, self.factor)}))
        extent = (count - 1) * self.factor + (many - 1) * self.step + 1
        inner = ir.For(other.variable, index(many), "serial", ir.If(condition, moved))
        new = ir.For(front, index(extent), "serial", inner)
        return with_body(function, with_loop(function.body, chain[0].variable, lambda _: new))


@dataclass(frozen=True, slots=True)
class Clip(Step):
    """Runs only the iterations of a loop in which a condition of all that it does holds: its bounds, not a test.

    Conditions that hold for all iterations or for none are tested once, around the loop. Where there are no conditions
    nothing changes. What a mask makes a zero factor of a term of a sum is such a condition, too: the term is left out.
    (Added, it would make a sum of -0.0 one of 0.0, and NaN where the other factor is infinite.)
    """

    form = "clip {loop}"
    loop: str

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with fewer iterations and conditions."""
        loop = find(self, function.body, self.loop)
        if loop.kind != "serial":
            self.fail(f"'{self.loop}' is {loop.kind} already; clip it before")
        check_lanes(self, function, loop, "bounds")
        simplifier = bounded(function.body)
        low, high = list[ir.Expression](), list[ir.Expression]()
        kept, still = set[ir.Expression](), list[ir.Expression]()
        for conjunct, form, own in _shared(loop, simplifier):
            kept.add(conjunct)
            if own == 0:
                still.append(ir.Binary("ge", simplifier.build(form), index(0)))
                continue
            terms = {n: f for n, f in form.terms.items() if simplifier.atom(n) != loop.variable}
            rest = simplifier.build(Linear(form.constant, terms))
            if own > 0:
                least = ir.Binary("max", combine("sub", index(0), rest), index(0))
                low.append(combine("div", combine("add", least, own - 1), own))
            else:
                most = ir.Binary("max", combine("add", rest, -own), index(0))
                high.append(combine("div", most, -own))
        if not kept:
            return function
        first = simplifier(_extreme("max", *low) if low else index(0))
        end = simplifier(_extreme("min", loop.extent, *high))
        (variable,) = fresh(self, function.body, self.loop, instead=(self.loop,))
        body = without(loop.body, kept)
        place = simplifier(combine("add", first, variable))
        if isinstance(place, ir.Variable):
            body = visit.map_statement(body, visit.substitution({loop.variable: variable}))
        else:
            body = ir.Let(loop.variable, place, body)
        count = simplifier(ir.Binary("max", combine("sub", end, first), index(0)))
        new: ir.Statement = ir.For(variable, count, "serial", body)
        holds = b.all_of(still)
        new = new if holds is None else ir.If(holds, new)
        return with_body(function, with_loop(function.body, loop.variable, lambda _: new))


@dataclass(frozen=True, slots=True)
class Hoist(Step):
    """Tests once, around a loop, the conditions of all that it does which are the same for all its iterations.

    What a mask makes a zero factor is left out, as `Clip` does, but the loop keeps its bounds: it can be unrolled.
    """

    form = "hoist {loop}"
    loop: str

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with a condition around the loop."""
        loop = find(self, function.body, self.loop)
        simplifier = bounded(function.body)
        check_lanes(self, function, loop, "conditions")
        still = {conjunct: form for conjunct, form, own in _shared(loop, simplifier) if own == 0}
        condition = b.all_of([ir.Binary("ge", simplifier.build(form), index(0)) for form in still.values()])
        if condition is None:
            return function
        new = ir.If(condition, replace(loop, body=without(loop.body, still)))
        return with_body(function, with_loop(function.body, loop.variable, lambda _: new))


@dataclass(frozen=True, slots=True)
class Guard(Step):
    """Leaves out the terms of sums into a buffer of which a mask makes a factor zero, by a condition, as `Clip` does.

    For loops that are unrolled: there the condition is known.
    """

    form = "guard {buffer}"
    buffer: str

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with conditions in the place of masks."""

        def rule(one: ir.Statement) -> ir.Statement:
            if not isinstance(one, ir.Store) or one.buffer.name != self.buffer:
                return one
            found = list(dict.fromkeys(known for load in factors(one) for known in visit.conjuncts(load.mask)))
            condition = b.all_of(found)
            return one if condition is None else ir.If(condition, without(one, found))

        if not any(
            isinstance(one, ir.Store) and one.buffer.name == self.buffer for one in visit.walk_statements(function.body)
        ):
            self.fail(f"no buffer that is written is called '{self.buffer}'")
        return with_body(function, visit.map_nested(function.body, rule))


@dataclass(frozen=True, slots=True)
class Unswitch(Step):
    """Makes two copies of a loop's body: one for iterations in which conditions on them always hold, without these.

    Minima and maxima of indices that follow from the conditions are decided there, too. Iterations of loops inside are
    taken together: the condition is that it holds for the least and the greatest place.
    Where there are no conditions nothing changes. The names of the loops in the other copy end with ``rest``.
    """

    form = "unswitch {loop} else {rest}"
    loop: str
    rest: str

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with a condition around two copies, the first with fewer conditions."""
        loop = find(self, function.body, self.loop)
        simplifier = bounded(function.body)
        inner = _bound_in(loop.body)
        found: dict[ir.Expression, ir.Expression] = {}
        facts: list[Linear[int]] = []
        for conjunct in (one for leaf in _leaves(loop.body, (), every=True) for one in leaf):
            form = None if conjunct in found else at_least_zero(conjunct, simplifier)
            if form is None or reads_written(loop.body, conjunct):
                continue
            still = {n: f for n, f in form.terms.items() if visit.free_variables(simplifier.atom(n)).isdisjoint(inner)}
            moving = {n: f for n, f in form.terms.items() if n not in still}
            if not any(loop.variable in visit.free_variables(simplifier.atom(n)) for n in still):
                continue
            bounds = simplifier.interval(simplifier.build(Linear(0, moving))) if moving else (0, 0)
            if bounds is not None:
                least = simplifier.build(Linear(form.constant + bounds[0], still))
                found[conjunct] = simplifier(ir.Binary("ge", least, index(0)))
                facts += [form] if all(simplifier.atom(number) in inner for number in moving) else []
        if not found:
            return function
        holds = b.all_of([one for one in dict.fromkeys(found.values()) if one != TRUE])
        if holds is not None and any(isinstance(one, ir.Barrier) for one in visit.walk_statements(loop.body)):
            units = [one for one in around(function.body, loop.variable) if isinstance(one, ir.For) and one.binding]
            if not all_reach(function.body, loop, units, holds):
                self.fail(f"in '{self.loop}' units wait for each other, of which the conditions hold for some")
        fast = _decided(without(loop.body, found), facts, inner, simplifier)
        new = fast if holds is None else ir.If(holds, fast, renamed(loop.body, {}, self.rest))
        return with_body(function, with_loop(function.body, loop.variable, lambda one: replace(one, body=new)))


# ---- Conditions ----


def mask_of(conditions: Iterable[ir.Expression], lanes: int) -> ir.Expression | None:
    """Return what holds where all of some conditions do, in so many lanes; None if there are none."""
    return b.all_of([wide(one, lanes) for one in conditions])


def without(body: ir.Statement, known: Collection[ir.Expression]) -> ir.Statement:
    """Return a statement in which some conjuncts of its conditions and masks are known to hold."""

    def left(condition: ir.Expression | None, lanes: int = 1) -> ir.Expression | None:
        return mask_of((one for one in visit.conjuncts(condition) if one not in known), lanes)

    def expression(node: ir.Expression) -> ir.Expression:
        if isinstance(node, ir.Select) and left(node.condition) is None:
            return node.on_true
        if isinstance(node, ir.Load) and node.mask is not None:
            return replace(node, mask=left(node.mask, node.type.lanes))
        return node

    def statement(one: ir.Statement) -> ir.Statement:
        if isinstance(one, ir.Store) and one.mask is not None:
            return replace(one, mask=left(one.mask, one.mask.type.lanes))
        if isinstance(one, ir.If) and one.else_body is None:
            rest = left(one.condition)
            return one.then_body if rest is None else replace(one, condition=rest)
        return one

    return visit.map_statement(body, visit.ExpressionMap(expression), statement)


def _decided(
    body: ir.Statement, facts: Collection[Linear[int]], inner: Collection[ir.Variable], simplifier: Simplifier
) -> ir.Statement:
    """Return a statement whose minima and maxima of indices are the operand that ``facts`` say.

    A fact is a form that is 0 or more for all values of the ``inner`` variables in it.
    """

    def most(rest: Linear[int]) -> int | None:
        """Return the greatest value of a form of inner variables; None of any other."""
        total = rest.constant
        for number, factor in rest.terms.items():
            atom = simplifier.atom(number)
            bounds = simplifier.interval(atom) if atom in inner else None
            if bounds is None:
                return None
            total += max(factor * bounds[0], factor * bounds[1])
        return total

    def follows(form: Linear[int]) -> bool:
        own = visit.free_variables(*(simplifier.atom(number) for number in form.terms))
        for fact in facts:
            rest = form.plus(fact, -1)
            left = visit.free_variables(*(simplifier.atom(number) for number in rest.terms))
            bound = most(rest) if own.isdisjoint(left) else None
            if bound is not None and bound >= 0:
                return True
        return False

    def expression(node: ir.Expression) -> ir.Expression:
        if not isinstance(node, ir.Binary) or node.operator not in ("min", "max") or node.type != index(0).type:
            return node
        left, right = (simplifier.form(simplifier(one)) for one in (node.left, node.right))
        if follows(left.plus(right, -1)):
            return node.left if node.operator == "max" else node.right
        return (node.right if node.operator == "max" else node.left) if follows(right.plus(left, -1)) else node

    return visit.map_statement(body, visit.ExpressionMap(expression))


def _leaves(
    statement: ir.Statement, around: tuple[ir.Expression, ...], every: bool = False
) -> Iterator[list[ir.Expression]]:
    """Yield for each statement that does something the conjuncts without which it does nothing.

    With ``every`` those of all masks, too, which may say no more than that an element is zero.
    """
    match statement:
        case ir.If(condition, then_body, else_body):
            yield from _leaves(then_body, (*around, *visit.conjuncts(condition)), every)
            if else_body is not None:
                yield from _leaves(else_body, around, every)
        case ir.Store():
            own = [*around, *visit.conjuncts(statement.mask)]
            masks = visit.loads(statement.value) if every else factors(statement)
            yield [*own, *(one for load in masks for one in visit.conjuncts(load.mask))]
        case _:
            inside = visit.statement_children(statement)
            if every and isinstance(statement, ir.Let):
                yield [one for load in visit.loads(statement.value) for one in visit.conjuncts(load.mask)]
            for inner in inside:
                yield from _leaves(inner, around, every)
            if not inside:
                yield list(around)


def check_lanes(step: Step, function: ir.Function, loop: ir.For, what: str) -> None:
    """Check that a loop is not inside of a vector loop."""
    for one in around(function.body, loop.variable):
        if isinstance(one, ir.For) and one.kind == "vector":
            step.fail(f"'{loop.variable.name}' is inside of '{one.variable.name}', whose lanes share its {what}")


def _shared(loop: ir.For, simplifier: Simplifier) -> Iterator[tuple[ir.Expression, Linear[int], int]]:
    """Yield the conditions of all that a loop does, what each says is 0 or more, and how that moves with the loop."""
    inner = _bound_in(loop.body)
    shared: list[ir.Expression] | None = None
    for leaf in _leaves(loop.body, ()):
        shared = leaf if shared is None else [one for one in shared if one in leaf]
    for conjunct in shared or ():
        form = at_least_zero(conjunct, simplifier)
        own = None if form is None else factor_of(form, loop.variable, inner, simplifier)
        if form is not None and own is not None and not reads_written(loop.body, conjunct):
            yield conjunct, form, own


def factors(store: ir.Store) -> list[ir.Load]:
    """Return the loads that are factors of the term that a store adds to what is there; none if it does not."""
    match store.value:
        case ir.Intrinsic("fma", (left, right, ir.Load() as total)):
            terms = (left, right)
        case ir.Binary("add", ir.Load() as total, ir.Binary("mul", left, right)):
            terms = (left, right)
        case ir.Binary("add", ir.Binary("mul", left, right), ir.Load() as total):
            terms = (left, right)
        case _:
            return []
    if total.buffer is not store.buffer or total.indices != store.indices:
        return []
    bare = (one.value if isinstance(one, ir.Cast) else one for one in terms)
    return [one for one in bare if isinstance(one, ir.Load)]


def at_least_zero(conjunct: ir.Expression, simplifier: Simplifier) -> Linear[int] | None:
    """Return the linear form that a comparison of indices says is 0 or more; None if it says anything else."""
    if not isinstance(conjunct, ir.Binary) or conjunct.left.type != b.index(0).type:
        return None
    left, right = (simplifier.form(simplifier(one)) for one in (conjunct.left, conjunct.right))
    match conjunct.operator:
        case "ge":
            return left.plus(right, -1)
        case "gt":
            return left.plus(right, -1).plus(Linear(-1))
        case "le":
            return right.plus(left, -1)
        case "lt":
            return right.plus(left, -1).plus(Linear(-1))
    return None


def factor_of(
    form: Linear[int], variable: ir.Variable, inner: Collection[ir.Variable], simplifier: Simplifier
) -> int | None:
    """Return by how much a form moves with a loop; None if it moves with what is inside of the loop, too."""
    found = 0
    for number, factor in form.terms.items():
        atom = simplifier.atom(number)
        if atom == variable:
            found = factor
        elif not visit.free_variables(atom).isdisjoint({variable, *inner}):
            return None
    return found


def _bound_in(body: ir.Statement) -> set[ir.Variable]:
    """Return the variables that a statement binds."""
    return {one.variable for one in visit.walk_statements(body) if isinstance(one, ir.For | ir.Let)}


def _extreme(operator: ir.BinaryOperator, first: ir.Expression, *others: ir.Expression) -> ir.Expression:
    for other in others:
        first = ir.Binary(operator, first, other)
    return first
