"""The primitive that puts an instruction in the place of the loops that it means: tensorize."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from graft.core.machine.instructions import DOTS
from graft.core.schedule.primitives.dependence import reads_written
from graft.core.schedule.primitives.step import (
    Step,
    all_reach,
    around,
    bounded,
    combine,
    constant_extent,
    find,
    with_body,
    with_loop,
)
from graft.core.schedule.primitives.units import PRIVATE
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.visit import (
    children,
    free_variables,
    loads,
    map_statement,
    structural_key,
    substitute,
    substitution,
)


def dot_meaning(name: str) -> ir.Function:
    """Return what a dot product of the tensor IR means: a loop over the elements of a group."""
    total, left, right, width = DOTS[name]
    head = f"a: {left}[{width}], b: {right}[{width}]) -> (c: {total}[1]"
    return parse_function(
        f"function {name}({head}) {{ serial k < {width} {{ c[0] = c[0] + {DOTS[name].term('k')} }} }}"
    )


MEANINGS: Mapping[str, ir.Function] = {name: dot_meaning(name) for name in DOTS}
"""What instructions mean: loops over their operands, of which the last is read and written."""


@dataclass(frozen=True, slots=True)
class Tensorize(Step):
    """Puts an instruction in the place of a loop, and those in it, that do what the instruction means.

    A dot product of the tensor IR becomes its intrinsic. Any other instruction of ``meanings`` becomes a call with the
    addresses of its operands, which must lie in one piece: their last dimensions are those of the instruction's, but
    for extents that are a name there. An instruction that groups of units run together means a loop over the units of a
    group, ``units`` names the loop over all: each passes its own part of registers, and all the same other operands.
    """

    form = "tensorize {loop} {instruction} by {units}"
    loop: str
    instruction: str
    meanings: Mapping[str, ir.Function] | None = None
    units: tuple[str, ...] = ()

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with the instruction."""
        loop, conditions = _without_conditions(find(self, function.body, self.loop))
        for one in around(function.body, loop.variable)[:-1]:
            if isinstance(one, ir.For) and one.kind == "vector":
                self.fail(f"'{one.variable.name}' is a vector, whose lanes have no instructions of their own")
        known = {**MEANINGS, **(self.meanings or {})}
        if self.instruction not in known:
            self.fail(f"there is no instruction '{self.instruction}'; there are {', '.join(known)}")
        meaning, matcher = known[self.instruction], _Matcher()
        meant, given, own = (
            self._of_group(function, meaning.body, loop, matcher) if self.units else (meaning.body, loop, {})
        )
        reason = matcher.statement(meant, given)
        if reason is not None:
            self.fail(f"'{self.loop}' is not what '{self.instruction}' means: {reason}")
        operands = [_own_part(matcher.operands[buffer], own, matcher.simplifier) for buffer in meaning.parameters]
        *inputs, total = operands
        if any(load.buffer is total.buffer for load in loads(*inputs, *total.indices)):
            self.fail(f"'{total.buffer.name}' is what is computed, and an operand or the place of one, too")
        new = self._call(meaning, operands)
        for condition in reversed(conditions):
            new = ir.If(condition, new)
        return with_body(function, with_loop(function.body, loop.variable, lambda _: new))

    def _of_group(
        self, function: ir.Function, meant: ir.Statement, loop: ir.For, matcher: _Matcher
    ) -> tuple[ir.Statement, ir.Statement, dict[ir.Variable, ir.Expression]]:
        """Return what a unit of a group does by the instruction and by the loop, and that unit and its group."""
        unit = find(self, function.body, self.units[0])
        assert isinstance(meant, ir.For), f"{self.instruction} has no loop over units"
        size, count = constant_extent(self, meant), constant_extent(self, unit)
        if unit.kind != "parallel" or count % size or not all_reach(unit, loop, [unit]):
            self.fail(f"groups of {size} iterations of '{self.units[0]}' do not all come to '{self.loop}' together")
        group, one = ir.Variable("group"), ir.Variable("one")
        matcher.simplifier = (
            bounded(function.body).with_range(group, (0, count // size - 1)).with_range(one, (0, size - 1))
        )
        matcher.variables[one], matcher.is_of_group = meant.variable, True
        apart = substitution({unit.variable: combine("add", combine("mul", group, size), one)})
        number = combine("div", unit.variable, size)
        own = {one: combine("sub", unit.variable, combine("mul", group, size)), group: number}
        return meant.body, map_statement(loop, apart), own

    def _call(self, meaning: ir.Function, operands: list[ir.Load]) -> ir.Statement:
        *inputs, total = operands
        if self.instruction not in DOTS:
            return ir.CallExtern(self.instruction, (total, *inputs))
        width = DOTS[self.instruction].width
        groups = [ir.Load(one.buffer, (*one.indices[:-1], ir.Ramp(one.indices[-1], 1, width))) for one in inputs]
        return ir.Store(total.buffer, total.indices, ir.Intrinsic(self.instruction, (total, *groups), total.type))


def _own_part(operand: ir.Load, own: Mapping[ir.Variable, ir.Expression], simplifier: Simplifier) -> ir.Load:
    """Return an operand of a group as one unit passes it: of registers it is the unit's own part."""
    if not own:
        return operand
    one, group = own
    first, *rest = operand.indices
    if operand.buffer.memory in PRIVATE:
        first = simplifier(combine("add", first, own[one]))
    places = (substitute(index, {group: own[group]}) for index in (first, *rest))
    return ir.Load(operand.buffer, tuple(map(simplifier, places)))


def _without_conditions(loop: ir.For) -> tuple[ir.For, list[ir.Expression]]:
    """Return a loop without the conditions in it that are the same in all iterations, and these."""
    chain, conditions = list[ir.For](), list[ir.Expression]()
    inner: ir.Statement = loop
    while True:
        match inner:
            case ir.For(body=body):
                chain.append(inner)
                inner = body
            case ir.If(condition, body, None) if _stands_still(condition, chain):
                conditions.append(condition)
                inner = body
            case _:
                break
    for one in reversed(chain):
        inner = replace(one, body=inner)
    assert isinstance(inner, ir.For), inner
    return inner, conditions


def _stands_still(condition: ir.Expression, chain: list[ir.For]) -> bool:
    """Whether a condition in loops asks for nothing that changes in them."""
    is_fixed = {loop.variable for loop in chain}.isdisjoint(free_variables(condition))
    return is_fixed and not reads_written(chain[0], condition)


def _without_operands(expression: ir.Expression) -> Hashable:
    return structural_key(expression, lambda _: None)


class _Matcher:
    """Compares what an instruction means with loops; each method returns the first difference, if any."""

    def __init__(self) -> None:
        self.variables: dict[ir.Variable, ir.Variable] = {}
        self.operands: dict[ir.Buffer, ir.Load] = {}
        self.simplifier = Simplifier()
        self.is_of_group = False

    def statement(self, meant: ir.Statement, given: ir.Statement) -> str | None:
        """Compare statements."""
        match meant, given:
            case ir.For(), ir.For():
                if meant.extent != given.extent:
                    return f"'{given.variable.name}' has another extent"
                if given.kind != "serial":
                    return f"'{given.variable.name}' is {given.kind}"
                self.variables[given.variable] = meant.variable
                return self.statement(meant.body, given.body)
            case ir.Store(), ir.Store():
                if given.mask is not None:
                    return "the store has a mask"
                return self.access(
                    ir.Load(meant.buffer, meant.indices), ir.Load(given.buffer, given.indices)
                ) or self.expression(meant.value, given.value)
        return f"a {type(given).__name__.lower()} stands where it has a {type(meant).__name__.lower()}"

    def expression(self, meant: ir.Expression, given: ir.Expression) -> str | None:
        """Compare expressions."""
        if isinstance(meant, ir.Load) and isinstance(given, ir.Load):
            return self.access(meant, given)
        if _without_operands(meant) != _without_operands(given):
            return "the values differ"
        pairs = list(zip(children(meant), children(given), strict=True))
        straight = self._both(*pairs)
        if isinstance(meant, ir.Binary) and meant.operator in ("add", "mul"):
            (left, first), (right, second) = pairs
            return None if self._both((left, second), (right, first)) is None else straight
        return straight

    def _both(self, *pairs: tuple[ir.Expression, ir.Expression]) -> str | None:
        known = dict(self.operands)
        for meant, given in pairs:
            reason = self.expression(meant, given)
            if reason is not None:
                self.operands = known
                return reason
        return None

    def access(self, meant: ir.Load, given: ir.Load) -> str | None:
        """Compare two accesses: the given one goes through the last dimensions as the meant one through all."""
        if meant.buffer.dtype != given.buffer.dtype:
            return f"'{given.buffer.name}' is {given.buffer.dtype}, not {meant.buffer.dtype}"
        if given.mask is not None:
            return f"'{given.buffer.name}' is read with a mask"
        own = set(self.variables)
        by_meant = substitution({other: one for one, other in self.variables.items()})
        moving = sum(1 for index in meant.indices if free_variables(index))
        has_parts = (
            self.is_of_group and given.buffer.memory in PRIVATE
        )  # of units, which the first dimension tells apart
        base = list(given.indices)
        for back in range(1, len(given.indices) + 1):
            place, is_part = self.simplifier(given.indices[-back]), has_parts and back == len(given.indices)
            wanted = meant.indices[0] if is_part else meant.indices[-back] if back <= moving - has_parts else None
            used = [one for one in free_variables(place) if one in own]
            if wanted is None:
                if used:
                    return f"'{used[0].name}' moves through '{given.buffer.name}' in another dimension"
                continue
            rest = self.simplifier(combine("sub", place, by_meant(wanted)))
            if not own.isdisjoint(free_variables(rest)):
                if {self.variables[one] for one in used} != free_variables(wanted):
                    return f"the last dimension of '{given.buffer.name}' is gone through otherwise"
                return f"'{given.buffer.name}' is not gone through in steps of one"
            base[-back] = rest
            if back < moving - has_parts:
                extent = meant.buffer.shape[-back]
                if not isinstance(extent, ir.Variable) and given.buffer.shape[-back] != extent:
                    return f"'{given.buffer.name}' does not lie in one piece"
        operand = ir.Load(given.buffer, tuple(base))
        if given.buffer.strides is not None:
            return f"'{given.buffer.name}' has strides"
        known = self.operands.setdefault(meant.buffer, operand)
        return None if known == operand else f"'{given.buffer.name}' is used at two places"
