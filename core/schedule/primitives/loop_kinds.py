"""Primitives that say how the iterations of a loop run: vectorize, unroll, parallel, bind."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graft.core.schedule.primitives.dependence import carried
from graft.core.schedule.primitives.step import Step, bounded, constant_extent, find, with_body, with_loop
from graft.core.tensor_ir.ir import Allocate, Barrier, CallExtern, For, Function, Issue, LoopKind
from graft.core.tensor_ir.visit import walk_statements

MOST_COPIES = 1024
"""Copies of a body, or lanes of a vector, that a loop may become."""


@dataclass(frozen=True, slots=True)
class Vectorize(Step):
    """All iterations of a loop become the lanes of vectors; conditions become masks."""

    form = "vectorize {loop}"
    loop: str

    def change(self, function: Function) -> Function:
        """Return the function with a vector loop."""
        loop = find(self, function.body, self.loop)
        _check_count(self, loop)
        for one in walk_statements(loop.body):
            if isinstance(one, Allocate | Barrier | CallExtern | Issue) or (
                isinstance(one, For) and one.kind != "serial"
            ):
                what = f"{one.kind} loop" if isinstance(one, For) else type(one).__name__.lower()
                self.fail(f"a {what} inside of '{self.loop}' cannot be part of a vector")
        return _independent(self, function, loop, "vector")


@dataclass(frozen=True, slots=True)
class Unroll(Step):
    """The iterations of a loop become copies of its body."""

    form = "unroll {loop}"
    loop: str

    def change(self, function: Function) -> Function:
        """Return the function with an unrolled loop."""
        loop = find(self, function.body, self.loop)
        _check_count(self, loop)
        return _with_kind(self, function, loop, "unrolled")


@dataclass(frozen=True, slots=True)
class Parallel(Step):
    """Threads share the iterations of a loop."""

    form = "parallel {loop}"
    loop: str

    def change(self, function: Function) -> Function:
        """Return the function with a parallel loop."""
        return _independent(self, function, find(self, function.body, self.loop), "parallel")


@dataclass(frozen=True, slots=True)
class Bind(Step):
    """The iterations of a loop are units of a level of the machine (``block.x``)."""

    form = "bind {loop} {level}"
    loop: str
    level: str

    def change(self, function: Function) -> Function:
        """Return the function with a bound loop."""
        return _independent(self, function, find(self, function.body, self.loop), "parallel", self.level)


def _check_count(step: Step, loop: For) -> None:
    count = constant_extent(step, loop)
    if count > MOST_COPIES:
        step.fail(f"'{loop.variable.name}' has {count} iterations, more than {MOST_COPIES}; split it before")


def _independent(step: Step, function: Function, loop: For, kind: LoopKind, binding: str = "") -> Function:
    conflict = carried(loop.body, loop, bounded(function.body))
    if conflict is not None:
        step.fail(f"one iteration of '{loop.variable.name}' writes {conflict} where another reads or writes it")
    return _with_kind(step, function, loop, kind, binding)


def _with_kind(step: Step, function: Function, loop: For, kind: LoopKind, binding: str = "") -> Function:
    if loop.kind != "serial":
        step.fail(f"'{loop.variable.name}' is {loop.kind} already")
    changed = with_loop(function.body, loop.variable, lambda inner: replace(inner, kind=kind, binding=binding))
    return with_body(function, changed)
