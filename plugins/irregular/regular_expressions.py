r"""Regular expressions in the syntax of RE2, as a tree.

ONNX asks for this syntax in RegexFullMatch, and ONNX Runtime in its Tokenizer. What a finite automaton cannot tell, or
what depends on lines (``(?m)``), is refused.

Source of the syntax: https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

Range: TypeAlias = tuple[int, int]
MOST_REPEATS = 1000
"""RE2's own bound for ``{n,m}``."""
DEEPEST = 100
"""Groups within groups."""


class Unsupported(ValueError):
    """An expression that is damaged, or that no automaton of this package can tell."""


@dataclass(frozen=True, slots=True)
class Characters:
    """One character of ranges of code points, both ends included."""

    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """Parts, one behind the other."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of its parts."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part ``least`` to ``most`` times; any number of times where ``most`` is None."""

    part: Tree
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Place:
    """No character: the beginning of the text, its end, a place between a word and what is none, any other place."""

    kind: PlaceKind


PlaceKind: TypeAlias = Literal["begin", "end", "boundary", "no boundary"]
Tree: TypeAlias = "Characters | Run | Choice | Repeat | Place"
_PLACES: Mapping[str, PlaceKind] = {
    "^": "begin",
    "$": "end",
    "A": "begin",
    "z": "end",
    "b": "boundary",
    "B": "no boundary",
}

# ---- Sets of characters -----------------------------------------------------------------------------------------

DIGITS: tuple[Range, ...] = ((48, 57),)
LOWER: tuple[Range, ...] = ((97, 122),)
UPPER: tuple[Range, ...] = ((65, 90),)
LETTERS = UPPER + LOWER
_SPACES: tuple[Range, ...] = ((9, 10), (12, 13), (32, 32))
_NAMED: Mapping[str, tuple[Range, ...]] = {
    "alnum": DIGITS + LETTERS,
    "alpha": LETTERS,
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": DIGITS,
    "graph": ((33, 126),),
    "lower": LOWER,
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": UPPER,
    "word": (*DIGITS, *LETTERS, (95, 95)),
    "xdigit": (*DIGITS, (65, 70), (97, 102)),
}
WORD = _NAMED["word"]
"""The letters of words, beside whose runs there are boundaries."""
_CLASSES = {"d": DIGITS, "s": _SPACES, "w": WORD}
_CONTROLS = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_SURROGATES = (0xD800, 0xDFFF)


def united(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return ranges in order that do not touch one another."""
    found: list[Range] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return tuple(found)


def others(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return the characters that are in no range."""
    found: list[Range] = []
    begin = 0
    for low, high in united([*ranges, _SURROGATES]):
        if low > begin:
            found.append((begin, low - 1))
        begin = high + 1
    return (*found, (begin, sys.maxunicode)) if begin <= sys.maxunicode else tuple(found)


@cache
def _category(name: str) -> tuple[Range, ...]:
    """Return the characters of one of Unicode's categories, such as ``L`` or ``Nd``."""
    held = (code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)).startswith(name))
    return united((code, code) for code in held if not _SURROGATES[0] <= code <= _SURROGATES[1])


