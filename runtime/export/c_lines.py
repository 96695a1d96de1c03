"""Lines of C that are at most `WIDTH` wide."""

from __future__ import annotations

import re
from collections.abc import Iterator

from graft.runtime.c_operators import LEVELS

WIDTH = 120
_TOKEN = re.compile(
    r"""\s*(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|0[xX][\da-fA-F.]+(?:[pP][-+]?\d+)?\w*|[\w.]+"""
    r"""|->|\+\+|--|<<=|>>=|<<|>>|[<>=!]=|&&|\|\||[-+*/%&|^]=|\S)|\s+$"""
)
_BREAKS = frozenset(LEVELS) | {"?", ":", "=", "+=", "-=", "*=", ","}
"""Behind what a line may go on in the next."""
_OPEN, _CLOSE = "([{", ")]}"


def wrapped(text: str) -> str:
    """Return a text whose lines are broken where they are wider than `WIDTH`: behind operators and commas.

    Of several empty lines in a row one is left.
    """
    text = re.sub(r"\n{3,}", "\n\n", text)
    return "\n".join(piece for line in text.split("\n") for piece in ([line] if len(line) <= WIDTH else _pieces(line)))


def _pieces(line: str) -> Iterator[str]:
    if line.endswith("\\"):  # of a macro, which goes on in the next line
        yield from (f"{piece} \\" for piece in wrapped(line[:-1].rstrip()).split("\n"))
        return
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    if line.lstrip().startswith(("/*", "* ")) and "*/" not in line.strip()[:-2]:
        indent = indent[4:] + (" * " if line.lstrip().startswith("/*") else "* ")
    if line.startswith("#error"):
        yield line  # compilers print no more than the first line of a message
        return
    end = " \\" if line.startswith("#") else ""
    is_code = "*" not in indent and not end
    while len(line) > WIDTH:
        first = len(line) - len(line.lstrip())
        cut = _cut(line, 40) or _cut(line, first + 4) or line.find("(", first, WIDTH) + 1
        cut = cut if is_code else line.rfind(" ", first + 3, WIDTH - len(end)) + 1
        if not cut:
            break
        yield line[:cut].rstrip() + end
        line = indent + line[cut:].lstrip()
    yield line


def _cut(line: str, least: int) -> int:
    """Return where a line is best broken: as far outside of brackets as can be, then as far right; 0 for nowhere."""
    best, depth, place = (0, 0), 0, 0
    for token in _TOKEN.findall(line):
        place += len(token)
        if place > WIDTH:
            break
        sign = token.strip()
        depth += (sign in _OPEN) - (sign in _CLOSE) if sign else 0
        may_break = sign in _BREAKS and line[place : place + 1] == " " and token[:1] in (" ", ",") and place > least
        if may_break and (best == (0, 0) or -depth >= best[0]):
            best = (-depth, place)
    return best[1]
