"""Primitives for what units of a level do together: spmd, tree."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from graft.core.schedule.primitives.dependence import accesses, conflicts, reads_written
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
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import map_accesses, map_nested, map_statement, substitution, walk_statements

PRIVATE = ("register", "scratch")
"""Memories of which each unit has its own."""


@dataclass(frozen=True, slots=True)
class Spmd(Step):
    """Lets ``count`` units do what an iteration of a bound loop does: they take turns at its parallel loops.

    What stands between these each unit does where it writes memory that each has for itself, and the first one where
    it does not. Registers whose first dimension has a part for each unit are such, if loops of as many iterations alone
    use them, each iteration its own part. A barrier stands where one unit touches what another has touched before, and
    one of them writes.
    (Jacob et al., "Efficient Execution of OpenMP on GPUs", 2022: SPMD-ization.)
    """

    form = "spmd {loop} {count} {level} -> {unit}"
    loop: str
    count: int
    level: str
    unit: str

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with a loop of units inside of the loop, and what they share around that."""
        loop = find(self, function.body, self.loop)
        if not loop.binding:
            self.fail(f"'{self.loop}' is bound to no level, so that nobody could wait for its units")
        bound = [one for one in walk_statements(loop.body) if isinstance(one, ir.For) and one.binding]
        if bound or self.count < 1:
            self.fail(f"'{bound[0].variable.name}' has units already" if bound else "there is no unit")
        level, path = ir.level_of(self.level), around(function.body, loop.variable)
        if any(isinstance(one, ir.For) and ir.level_of(one.binding) == level for one in path):
            self.fail(f"'{self.loop}' is in a loop of units of '{level}' itself")
        (unit,) = fresh(self, function.body, self.unit)
        sharing = Sharing(unit, self.count, ir.Barrier(ir.level_of(loop.binding)))
        try:
            body = sharing.whole(loop.body, self.level)
        except SharingError as error:
            self.fail(str(error))
        return with_body(function, with_loop(function.body, loop.variable, lambda one: replace(one, body=body)))


class SharingError(Exception):
    """Why units cannot do something together."""