def _in_any_case(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    """Return ranges with the other cases of their characters, where these are single characters."""
    if ranges and sum(high - low for low, high in ranges) > 0x8000:
        return ranges  # nearly everything, other cases among it
    codes = [chr(code) for low, high in ranges for code in range(low, high + 1)]
    other_case = [text for one in codes for text in (one.lower(), one.upper()) if len(text) == 1]
    return united([*ranges, *((ord(one), ord(one)) for one in other_case)])


# ---- Reading ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Flags:
    any_case: bool = False
    any_character: bool = False


class _Reader:
    """Reads an expression from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0

    def whole(self) -> Tree:
        tree = self._choice(_Flags())
        if self._at < len(self._text):
            raise Unsupported(f"')' at {self._at} closes nothing")
        return tree

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        there = self._peek(text)
        self._at += len(text) * there
        return there

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise Unsupported("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, end: str) -> str:
        place = self._text.find(end, self._at)
        if place < 0:
            raise Unsupported(f"'{end}' is missing")
        found = self._text[self._at : place]
        self._at = place + len(end)
        return found

    def _choice(self, flags: _Flags) -> Tree:
        parts: list[Tree] = []
        run: list[Tree] = []
        while self._at < len(self._text) and not self._peek(")"):
            if self._take("|"):
                parts.append(Run(tuple(run)))
                run = []
            elif self._peek("(?") and (changed := self._bare_flags(flags)) is not None:
                flags = changed
            else:
                run.append(self._repeated(flags))
        parts.append(Run(tuple(run)))
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _bare_flags(self, flags: _Flags) -> _Flags | None:
        """Read ``(?is)``, which holds to the end of the group; None where a group begins."""
        end = self._text.find(")", self._at)
        given = self._text[self._at + 2 : end]
        if end < 0 or not given or not set(given) <= set("imsU-"):
            return None
        self._at = end + 1
        return _changed(flags, given)

    def _repeated(self, flags: _Flags) -> Tree:
        part = self._atom(flags)
        if (times := self._times()) is None:
            return part
        self._take("?")  # whether few or many are tried first makes no difference to the longest match
        place = self._at
        if self._times() is not None:
            raise Unsupported(f"what repeats is repeated at {place}")
        return Repeat(part, *times)

    def _times(self) -> tuple[int, int | None] | None:
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        return (0, 1) if self._take("?") else self._bounds()

    def _bounds(self) -> tuple[int, int | None] | None:
        """Read ``{n}``, ``{n,}`` or ``{n,m}``; anything else behind a brace is text."""
        end = self._text.find("}", self._at)
        if not self._peek("{") or end < 0:
            return None
        low, comma, high = self._text[self._at + 1 : end].partition(",")
        if not (low.isascii() and low.isdigit()) or (high and not (high.isascii() and high.isdigit())):
            return None
        least, most = int(low), int(high) if high else None if comma else int(low)
        if max(least, most or 0) > MOST_REPEATS or (most is not None and most < least):
            raise Unsupported(f"'{self._text[self._at : end + 1]}' is no number of times up to {MOST_REPEATS}")
        self._at = end + 1
        return least, most

    def _atom(self, flags: _Flags) -> Tree:
        character = self._next()
        match character:
            case "(":
                return self._group(flags)
            case "[":
                return self._characters(self._set(), flags)
            case ".":
                return Characters(others(() if flags.any_character else ((10, 10),)))
            case "^" | "$":
                return Place(_PLACES[character])
            case "*" | "+" | "?":
                raise Unsupported(f"'{character}' repeats nothing")
            case "\\":
                return self._escaped(flags)
            case _:
                return self._characters(((ord(character), ord(character)),), flags)

    def _characters(self, ranges: tuple[Range, ...], flags: _Flags) -> Characters:
        return Characters(_in_any_case(ranges) if flags.any_case else ranges)

    def _group(self, flags: _Flags) -> Tree:
        if self._take("?P<") or self._take("?<"):
            if self._peek("=") or self._peek("!"):
                raise Unsupported("it looks behind")
            self._until(">")
        elif self._take("?"):
            given = ""
            while not self._peek(":"):
                given += self._next()
                if given[-1] not in "imsU-":
                    raise Unsupported(f"'(?{given}' is no group")
            self._next()
            flags = _changed(flags, given)
        self._depth += 1
        if self._depth > DEEPEST:
            raise Unsupported(f"its groups are over {DEEPEST} deep")
        tree = self._choice(flags)
        self._depth -= 1
        if not self._take(")"):
            raise Unsupported("')' is missing")
        return tree

    def _escaped(self, flags: _Flags) -> Tree:
        character = self._next()
        if character in _PLACES:
            return Place(_PLACES[character])
        if character == "C":
            raise Unsupported("'\\C' is a part of a character")
        if character == "Q":
            quoted, _, _ = self._text[self._at :].partition("\\E")
            self._at = min(self._at + len(quoted) + 2, len(self._text))
            return Run(tuple(self._characters(((ord(one), ord(one)),), flags) for one in quoted))
        return self._characters(self._meant(character), flags)

    def _meant(self, character: str) -> tuple[Range, ...]:
        """Return the characters that are meant by a backslash and what is behind it."""
        if character.lower() in _CLASSES:
            found = _CLASSES[character.lower()]
            return found if character.islower() else others(found)
        if character in "pP":
            name = self._until("}") if self._take("{") else self._next()
            negated, name = name.startswith("^"), name.removeprefix("^")
            if not (found := _category(name)):
                raise Unsupported(f"'{name}' is no category of characters")
            return found if negated == (character == "P") else others(found)
        code = self._code(character)
        return ((code, code),)

    def _code(self, character: str) -> int:
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "x":
            digits = self._until("}") if self._take("{") else self._next() + self._next()
            return _number(digits, 16)
        if character in "01234567":
            digits = character
            while len(digits) < 3 and self._at < len(self._text) and self._text[self._at] in "01234567":
                digits += self._next()
            if character != "0" and len(digits) == 1:
                raise Unsupported(f"'\\{digits}' refers to a group")
            return _number(digits, 8)
        if character.isalnum():
            raise Unsupported(f"'\\{character}' is no escape")
        return ord(character)

    def _set(self) -> tuple[Range, ...]:
        """Read what is between brackets."""
        negated = self._take("^")
        ranges: list[Range] = []
        first = True
        while first or not self._peek("]"):
            first = False
            if self._take("[:"):
                opposite, name = self._take("^"), self._until(":]")
                if name not in _NAMED:
                    raise Unsupported(f"'[:{name}:]' is no class of characters")
                ranges += others(_NAMED[name]) if opposite else _NAMED[name]
                continue
            ranges += self._item()
        self._next()
        return others(ranges) if negated else united(ranges)

    def _item(self) -> tuple[Range, ...]:
        """Read a character, a class or a range between brackets."""
        low = self._one()
        if not self._peek("-") or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return low
        self._next()
        high = self._one()
        if len(low) > 1 or len(high) > 1 or low[0][0] != low[0][1] or high[0][0] < low[0][0]:
            raise Unsupported("a range of characters has no order")
        return ((low[0][0], high[0][1]),)

    def _one(self) -> tuple[Range, ...]:
        character = self._next()
        return self._meant(self._next()) if character == "\\" else ((ord(character), ord(character)),)


def _number(digits: str, base: int) -> int:
    try:
        code = int(digits, base)
    except ValueError:
        code = -1
    if not 0 <= code <= sys.maxunicode or _SURROGATES[0] <= code <= _SURROGATES[1]:
        raise Unsupported(f"'{digits}' is no character")
    return code


def _changed(flags: _Flags, given: str) -> _Flags:
    on, _, off = given.partition("-")
    if "m" in on:
        raise Unsupported("its '^' and '$' are those of lines")
    return _Flags(
        (flags.any_case or "i" in on) and "i" not in off, (flags.any_character or "s" in on) and "s" not in off
    )


def read(text: str) -> Tree:
    """Return the tree of an expression; raise Unsupported, which says why, for what is none or cannot be told."""
    return _Reader(text).whole()
