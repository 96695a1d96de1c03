"""Automata that read UTF-8 byte by byte, made from regular expressions when a model is compiled.

A nondeterministic automaton by Thompson's construction, its states then taken together as sets (Rabin and Scott):
running it takes one look into a table for each byte, whatever the expression. Which bytes spell a range of characters
is the decomposition of Ken Thompson's UTF-8 automata as in Russ Cox, "Regular Expression Matching in the Wild" (2010).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from graft.plugins.irregular import regular_expressions as regex

MOST_PARTS = 50_000
"""Of the nondeterministic automaton: states."""
MOST_STATES = 2_000
"""Of the automaton that is run, whose table has a number for each state and class of bytes."""
MOST_STEPS = 2_000_000
"""Taken to find those states: some seconds at most."""
DEAD = -1
Beside = Literal["edge", "other", "word"]
"""What lies before or behind a place: the edge of the text, a byte that is no letter of a word, or one that is."""
ACCEPTS: Mapping[Beside, int] = {"word": 1, "other": 2, "edge": 4}
"""Whether what was read matches, by what lies behind it."""


@dataclass(frozen=True, slots=True)
class Automaton:
    """A table to run: ``moves[state * number of classes + classes[byte]]`` is the next state, or `DEAD`.

    It starts in one of three states: at the beginning of a text, behind a byte that is no letter of a word, or behind
    one that is. ``accepts`` says of each state, in bits of `ACCEPTS`, whether what was read matches.
    """

    starts: tuple[int, int, int]
    classes: tuple[int, ...]
    moves: tuple[int, ...]
    accepts: tuple[int, ...]

    def to_json(self) -> dict[str, object]:
        """Return what the kernel reads."""
        return {name: list(getattr(self, name)) for name in ("starts", "classes", "moves", "accepts")}


@cache
def automaton(text: str) -> Automaton:
    """Return the automaton of a regular expression; raise Unsupported for one that has none of bearable size."""
    parts = _Parts()
    begin, end = parts.new(), parts.new()
    parts.add(regex.read(text), begin, end)
    return _Sets(parts, begin, end).automaton()


# ---- Bytes of characters ----------------------------------------------------------------------------------------

_LAST_OF_LENGTH = (0x7F, 0x7FF, 0xFFFF, 0x10FFFF)


def byte_ranges(low: int, high: int) -> Iterator[tuple[regex.Range, ...]]:
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
    """States with their ways: over a range of bytes, over nothing, over nothing at some places."""

    over: list[list[tuple[int, int, int]]] = field(default_factory=list)
    free: list[list[int]] = field(default_factory=list)
    placed: list[list[tuple[regex.PlaceKind, int]]] = field(default_factory=list)

    def new(self) -> int:
        if len(self.over) >= MOST_PARTS:
            raise regex.Unsupported(f"its automaton has over {MOST_PARTS} parts")
        self.over.append([])
        self.free.append([])
        self.placed.append([])
        return len(self.over) - 1

    def add(self, tree: regex.Tree, begin: int, end: int) -> None:
        """Add the ways from one state to another that a tree allows."""
        match tree:
            case regex.Characters():
                for low, high in tree.ranges:
                    for spelled in byte_ranges(low, high):
                        self._spell(spelled, begin, end)
            case regex.Run():
                for part in tree.parts:
                    after = self.new()
                    self.add(part, begin, after)
                    begin = after
                self.free[begin].append(end)
            case regex.Choice():
                for part in tree.parts:
                    self.add(part, begin, end)
            case regex.Repeat():
                self._repeat(tree, begin, end)
            case regex.Place():
                self.placed[begin].append((tree.kind, end))

    def _spell(self, spelled: tuple[regex.Range, ...], begin: int, end: int) -> None:
        for low, high in spelled[:-1]:
            after = self.new()
            self.over[begin].append((low, high, after))
            begin = after
        self.over[begin].append((*spelled[-1], end))

    def _repeat(self, tree: regex.Repeat, begin: int, end: int) -> None:
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


@dataclass(frozen=True, slots=True)
class _Set:
    """States that were reached by reading, and what lies before them."""

    states: frozenset[int]
    before: Beside


class _Sets:
    """Sets of states that can be reached alike, with what lies before them, numbered as they are found."""

    def __init__(self, parts: _Parts, begin: int, end: int) -> None:
        self._parts, self._begin, self._end = parts, begin, end
        self._steps = 0
        bounds = {one for ways in parts.over for low, high, _ in ways for one in (low, high + 1)}
        kinds = {kind for ways in parts.placed for kind, _ in ways}
        self._tells_words = not kinds.isdisjoint({"boundary", "no boundary"})
        if self._tells_words:
            bounds |= {one for low, high in regex.WORD for one in (low, high + 1)}
        self._bounds = sorted(bounds - {0, 256})

    def automaton(self) -> Automaton:
        """Return the table of all sets that can be reached."""
        numbers: dict[_Set, int] = {}
        before: tuple[Beside, ...] = ("edge", "other", "word" if self._tells_words else "other")
        first, other, word = (numbers.setdefault(_Set(frozenset({self._begin}), one), len(numbers)) for one in before)
        waiting, moves, accepts = list(numbers), [], []
        for held in waiting:
            for to in self._next(held):
                if to.states and to not in numbers:
                    if len(waiting) == MOST_STATES:
                        raise regex.Unsupported(f"its automaton has over {MOST_STATES} states")
                    numbers[to] = len(waiting)
                    waiting.append(to)
                moves.append(numbers[to] if to.states else DEAD)
            accepts.append(sum(bit for behind, bit in ACCEPTS.items() if self._end in self._reached(held, behind)))
        classes = tuple(bisect.bisect_right(self._bounds, byte) for byte in range(256))
        return Automaton((first, other, word), classes, tuple(moves), tuple(accepts))

    def _reached(self, held: _Set, behind: Beside) -> frozenset[int]:
        """Return what is reached from a set without reading, by what lies behind the place."""
        open_ways: set[regex.PlaceKind] = {
            "boundary" if (held.before == "word") != (behind == "word") else "no boundary"
        }
        if held.before == "edge":
            open_ways.add("begin")
        if behind == "edge":
            open_ways.add("end")
        found, waiting = set(held.states), list(held.states)
        while waiting:
            one = waiting.pop()
            for to in (*self._parts.free[one], *(to for kind, to in self._parts.placed[one] if kind in open_ways)):
                if to not in found:
                    found.add(to)
                    waiting.append(to)
        self._steps += len(found)
        if self._steps > MOST_STEPS:
            raise regex.Unsupported(f"its automaton takes over {MOST_STEPS} steps to find")
        return frozenset(found)

    def _next(self, held: _Set) -> Iterator[_Set]:
        """Yield, by class of bytes, what is reached by reading one; nothing has no states."""
        words = [
            self._tells_words and any(low <= begin <= high for low, high in regex.WORD) for begin in (0, *self._bounds)
        ]
        after: list[set[int]] = [set() for _ in words]
        for is_word in set(words):
            for one in self._reached(held, "word" if is_word else "other"):
                for low, high, to in self._parts.over[one]:
                    first, last = (bisect.bisect_right(self._bounds, bound) for bound in (low, high))
                    for number in range(first, last + 1):
                        if words[number] is is_word:
                            after[number].add(to)
        for states, is_word in zip(after, words, strict=True):
            yield _Set(frozenset(states), "word" if is_word else "other")
