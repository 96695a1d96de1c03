"""The order that tokens force upon a program, and the proof that none of its units waits forever.

The units take their instructions in order, and the n-th token taken from a queue is the n-th that was put in. So what
happens before what does not depend on speed: one abstract execution, greedy, finds every deadlock and the one order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from graft.errors import InternalError
from graft.plugins.accelerator.assembly import instruction_text
from graft.plugins.accelerator.isa import Finish, Queue, Unit, pops, pushes, unit_of
from graft.plugins.accelerator.program import Program

UNITS = len(Unit)
Clock = tuple[int, ...]
"""By unit, how many of its instructions are certainly done."""


class ProofError(InternalError):
    """A program that is not safe, which no compiled program may be; ``first`` and ``second`` are instructions."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order in which the instructions can run, and what is done, by unit, when each of them starts.

    ``places`` gives the place of each instruction among those of its unit.
    """

    sequence: tuple[int, ...]
    clocks: tuple[Clock, ...]
    places: tuple[int, ...]


def named(program: Program, index: int) -> str:
    """Return an instruction's place and text, as errors print it."""
    return f"instruction {index} '{instruction_text(program.instructions[index])}'"


def refuse(text: str, first: int | None = None, second: int | None = None) -> NoReturn:
    """Raise the error of a program that is not safe."""
    raise ProofError(f"internal error: accelerator: {text}", first=first, second=second)


@dataclass(slots=True)
class _State:
    """The units in the middle of the abstract execution."""

    program: Program
    waiting: list[deque[int]] = field(default_factory=lambda: [deque() for _ in Unit])
    done: list[list[int]] = field(default_factory=lambda: [[0] * UNITS for _ in Unit])
    pending: list[tuple[int, Clock] | None] = field(default_factory=lambda: [None] * UNITS)
    tokens: dict[Queue, deque[tuple[int, Clock]]] = field(default_factory=lambda: {queue: deque() for queue in Queue})
    sequence: list[int] = field(default_factory=list)
    clocks: dict[int, Clock] = field(default_factory=dict)
    fetched: int = 0

    def advance(self) -> bool:
        """Take every step that can be taken now; return whether there was one."""
        moved = self._fetch()
        for unit in Unit:
            moved |= self._finish(unit) or self._start(unit)
        return moved

    def _fetch(self) -> bool:
        before, instructions = self.fetched, self.program.instructions
        while self.fetched < len(instructions):
            queue = self.waiting[unit_of(instructions[self.fetched])]
            if len(queue) == self.program.configuration.queue_depth:
                break
            queue.append(self.fetched)
            self.fetched += 1
        return self.fetched > before

    def _start(self, unit: Unit) -> bool:
        if self.pending[unit] is not None or not self.waiting[unit]:
            return False
        index = self.waiting[unit][0]
        wanted = list(pops(self.program.instructions[index]))
        if not all(self.tokens[queue] for queue in wanted):
            return False
        self.waiting[unit].popleft()
        clock = self.done[unit]
        for queue in wanted:
            _, given = self.tokens[queue].popleft()
            clock[:] = map(max, clock, given)
        self.clocks[index] = tuple(clock)
        self.sequence.append(index)
        clock[unit] += 1
        self.pending[unit] = (index, tuple(clock))
        return True

    def _finish(self, unit: Unit) -> bool:
        pending = self.pending[unit]
        if pending is None:
            return False
        queues = list(pushes(self.program.instructions[pending[0]]))
        if any(len(self.tokens[queue]) == self.program.configuration.token_depth for queue in queues):
            return False
        for queue in queues:
            self.tokens[queue].append(pending)
        self.pending[unit] = None
        return True


def order_of(program: Program) -> Order:
    """Return the order of a program; raise ProofError where tokens do not balance or a unit would wait forever."""
    instructions = program.instructions
    ends = [index for index, one in enumerate(instructions) if isinstance(one, Finish)]
    if ends != [len(instructions) - 1]:
        text = f"{len(ends)} instructions finish it" if len(ends) != 1 else f"{named(program, ends[0])} is not the last"
        refuse(f"a program ends with its only 'finish', and here {text}", *ends[:2])
    state = _State(program)
    while state.advance():
        pass
    if len(state.sequence) < len(instructions) or any(state.pending):
        _refuse_deadlock(program, state)
    for queue, left in state.tokens.items():
        if left:
            _refuse_balance(program, queue, left[-1][0], len(left))
    places, counts = [], [0] * UNITS
    for instruction in instructions:
        unit = unit_of(instruction)
        places.append(counts[unit])
        counts[unit] += 1
    order = Order(tuple(state.sequence), tuple(state.clocks[i] for i in range(len(instructions))), tuple(places))
    _check_end(program, order, counts)
    return order


def _check_end(program: Program, order: Order, counts: Sequence[int]) -> None:
    """Everything is done when the program finishes."""
    end = len(program.instructions) - 1
    for index in range(end - 1, -1, -1):
        unit = unit_of(program.instructions[index])
        if order.clocks[end][unit] <= order.places[index]:
            refuse(f"{named(program, end)} does not wait for {named(program, index)}", index, end)


def _refuse_deadlock(program: Program, state: _State) -> NoReturn:
    """Name an instruction that waits forever, and the one that it waits for."""
    started = set(state.sequence)
    for unit in Unit:
        if (stuck := state.pending[unit]) is not None:
            full = [one for one in pushes(program.instructions[stuck[0]]) if len(state.tokens[one]) > 0]
            other = _next(program, full[0], started, pops)
            _refuse_wait(program, stuck[0], f"room in the queue {_text(full[0])}", other, "makes it")
        if state.waiting[unit]:
            index = state.waiting[unit][0]
            missing = next(one for one in pops(program.instructions[index]) if not state.tokens[one])
            other = _next(program, missing, started, pushes)
            _refuse_wait(program, index, f"a token from the queue {_text(missing)}", other, "gives it")
    raise AssertionError(state)


def _refuse_wait(program: Program, index: int, what: str, other: int | None, does: str) -> NoReturn:
    who = f"{named(program, other)} {does}, which never starts" if other is not None else f"no instruction {does}"
    refuse(f"{named(program, index)} waits forever for {what}: {who}", index, other)


def _next(program: Program, queue: Queue, started: set[int], side: object) -> int | None:
    """Return the first instruction that has not started and takes from, or gives to, a queue."""
    touches = pops if side is pops else pushes
    found = (i for i, one in enumerate(program.instructions) if i not in started and queue in set(touches(one)))
    return next(found, None)


def _refuse_balance(program: Program, queue: Queue, giver: int, number: int) -> NoReturn:
    takers = [index for index, one in enumerate(program.instructions) if queue in set(pops(one))]
    last = f"{named(program, takers[-1])} is the last that takes one" if takers else "no instruction takes one"
    refuse(
        f"{number} token{'s' * (number > 1)} more {'are' if number > 1 else 'is'} put into the queue {_text(queue)} "
        f"than taken: {named(program, giver)} gives one, and {last}",
        giver,
        takers[-1] if takers else None,
    )


def _text(queue: Queue) -> str:
    return f"from {queue.value[0].name.lower()} to {queue.value[1].name.lower()}"
