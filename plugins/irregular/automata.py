"""Automata that read UTF-8 byte by byte, made from regular expressions when a model is compiled.

A nondeterministic automaton by Thompson's construction, its states then taken together as sets (Rabin and Scott):
running it takes one look into a table for each byte, whatever the expression. Which bytes spell a range of characters
is the decomposition of Ken Thompson's UTF-8 automata as in Russ Cox, "Regular Expression Matching in the Wild" (2010).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from graft.plugins.irregular.regular_expressions import (
    Characters,
    Choice,
    Edge,
    Range,
    Repeat,
    Run,
    Tree,
    Unsupported,
    read,
)

MOST_PARTS = 50_000
"""Of the nondeterministic automaton: states."""
MOST_STATES = 2_000
"""Of the automaton that is run, whose table has a number for each state and class of bytes."""
DEAD, INSIDE = -1, 1
ACCEPTS, ACCEPTS_AT_END = 1, 2


@dataclass(frozen=True, slots=True)
class Automaton:
    """A table to run: ``moves[state * number of classes + classes[byte]]`` is the next state, or `DEAD`.

    It starts in state 0 at the beginning of a text and in state `INSIDE` elsewhere. ``accepts`` says of each state
    whether what was read matches (`ACCEPTS`), and whether it does if the text ends here (`ACCEPTS_AT_END`).
    """

    classes: tuple[int, ...]
    moves: tuple[int, ...]
    accepts: tuple[int, ...]

    def to_json(self) -> dict[str, object]:
        """Return what the kernel reads."""
        return {"classes": list(self.classes), "moves": list(self.moves), "accepts": list(self.accepts)}


@cache
def automaton(text: str) -> Automaton:
    """Return the automaton of a regular expression; raise Unsupported for one that has none of bearable size."""
    parts = _Parts()
    begin, end = parts.new(), parts.new()
    parts.add(read(text), begin, end)
    return _Sets(parts, begin, end).automaton()


# ---- Bytes of characters ----------------------------------------------------------------------------------------

_LAST_OF_LENGTH = (0x7F, 0x7FF, 0xFFFF, 0x10FFFF)


def byte_ranges(low: int, high: int) -> Iterator[tuple[Range, ...]]:
    """Yield sequences of ranges of bytes that together spell the characters from ``low`` to ``high``."""
    for last in _LAST_OF_LENGTH:
        if low <= last < high:
            yield from byte_ranges(low, last)
            low = last + 1
    if high < 0x80:
        yield ((low, high),)
        return
    for shift in (6, 12, 18):
        mask = (1 << shift) - 1
        if low & ~mask == high & ~mask:
            break
        if low & mask:
            yield from byte_ranges(low, low | mask)
            yield from byte_ranges((low | mask) + 1, high)
            return
        if high & mask != mask:
            yield from byte_ranges(low, (high & ~mask) - 1)
            yield from byte_ranges(high & ~mask, high)
            return
    yield tuple(zip(chr(low).encode(), chr(high).encode(), strict=True))


# ---- The nondeterministic automaton -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Parts:
    """States with their ways: over a range of bytes, over nothing, over an edge of the text."""

    over: list[list[tuple[int, int, int]]] = field(default_factory=list)
    free: list[list[int]] = field(default_factory=list)
    edges: list[list[tuple[bool, int]]] = field(default_factory=list)

    def new(self) -> int:
        if len(self.over) >= MOST_PARTS:
            raise Unsupported(f"its automaton has over {MOST_PARTS} parts")
        self.over.append([])
        self.free.append([])
        self.edges.append([])
        return len(self.over) - 1

    def add(self, tree: Tree, begin: int, end: int) -> None:
        """Add the ways from one state to another that a tree allows."""
        match tree:
            case Characters():
                for low, high in tree.ranges:
                    for spelled in byte_ranges(low, high):
                        self._spell(spelled, begin, end)
            case Run():
                for part in tree.parts:
                    after = self.new()
                    self.add(part, begin, after)
                    begin = after
                self.free[begin].append(end)
            case Choice():
                for part in tree.parts:
                    self.add(part, begin, end)
            case Repeat():
                self._repeat(tree, begin, end)
            case Edge():
                self.edges[begin].append((tree.end, end))

    def _spell(self, spelled: tuple[Range, ...], begin: int, end: int) -> None:
        for low, high in spelled[:-1]:
            after = self.new()
            self.over[begin].append((low, high, after))
            begin = after
        self.over[begin].append((*spelled[-1], end))

    def _repeat(self, tree: Repeat, begin: int, end: int) -> None:
        for _ in range(tree.least):
            after = self.new()
            self.add(tree.part, begin, after)
            begin = after
        if tree.most is None:
            around = self.new()
            self.free[begin].append(around)
            self.free[around].append(end)
            back = self.new()
            self.add(tree.part, around, back)
            self.free[back].append(around)
            return
        for _ in range(tree.most - tree.least):
            self.free[begin].append(end)
            after = self.new()
            self.add(tree.part, begin, after)
            begin = after
        self.free[begin].append(end)


# ---- The automaton of its sets ----------------------------------------------------------------------------------


class _Sets:
    """Sets of states that can be reached alike, numbered as they are found."""

    def __init__(self, parts: _Parts, begin: int, end: int) -> None:
        self._parts, self._begin, self._end = parts, begin, end
        bounds = {one for ways in parts.over for low, high, _ in ways for one in (low, high + 1)}
        self._bounds = sorted(bounds - {0, 256})

    def automaton(self) -> Automaton:
        """Return the table of all sets that can be reached."""
        first, inside = self._closure({self._begin}, begins=True), self._closure({self._begin})
        numbers, waiting = {inside: INSIDE}, [first, inside]
        moves, accepts = [], []
        for number, held in enumerate(waiting):
            for to in self._next(held):
                if to and to not in numbers:
                    if len(waiting) == MOST_STATES:
                        raise Unsupported(f"its automaton has over {MOST_STATES} states")
                    numbers[to] = len(waiting)
                    waiting.append(to)
                moves.append(numbers[to] if to else DEAD)
            at_end = self._closure(held, begins=number == 0, ends=True)
            accepts.append(ACCEPTS * (self._end in held) | ACCEPTS_AT_END * (self._end in at_end))
        classes = tuple(bisect.bisect_right(self._bounds, byte) for byte in range(256))
        return Automaton(classes, tuple(moves), tuple(accepts))

    def _closure(
        self, states: set[int] | frozenset[int], *, begins: bool = False, ends: bool = False
    ) -> frozenset[int]:
        """Return what is reached from states without reading."""
        found, waiting = set(states), list(states)
        while waiting:
            one = waiting.pop()
            ways = [to for end, to in self._parts.edges[one] if (ends if end else begins)]
            for to in (*self._parts.free[one], *ways):
                if to not in found:
                    found.add(to)
                    waiting.append(to)
        return frozenset(found)

    def _next(self, held: frozenset[int]) -> Iterator[frozenset[int]]:
        """Yield, by class of bytes, what is reached by reading one; nothing is the empty set."""
        reached: list[set[int]] = [set() for _ in range(len(self._bounds) + 1)]
        for one in held:
            for low, high, to in self._parts.over[one]:
                for number in range(
                    bisect.bisect_right(self._bounds, low), bisect.bisect_right(self._bounds, high) + 1
                ):
                    reached[number].add(to)
        known: dict[frozenset[int], frozenset[int]] = {}
        for after in map(frozenset, reached):
            if after not in known:
                known[after] = self._closure(after)
            yield known[after]