@dataclass(slots=True)
class Sharing:
    """What is done by units together: who does what, and where they wait for each other."""

    unit: ir.Variable
    count: int
    barrier: ir.Barrier
    shared: list[ir.Buffer] = field(default_factory=list)
    private: set[ir.Buffer] = field(default_factory=set)
    parts: set[ir.Buffer] = field(default_factory=set)
    """What is private as the part of a unit."""
    _pending: list[ir.Statement] = field(default_factory=list)
    """What was done since units have last waited for each other."""
    _alike: dict[ir.Expression, ir.Variable] = field(default_factory=dict)

    def whole(self, body: ir.Statement, level: str) -> ir.Statement:
        """Return the loop of units in the memory that they share."""
        units: ir.Statement = ir.For(self.unit, index(self.count), "parallel", self._block(body), level)
        for buffer in reversed(self.shared):
            units = ir.Allocate(buffer, units)
        return units

    def _block(self, statement: ir.Statement) -> ir.Statement:
        parts = self._parts(statement)
        return parts[0] if len(parts) == 1 else ir.Block(tuple(parts))

    def _parts(self, statement: ir.Statement) -> list[ir.Statement]:
        """Return what a unit does in the place of a statement."""
        if isinstance(statement, ir.Barrier):
            if not statement.units:
                self._pending.clear()
            return [statement]
        match statement:
            case ir.Block(statements):
                return [part for one in statements for part in self._parts(one)]
            case ir.Allocate(buffer, body):
                if buffer.memory not in PRIVATE:
                    self.shared.append(buffer)
                    return self._parts(body)
                own, body = self._part(buffer, body)
                self.private.add(own)
                return [ir.Allocate(own, self._block(body))]
            case ir.Let(variable, value, body):
                before = self._met(replace(statement, body=ir.Block(())))
                return [*before, ir.Let(variable, value, self._block(body))]
            case ir.For(kind="parallel"):
                return self._turns(statement)
            case ir.If(condition, then_body, else_body) if _has_parallel(statement) or self._is_mixed(statement):
                before = self._met(ir.If(condition, ir.Block(())))
                known = list(self._pending)
                then, after = self._block(then_body), [*known, *self._pending]
                self._pending = list(known)
                other = None if else_body is None else self._block(else_body)
                self._pending += after
                return [*before, ir.If(condition, then, other)]
            case ir.For(body=body) if _has_parallel(body) or self._is_mixed(statement):
                if reads_written(body, statement.extent):
                    raise SharingError(f"'{statement.variable.name}' writes what its extent is read from")
                known, self._pending = self._pending, []
                inside = self._parts(body)
                again = ir.Block(tuple(inside))
                if self._meet(again, again):
                    inside.append(self.barrier)
                    self._pending.clear()
                whole = replace(statement, kind="serial", body=ir.Block(tuple(inside)))
                met = next((number for number, one in enumerate(inside) if one == self.barrier), len(inside))
                reached = replace(whole, body=ir.Block(tuple(inside[:met])))  # with nothing between
                before = [self.barrier] if self._meet(ir.Block(tuple(known)), reached) else []
                self._pending += [] if before else known
                return [*before, whole]
        if self._written(statement) <= self.private and not _has_effect(statement):
            return [*self._met(statement), statement]
        first = ir.If(ir.Binary("eq", self.unit, index(0)), statement)
        return [*self._met(first), first]

    def _part(self, buffer: ir.Buffer, body: ir.Statement) -> tuple[ir.Buffer, ir.Statement]:
        """Return a unit's part of memory, and the body that uses it; both as they are where it has no parts."""
        own, count = replace(buffer, shape=buffer.shape[1:]), index(self.count)

        def rule(one: ir.Statement) -> ir.Statement:
            if not isinstance(one, ir.For) or one.kind != "parallel" or one.extent != count:
                return one

            def place(_: ir.Buffer, at: tuple[ir.Expression, ...]) -> tuple[ir.Buffer, tuple[ir.Expression, ...]]:
                return (own, at[1:]) if at[0] is one.variable else (buffer, at)

            return map_accesses(one, {buffer}, place)

        changed = map_nested(body, rule) if buffer.shape[:1] == (count,) else body
        if changed is body or any(one.buffer is buffer for one in accesses(changed)):
            return buffer, body
        self.parts.add(own)
        return own, changed

    def _turns(self, loop: ir.For) -> list[ir.Statement]:
        """Return the iterations of a parallel loop that a unit has: every n-th."""
        name, extent, body = loop.variable.name, loop.extent, loop.body
        if _has_parallel(body):
            raise SharingError(f"in '{name}', which is parallel, are parallel loops; fuse them before")
        if kept := self._written(body) & self.private - self.parts:
            raise SharingError(
                f"iterations of '{name}' write '{next(iter(kept)).name}', of which each unit has its own"
            )
        for one in walk_statements(body):
            if isinstance(one, ir.Allocate) and one.buffer.memory not in PRIVATE:
                raise SharingError(
                    f"'{one.buffer.name}' in memory '{one.buffer.memory}' is of one iteration of '{name}'"
                )
        known = int(extent.value) if isinstance(extent, ir.Constant) else None
        if known is not None and known < 1:
            return []
        is_one = known is not None and known <= self.count
        turns = Simplifier()(ir.Binary("div", combine("add", extent, self.count - 1), index(self.count)))

        def iterated(turn: ir.Variable) -> ir.Statement:
            place = self.unit if is_one else combine("add", combine("mul", turn, self.count), self.unit)
            inside = map_statement(body, substitution({loop.variable: place}))
            if known is None or known % self.count:
                inside = ir.If(ir.Binary("lt", place, extent), inside)
            return inside if is_one else ir.For(turn, turns, "serial", inside)

        # Loops of as many turns are compared with one variable: then it is known that a unit stays with its elements.
        return [
            *self._met(iterated(self._alike.setdefault(turns, ir.Variable("turn")))),
            iterated(ir.Variable(f"{name}.turn")),
        ]

    def _met(self, part: ir.Statement) -> list[ir.Statement]:
        """Return the barrier that units need before a part, if they need one."""
        before = [self.barrier] if self._meet(ir.Block(tuple(self._pending)), part) else []
        if before:
            self._pending.clear()
        self._pending.append(part)
        return list(before)

    def _meet(self, first: ir.Statement, second: ir.Statement) -> bool:
        """Whether two units touch one element, one in the first statement and one in the second, and one writes."""
        both = ir.Block((first, second)) if first is not second else first
        touched = [accesses(first), accesses(second)]
        written = {one.buffer for side in touched for one in side if one.writes} - self.private
        common = written.intersection(*({one.buffer for one in side} for side in touched))
        if not common:
            return False
        units = ir.For(self.unit, index(self.count), "serial", both)
        own = {id(one) for one in walk_statements(second)}
        for one in conflicts(both, [units], bounded(units), common):
            crosses = first is second or (id(one.first.statement) in own) != (id(one.second.statement) in own)
            if crosses and one.distance[self.unit] != 0:
                return True
        return False

    def _written(self, statement: ir.Statement) -> set[ir.Buffer]:
        return {one.buffer for one in accesses(statement) if one.writes}

    def _is_mixed(self, statement: ir.Statement) -> bool:
        """Whether a statement writes memory that units have for themselves, and does more than that."""
        written = self._written(statement)
        return bool(written & self.private) and (not written <= self.private or _has_effect(statement))


