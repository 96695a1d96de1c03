"""Things done at the same time, one after another: units of a level between barriers, queues between tokens.

Units and queues are generators that yield where they must wait. Which access comes before which is not left to the
order in which they happen to run: every access has a place in the partial order that barriers and tokens make, and two
that are not ordered, one of them a write, are a race.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from graft.core.tensor_ir.ir import Barrier, Buffer, For, Issue, Pop, Push, Statement
from graft.core.tensor_ir.numerics import Array
from graft.core.tensor_ir.printer import print_statement

Steps: TypeAlias = "Iterator[Barrier | Pop]"
"""The run of a statement; it yields what it waits for."""


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """One iteration of one run of a bound loop, between two barriers."""

    run: object
    loop: For
    number: int
    epoch: int
    met: tuple[int, ...] = ()
    """Since the barrier before: the barriers of groups, by the units of each."""

    def is_before(self, later: Unit) -> bool | None:
        """Whether what this did is done when ``later`` begins; None if both are the same iteration."""
        if self.number == later.number:
            return None
        since = later.met[len(self.met) :]
        return self.epoch != later.epoch or any(self.number // one == later.number // one for one in since)

    def __str__(self) -> str:
        return f"{self.loop.variable.name} = {self.number}"


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """A queue (the function itself if ``queue`` is "") between two tokens, and the times of others that it knows of."""

    run: object
    queue: str
    time: int
    seen: Mapping[str, int]

    def is_before(self, later: Work) -> bool | None:
        """Whether what this did is done when ``later`` begins; None if both are of one queue."""
        return None if self.queue == later.queue else self.time <= later.seen.get(self.queue, -1)

    def after(self, other: Work) -> Work:
        """Return this queue with what another knew."""
        known = {**other.seen, other.queue: other.time}
        merged = {name: max(known.get(name, -1), self.seen.get(name, -1)) for name in {*known, *self.seen}}
        return Work(self.run, self.queue, self.time, merged)

    def next(self) -> Work:
        """Return this queue behind the token that it now pushes."""
        return Work(self.run, self.queue, self.time + 1, self.seen)

    def __str__(self) -> str:
        return f"queue '{self.queue}'" if self.queue else "the function"


Path: TypeAlias = "tuple[Unit | Work, ...]"
"""Where something is done: the units around it, the outermost first."""


def apart(first: Path, second: Path) -> tuple[Unit | Work, Unit | Work] | None:
    """Return the units in which two accesses, in order of execution, are at the same time; None if they are ordered."""
    for one, other in zip(first, second, strict=False):
        if one.run is not other.run:
            return None
        before = one.is_before(other)  # type: ignore[arg-type]  # things of one run are of one class
        if before is not None:
            return None if before else (one, other)
    return None


@dataclass(slots=True)
class Accesses:
    """The last write of every element, and the reads since then."""

    written: dict[tuple[int, ...], tuple[Path, Statement]] = field(default_factory=dict)
    read: dict[tuple[int, ...], dict[Path, Statement]] = field(default_factory=dict)

    def touch(self, name: str, place: tuple[int, ...], path: Path, statement: Statement, writes: bool) -> None:
        """Note an access; raise AssertionError if it is in a race with an earlier one."""
        last = self.written.get(place)
        if last is not None:
            _check(name, place, last, (path, statement), "writes", "writes" if writes else "reads")
        if not writes:
            self.read.setdefault(place, {})[path] = statement
            return
        for earlier in self.read.pop(place, {}).items():
            _check(name, place, earlier, (path, statement), "reads", "writes")
        self.written[place] = (path, statement)


def _check(
    name: str,
    place: tuple[int, ...],
    first: tuple[Path, Statement],
    second: tuple[Path, Statement],
    was: str,
    does: str,
) -> None:
    if first[0] is second[0] or (units := apart(first[0], second[0])) is None:
        return
    element = f"{name}[{', '.join(map(str, place))}]"
    raise AssertionError(
        f"race on '{element}': {units[1]} {does} it in '{text(second[1])}', {units[0]} {was} it in "
        f"'{text(first[1])}', and nothing orders the two"
    )


def text(statement: Statement) -> str:
    """Return the first line of a statement's text."""
    return print_statement(statement).strip().split("\n")[0]


Saved: TypeAlias = "tuple[list[Any], dict[Buffer, Array]]"
"""The registers and the memory of something that waits."""


@dataclass(slots=True)
class Context:
    """What a statement runs in: registers, the memory of buffers, and where in the order of things it is."""

    registers: list[Any] = field(default_factory=list)
    memory: dict[Buffer, Array] = field(default_factory=dict)
    path: Path = ()
    private: dict[int, int] = field(default_factory=dict)
    """By array that a unit allocated, how deep."""
    accesses: dict[int, tuple[Array, Accesses]] = field(default_factory=dict)

    def save(self) -> Saved:
        """Return copies of registers and memory."""
        return list(self.registers), dict(self.memory)

    def restore(self, saved: Saved) -> None:
        """Go on with saved registers and memory."""
        self.registers[:], self.memory = saved

    def own(self, array: Array) -> None:
        """Note that an array was allocated here: only units inside of this one can be in a race about it."""
        shared = self.path and isinstance(self.path[0], Work) and not self.path[0].queue
        self.private[id(array)] = 0 if shared else len(self.path)

    def touch(
        self, buffer: Buffer, array: Array, places: Iterable[tuple[int, ...]], statement: Statement, writes: bool
    ) -> None:
        """Note accesses to elements; raise AssertionError for a race."""
        if self.private.get(id(array), 0) < len(self.path):
            _, accesses = self.accesses.setdefault(id(array), (array, Accesses()))
            for place in places:
                accesses.touch(buffer.name, place, self.path, statement, writes)


