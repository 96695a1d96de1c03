"""Primitives that say how the iterations of a loop run: vectorize, unroll, jam, parallel, bind."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from graft.core.machine.instructions import DOTS
from graft.core.schedule.primitives.dependence import carried
from graft.core.schedule.primitives.step import Step, around, bounded, constant_extent, find, with_body, with_loop
from graft.core.schedule.primitives.vectorize import jammed, lower_loops
from graft.core.tensor_ir.ir import (
    Allocate,
    Barrier,
    Bitcast,
    Buffer,
    CallExtern,
    Expression,
    For,
    Function,
    If,
    Intrinsic,
    Issue,
    Let,
    LoopKind,
    Variable,
)
from graft.core.tensor_ir.visit import children, free_variables, loads, statement_expressions, walk_statements

MOST_COPIES = 1024
"""Copies of a body, or lanes of a vector, that a loop may become."""


@dataclass(frozen=True, slots=True)
class _Independent(Step):
    """A step for a loop whose iterations do not depend on each other."""

    loop: str

    def check(self, function: Function) -> None:
        """Check that no iteration writes what another reads or writes."""
        loop = find(self, function.body, self.loop)
        conflict = carried(loop.body, loop, bounded(function.body))
        if conflict is not None:
            self.fail(f"one iteration of '{self.loop}' writes {conflict} where another reads or writes it")


@dataclass(frozen=True, slots=True)
class Vectorize(_Independent):
    """All iterations of a loop become the lanes of vectors; conditions become masks.

    Each lane has a place of its own in what is allocated inside.
    """

    form = "vectorize {loop}"

    def change(self, function: Function) -> Function:
        """Return the function with a vector loop."""
        loop = _counted(self, function)
        _check_inside(self, loop, ("serial", "unrolled"), "cannot be part of a vector")
        _check_alike(self, loop)
        return _with_kind(self, function, loop, "vector")


@dataclass(frozen=True, slots=True)
class Unroll(Step):
    """The iterations of a loop become copies of its body."""

    form = "unroll {loop}"
    loop: str

    def change(self, function: Function) -> Function:
        """Return the function with an unrolled loop."""
        return _with_kind(self, function, _counted(self, function), "unrolled")


@dataclass(frozen=True, slots=True)
class Jam(_Independent):
    """The iterations of a loop become copies of its body side by side: loops inside run once for all of them."""

    form = "jam {loop}"

    def change(self, function: Function) -> Function:
        """Return the function with copies of statements in the place of the loop; vectors inside are made."""
        loop = _counted(self, function)
        _check_inside(self, loop, ("serial", "vector", "unrolled"), "cannot have copies side by side")
        copies = jammed(lower_loops(loop.body, function.body), loop.variable, constant_extent(self, loop))
        return with_body(function, with_loop(function.body, loop.variable, lambda _: copies))


@dataclass(frozen=True, slots=True)
class Parallel(_Independent):
    """Threads share the iterations of a loop."""

    form = "parallel {loop}"

    def change(self, function: Function) -> Function:
        """Return the function with a parallel loop."""
        loop = find(self, function.body, self.loop)
        has_units = any(isinstance(one, For) and one.binding for one in around(function.body, loop.variable))
        if has_units and any(isinstance(one, Barrier) for one in walk_statements(loop.body)):
            self.fail(f"in '{self.loop}', which is bound to no level, units wait for each other")
        return _with_kind(self, function, loop, "parallel")


@dataclass(frozen=True, slots=True)
class Bind(_Independent):
    """The iterations of a loop are units of a level of the machine (``block.x``)."""

    form = "bind {loop} {level}"
    level: str

    def change(self, function: Function) -> Function:
        """Return the function with a bound loop."""
        loop = find(self, function.body, self.loop)
        nest = (*around(function.body, loop.variable), *walk_statements(loop.body))
        taken = [one.variable.name for one in nest if isinstance(one, For) and one.binding == self.level]
        if taken:
            self.fail(f"'{taken[0]}', in one nest with it, is bound to '{self.level}' already")
        return _with_kind(self, function, find(self, function.body, self.loop), "parallel", self.level)


def _counted(step: Vectorize | Unroll | Jam, function: Function) -> For:
    loop = find(step, function.body, step.loop)
    count = constant_extent(step, loop)
    if count > MOST_COPIES:
        step.fail(f"'{step.loop}' has {count} iterations, more than {MOST_COPIES}; split it before")
    return loop


def _check_inside(step: Step, loop: For, kinds: tuple[LoopKind, ...], reason: str) -> None:
    for one in walk_statements(loop.body):
        if isinstance(one, Barrier | CallExtern | Issue) or (isinstance(one, For) and one.kind not in kinds):
            what = f"{one.kind} loop" if isinstance(one, For) else type(one).__name__.lower()
            step.fail(f"a {what} inside of '{loop.variable.name}' {reason}")


def _check_alike(step: Step, loop: For) -> None:
    """Check that lanes are of scalars, and share what must be the same: loops inside and the shapes of memory."""
    own, known, switches = {loop.variable}, set[Buffer](), False
    for one in walk_statements(loop.body):
        expressions = statement_expressions(one)
        if _has_vectors(expressions, own):
            step.fail(f"in '{loop.variable.name}' are vectors already")
        switches |= isinstance(one, If) and not free_variables(one.condition).isdisjoint(own)
        differs = not free_variables(*expressions).isdisjoint(own) or any(
            load.buffer in known for load in loads(*expressions)
        )
        if isinstance(one, Let) and differs:
            own.add(one.variable)
        elif isinstance(one, For) and differs:
            step.fail(f"the extent of '{one.variable.name}' is not the same in all lanes")
        elif isinstance(one, Allocate):
            if differs:
                step.fail(f"the shape of '{one.buffer.name}' is not the same in all lanes")
            known.add(one.buffer)
    every = (node for one in walk_statements(loop.body) for node in statement_expressions(one))
    if switches and _has_vectors(every):
        step.fail(f"a condition in '{loop.variable.name}' would switch off vectors that its lanes share")


def _has_vectors(expressions: Iterable[Expression], own: Collection[Variable] | None = None) -> bool:
    """Whether there are vectors other than groups of small numbers: operands of dot products, and words of them.

    Words that do not depend on ``own`` variables are what all lanes share; all are vectors if there are none given.
    """
    waiting, known = [*expressions], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in known:  # nodes are shared: each counts once
            continue
        known.add(id(node))
        if isinstance(node, Intrinsic) and node.name in DOTS:
            waiting += [one.value if isinstance(one, Bitcast) else one for one in node.arguments]
        elif own is not None and isinstance(node, Bitcast) and node.type.lanes == 1 and node.value.type.lanes > 1:
            if not free_variables(node).isdisjoint(own):
                return True
        elif node.type.lanes > 1:
            return True
        else:
            waiting += children(node)
    return False


def _check_around(step: Step, function: Function, loop: For) -> None:
    """Check that a loop is not part of a vector, whose lanes take all iterations of it together."""
    for one in walk_statements(function.body):
        if isinstance(one, For) and one.kind == "vector" and any(loop is inner for inner in walk_statements(one.body)):
            step.fail(
                f"'{loop.variable.name}' is inside of '{one.variable.name}', whose iterations are the lanes of vectors"
            )


def _with_kind(step: Step, function: Function, loop: For, kind: LoopKind, binding: str = "") -> Function:
    if loop.kind != "serial":
        step.fail(f"'{loop.variable.name}' is {loop.kind} already")
    if kind in ("vector", "parallel"):
        _check_around(step, function, loop)
    changed = with_loop(function.body, loop.variable, lambda inner: replace(inner, kind=kind, binding=binding))
    return with_body(function, changed)