def _has_parallel(statement: ir.Statement) -> bool:
    return any(isinstance(one, ir.For) and one.kind == "parallel" for one in walk_statements(statement))


def _has_effect(statement: ir.Statement) -> bool:
    """Whether a statement does something beside what it writes."""
    return any(isinstance(one, ir.CallExtern) for one in walk_statements(statement))


@dataclass(frozen=True, slots=True)
class Tree(Step):
    """Lets groups of ``width`` units reduce their parts by halves, so that a loop over all parts is one over groups.

    The units of a group wait for each other alone, where no loop is bound to ``level``; what all wait for in front of
    the loop moves behind the halves. Sums of floats are taken in another order, as by `Rfactor`.
    """

    form = "tree {loop} by {unit} {width} {level}"
    loop: str
    unit: str
    width: int
    level: str

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with halves in front of a shorter loop."""
        loop, unit = find(self, function.body, self.loop), find(self, function.body, self.unit)
        parts, operator = self._reduced(loop)
        if not unit.binding or loop.kind != "serial" or unit.extent != loop.extent:
            self.fail(f"the iterations of '{self.loop}' are not those of '{self.unit}'")
        count = constant_extent(self, loop)
        if self.width < 2 or self.width & (self.width - 1) or count % self.width:
            self.fail(f"{count} units are not in groups of {self.width}, or these have no halves")
        path = around(unit.body, loop.variable)
        block = path[-2] if len(path) > 1 else None
        if not isinstance(block, ir.Block) or any(isinstance(one, ir.For | ir.If) for one in path[:-1]):
            self.fail(f"'{self.loop}' does not stand among what all units do")
        here = next(number for number, one in enumerate(block.statements) if one is loop)
        own = list(walk_statements(loop))
        used = [one for one in accesses(unit.body) if one.buffer is parts and one.statement not in own]
        behind = [one for part in block.statements[here + 1 :] for one in accesses(part) if one.buffer is parts]
        same = bounded(unit)
        if behind or any(one.indices is None or same(one.indices[0]) is not unit.variable for one in used):
            self.fail(f"'{parts.name}' is used otherwise than by each unit for itself, before the loop")
        before = block.statements[here - 1] if here else None
        wait = (before,) if isinstance(before, ir.Barrier) else ()
        levels = {ir.level_of(one.binding) for one in around(function.body, unit.variable) if isinstance(one, ir.For)}
        barrier = ir.Barrier(self.level, 0 if self.level in levels else self.width)
        halves = self._halves(unit.variable, parts, operator, barrier)
        halves[-1:] = wait if wait and count > self.width else halves[-1:]
        group = map_statement(loop.body, substitution({loop.variable: combine("mul", loop.variable, self.width)}))
        last = replace(loop, extent=index(count // self.width), body=group)
        statements = (*block.statements[: here - len(wait)], *halves, last, *block.statements[here + 1 :])

        def rule(one: ir.Statement) -> ir.Statement:
            return ir.Block(statements) if isinstance(one, ir.Block) and one.statements == block.statements else one

        return with_body(function, map_nested(function.body, rule))

    def _reduced(self, loop: ir.For) -> tuple[ir.Buffer, ir.BinaryOperator]:
        """Return the parts that a loop reduces, and by what."""
        store = loop.body
        if isinstance(store, ir.Store) and store.mask is None and isinstance(store.value, ir.Binary):
            old, part = store.value.left, store.value.right
            if isinstance(part, ir.Load) and part.mask is None and part.buffer is not store.buffer:
                is_sum = old == ir.Load(store.buffer, store.indices)
                if is_sum and part.indices == (loop.variable, *(index(0) for _ in part.indices[1:])):
                    return part.buffer, store.value.operator
        self.fail(f"'{self.loop}' does more than reduce parts, one of each unit")

    def _halves(
        self, unit: ir.Variable, parts: ir.Buffer, operator: ir.BinaryOperator, barrier: ir.Barrier
    ) -> list[ir.Statement]:
        """Return what a unit does, until the first one of its group has the result of all."""
        zeros, half = [index(0)] * (len(parts.shape) - 1), self.width // 2
        steps: list[ir.Statement] = [barrier]
        while half:
            own, other = ((combine("add", unit, far), *zeros) for far in (0, half))
            store = ir.Store(parts, own, ir.Binary(operator, ir.Load(parts, own), ir.Load(parts, other)))
            within = ir.Binary("lt", ir.Binary("mod", unit, index(self.width)), index(half))
            steps += [ir.If(within, store), barrier]
            half //= 2
        return steps