@dataclass(slots=True)
class _Running:
    number: int
    steps: Steps
    saved: Saved


def lockstep(
    context: Context, loop: For, home: int, count: int, body: Callable[[], Steps], parent: str
) -> Iterator[Barrier | Pop]:
    """Run the units of a loop, from barrier to barrier, the last one first; yield barriers of a wider scope.

    ``home`` is the register of the loop's variable, ``parent`` the level that the loop stands in.
    """
    run, epoch, base, outer, met = object(), 0, context.path, context.save(), tuple[int, ...]()
    units = [_Running(number, body(), context.save()) for number in reversed(range(count))]
    for unit in units:
        unit.saved[0][home] = unit.number
    while units:
        waits: list[Barrier | Pop | None] = []
        for unit in units:
            context.restore(unit.saved)
            context.path = (*base, Unit(run, loop, unit.number, epoch, met))
            waits.append(next(unit.steps, None))
            unit.saved = context.save()
        context.restore(outer)
        context.path = base
        first = waits[0]
        for unit, wait in zip(units, waits, strict=True):
            if wait is not first:
                raise AssertionError(_divergence(loop, units[0].number, first, unit.number, wait))
        if first is None:
            return
        if isinstance(first, Barrier) and first.units:
            met += (first.units,)
            continue
        if isinstance(first, Pop) or first.scope != parent:
            yield first
            base, outer = context.path, context.save()
        epoch, met = epoch + 1, ()


def _divergence(loop: For, first: int, at: Statement | None, second: int, other: Statement | None) -> str:
    name = loop.variable.name
    places = [f"at '{text(one)}'" if one is not None else "at its end" for one in (at, other)]
    return f"divergent barrier in '{text(loop)}': {name} = {first} is {places[0]}, {name} = {second} {places[1]}"


@dataclass(slots=True)
class _Queue:
    work: Work
    jobs: deque[tuple[Issue, Work, Callable[[], Steps], Saved]]
    steps: Steps | None = None
    wait: Barrier | Pop | None = None


class Queues:
    """The queues of a machine and the tokens between them."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._queues: dict[str, _Queue] = {}
        self._tokens: dict[tuple[str, str], deque[tuple[Work, Push]]] = {}
        self._run = object()

    def begin(self) -> None:
        """Let what follows be ordered behind all before."""
        self._run = object()
        self.context.path = (Work(self._run, "", 0, {}),)

    @property
    def _work(self) -> Work:
        work = self.context.path[0]
        assert isinstance(work, Work), work
        return work

    @_work.setter
    def _work(self, work: Work) -> None:
        self.context.path = (work, *self.context.path[1:])

    def issue(self, issue: Issue, body: Callable[[], Steps]) -> None:
        """Put a body behind what its queue has to do."""
        queue = self._queues.setdefault(issue.queue, _Queue(Work(self._run, issue.queue, 0, {}), deque()))
        queue.jobs.append((issue, self._work, body, self.context.save()))
        self._work = self._work.next()

    def push(self, push: Push) -> None:
        """Put a token into its queue."""
        self._tokens.setdefault((push.source, push.target), deque()).append((self._work, push))
        self._work = self._work.next()

    def pop(self, pop: Pop) -> Steps:
        """Take a token as soon as there is one."""
        tokens = self._tokens.setdefault((pop.source, pop.target), deque())
        while not tokens:
            yield pop
        self._work = self._work.after(tokens.popleft()[0])

    def drain(self) -> None:
        """Let all queues finish, the last that was used first; raise AssertionError for a token missing or left."""
        outer, path = self.context.save(), self.context.path
        while any(self._advance(queue) for queue in reversed(self._queues.values())):
            pass
        self.context.restore(outer)
        waits = [f"'{name}' at '{text(one.wait)}'" for name, one in self._queues.items() if one.wait is not None]
        if waits:
            raise AssertionError(f"queues wait forever for tokens that nobody pushes: {', '.join(waits)}")
        for tokens in self._tokens.values():
            if tokens:
                raise AssertionError(f"{len(tokens)} tokens of '{text(tokens[0][1])}' are left: nothing pops them")
        self._queues.clear()
        self.begin()
        self.context.path += path[1:]

    def _advance(self, queue: _Queue) -> bool:
        """Let a queue work until it waits or is done; return whether it got on."""
        moved = False
        while queue.jobs:
            _, issued, body, saved = queue.jobs[0]
            self.context.restore(saved)
            if queue.steps is None:
                queue.steps, queue.work, moved = body(), queue.work.after(issued), True
            self.context.path = (queue.work,)
            before, queue.wait = queue.work, next(queue.steps, None)
            queue.work = self._work
            if queue.wait is not None:
                queue.jobs[0] = (*queue.jobs[0][:3], self.context.save())
                return moved or queue.work is not before
            queue.jobs.popleft()
            queue.steps = None
        return moved
