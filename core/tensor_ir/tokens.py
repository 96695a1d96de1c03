"""The tokens of tensor IR's textual form, and a reader that steps over them and says where something else stands."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeVar

from graft.errors import GraftError

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<name>custom\[[A-Za-z_0-9]+\][0-9]+(?:x[0-9]+)?|[A-Za-z_][A-Za-z0-9_.]*|`[^`]*`)
    |(?P<number>-?(?:inf|[0-9]+(?:\.[0-9]*)?(?:e[-+]?[0-9]+)?))
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<symbol>->|<<|>>|<=|>=|==|!=|[-+*/%&|^<>=()\[\]{},;:])
    )""",
    re.VERBOSE,
)
_Item = TypeVar("_Item")


class TokenReader:
    """Reads a text token by token; raises GraftError with line and column where it cannot be read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        self.position = 0
        place = 0
        stripped = text.rstrip()
        while place < len(stripped):
            match = _TOKEN.match(stripped, place)
            if match is None:
                raise self.error("unexpected character", place)
            kind = match.lastgroup or ""
            self.tokens.append((kind, match[kind], match.start(kind)))
            place = match.end()

    def error(self, what: str, place: int | None = None) -> GraftError:
        """Return the error of the current token, or of a place in the text."""
        if place is None:
            place = self.tokens[self.position][2] if self.position < len(self.tokens) else len(self.text)
        line = self.text.count("\n", 0, place) + 1
        column = place - (self.text.rfind("\n", 0, place) + 1) + 1
        found = repr(self.text[place : place + 20].split("\n")[0]) if place < len(self.text) else "the end of the text"
        return GraftError(f"tensor IR, line {line}, column {column}: {what}, found {found}", line=line, column=column)

    def peek(self, offset: int = 0) -> str:
        """Return the text of a token ahead, "" at the end."""
        place = self.position + offset
        return self.tokens[place][1] if place < len(self.tokens) else ""

    def accept(self, text: str) -> bool:
        """Step over a token if it is ``text``."""
        if self.peek() != text:
            return False
        self.position += 1
        return True

    def expect(self, text: str) -> None:
        """Step over the token ``text``, which must be next."""
        if not self.accept(text):
            raise self.error(f"expected '{text}'")

    def take(self, kind: str) -> str:
        """Step over a token of a kind and return its text."""
        if self.position >= len(self.tokens) or self.tokens[self.position][0] != kind:
            raise self.error(f"expected a {kind}")
        self.position += 1
        return self.tokens[self.position - 1][1]

    def end(self) -> None:
        """Check that everything was read."""
        if self.position < len(self.tokens):
            raise self.error("expected the end of the text")

    def name(self) -> str:
        """Read a name, plain or in backquotes."""
        return plain(self.take("name"))

    def integer(self) -> int:
        """Read an integer."""
        text = self.take("number")
        if not re.fullmatch(r"-?[0-9]+", text):
            raise self.error("expected an integer")
        return int(text)

    def string(self) -> str:
        """Read a string."""
        return str(json.loads(self.take("string")))

    def strings(self) -> tuple[str, ...]:
        """Read strings with commas between."""
        return tuple(self.many(self.string))

    def many(self, item: Callable[[], _Item], closing: str = "") -> list[_Item]:
        """Read items with commas between, up to a closing token if one is given."""
        items: list[_Item] = []
        if closing and self.peek() == closing:
            self.position += 1
            return items
        items.append(item())
        while self.accept(","):
            items.append(item())
        if closing:
            self.expect(closing)
        return items


def plain(text: str) -> str:
    """Return a name without its backquotes."""
    return str(json.loads(f'"{text[1:-1]}"')) if text.startswith("`") else text
