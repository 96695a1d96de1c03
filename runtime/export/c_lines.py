"""Lines of C as people read them: without parentheses that precedence makes needless, and at most `WIDTH` wide."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

WIDTH = 120
_TOKEN = re.compile(
    r"""\s*(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|0[xX][\da-fA-F.]+(?:[pP][-+]?\d+)?\w*|[\w.]+"""
    r"""|->|\+\+|--|<<=|>>=|<<|>>|[<>=!]=|&&|\|\||[-+*/%&|^]=|\S)|\s+$"""
)
_TYPE = re.compile(
    r"\(\s*(?:const\s+|struct\s+)*(?:void|bool|char|int|long|long long|float|double|size_t|u?int\d+_t|"
    r"(?:float|u?int)\d+x\d+(?:_at)?)\s*(?:\*\s*(?:const|restrict)?\s*)*\)$"
)
_TIGHTER = (("*", "/", "%"), ("+", "-"), ("<<", ">>"), ("<", "<=", ">", ">="), ("==", "!="), "&", "^", "|", "&&", "||")
_LEVELS = {sign: 20 - number for number, signs in enumerate(_TIGHTER) for sign in signs if isinstance(signs, tuple)}
_LEVELS |= {signs: 20 - number for number, signs in enumerate(_TIGHTER) if isinstance(signs, str)}
_LEVELS |= {"?": 5, ":": 5, "=": 4, "+=": 4, "-=": 4, "*=": 4, ",": 1}
"""How tight the operators of C bind."""
_PRIMARY, _UNARY, _ADDED, _CHOSEN, _ASSIGNED, _COMMA = 30, 25, _LEVELS["+"], 5, 4, 1
_OF_BITS = frozenset(_LEVELS[sign] for sign in ("<<", "&", "^", "|"))
_COMPARED = frozenset(_LEVELS[sign] for sign in ("<", "=="))
_SIGNS = ("-", "+", "&", "*", "!")
"""What reads as two operands where something stands before it."""
_PREFIXES = frozenset("-+*&!~")
_OPEN, _CLOSE = "([{", ")]}"
_KEYWORDS = frozenset({"return", "else", "do"})
_WHOLE = ("#", "/*", " * ", "//")
"""What lines begin with that are no C of their own: of the preprocessor, and of comments."""
_NO_OPERAND = frozenset({"if", "for", "while", "switch", "sizeof", "_Alignas", "__attribute__", "_Pragma"})


@dataclass
class _Group:
    """What stands between two brackets; the opening one with the space before it."""

    open: str
    items: list[_Item]
    close: str = ""

    def __str__(self) -> str:
        return f"{self.open}{''.join(map(str, self.items))}{self.close}"

    @property
    def is_type(self) -> bool:
        """Whether it is the type of a cast or of a compound literal."""
        return len(self.items) <= 4 and self.open.strip() == "(" and _TYPE.match(str(self).strip()) is not None


_Item = str | _Group


def without_needless_parentheses(line: str) -> str:
    """Return a line, or a piece of one, with the parentheses that change its meaning, and those that compilers advise.

    Operands of shifts and of bitwise operators keep theirs, and so do conditions inside of others.
    """
    if "(" not in line or line.startswith(_WHOLE):
        return line
    top = _Group("", [])
    stack = [top]
    for token in _TOKEN.findall(line):
        sign = token.strip()
        if sign in _OPEN and sign:
            group = _Group(token, [])
            stack[-1].items.append(group)
            stack.append(group)
        elif sign in _CLOSE and sign:
            stack.pop().close = token
            if not stack:
                return line  # the end of something that began above
        else:
            stack[-1].items.append(token)
    is_whole = all(group.open.strip() == "{" for group in stack[1:])
    return "".join(_written(top.items)) if is_whole else line


def _written(items: Sequence[_Item]) -> Iterator[str]:
    for place, item in enumerate(items):
        if isinstance(item, str):
            yield item
            continue
        inner = "".join(_written(item.items))
        if item.open.strip() == "(" and not item.is_type and _is_needless(items, place, item):
            yield item.open[:-1] + inner
        else:
            yield f"{item.open}{inner}{item.close}"


def _is_needless(items: Sequence[_Item], place: int, group: _Group) -> bool:
    before = _sign(items[place - 1]) if place else ""
    after = _sign(items[place + 1]) if place + 1 < len(items) else ""
    is_type = group.items and group.items[-1] == " *"
    is_followed = after[:1].isalnum() or after[:1] in ("(", "{", '"', "_")  # as the type of a cast is
    if not group.items or is_type or is_followed or before in _NO_OPERAND or _is_called(items, place):
        return False
    inner = _level(group.items)
    first = group.items[0].strip() if isinstance(group.items[0], str) else ""
    if after in ("[", ".", "->", "++", "--"):
        return inner == _PRIMARY
    if place and _is_prefix(items, place - 1):
        return inner == _PRIMARY or (inner == _UNARY and before in "!~&*" and first != before)
    if place and _is_cast(items, place - 1):
        return inner >= _UNARY
    if _LEVELS.get(before, 0) <= _ASSIGNED and _LEVELS.get(after, 0) <= _COMMA:
        return inner > _COMMA
    if inner >= _UNARY:
        is_first = max(_LEVELS.get(before, 0), _LEVELS.get(after, 0) if first == "!" else 0) <= _CHOSEN
        return inner == _PRIMARY or first not in _SIGNS or is_first
    if inner <= _CHOSEN:
        return False
    own = _operators(group.items)
    return _reads_well(own, inner, before, is_right=True) and _reads_well(own, inner, after, is_right=False)


def _reads_well(own: set[str], inner: int, sign: str, *, is_right: bool) -> bool:
    """Whether an operation may stand bare beside an operator, as its operand on the right, or on the left."""
    outer = _LEVELS.get(sign, 0)
    if outer <= _CHOSEN:
        return True
    if outer in _OF_BITS:
        return not is_right and own == {sign}
    if inner in _OF_BITS or (outer in _COMPARED and inner < _ADDED) or (inner == _LEVELS["&&"] and sign == "||"):
        return False
    if outer == inner:
        return not is_right and (own == {sign} or outer == _ADDED)
    return inner > outer


def _sign(item: _Item) -> str:
    return item.strip() if isinstance(item, str) else item.open.strip()


def _is_called(items: Sequence[_Item], place: int) -> bool:
    """Whether a bracket belongs to what stands before it: arguments, or what a macro's result is given."""
    if not place:
        return False
    before = items[place - 1]
    if isinstance(before, _Group):
        return before.open.strip() == "(" and not before.is_type and _is_called(items, place - 1)
    word = before.strip()
    return (word[:1].isalpha() or word[:1] == "_") and word not in _KEYWORDS


def _is_cast(items: Sequence[_Item], place: int) -> bool:
    item = items[place]
    return isinstance(item, _Group) and item.is_type and not _is_called(items, place)


def _is_prefix(items: Sequence[_Item], place: int) -> bool:
    """Whether an operator has one operand, which follows."""
    item = items[place]
    if not isinstance(item, str) or item.strip() not in _PREFIXES:
        return False
    if not place or item.strip() in "!~":
        return True
    before = items[place - 1]
    if isinstance(before, _Group):
        return _is_cast(items, place - 1)
    word = before.strip()
    return word in _LEVELS or word in _KEYWORDS or word in (";", "") or _is_prefix(items, place - 1)


def _operators(items: Sequence[_Item]) -> set[str]:
    """Return the loosest operators between two operands."""
    found = [
        sign
        for number, one in enumerate(items)
        if isinstance(one, str) and (sign := one.strip()) in _LEVELS and not _is_prefix(items, number)
    ]
    least = min((_LEVELS[sign] for sign in found), default=0)
    return {sign for sign in found if _LEVELS[sign] == least}


def _level(items: Sequence[_Item]) -> int:
    """Return how tight the loosest operator of an expression binds."""
    for sign in _operators(items):
        return _LEVELS[sign]
    if any(isinstance(one, _Group) and one.open.strip() == "{" for one in items):
        return 1  # commas in braces are commas of a macro's arguments
    return _UNARY if _is_cast(items, 0) or _is_prefix(items, 0) else _PRIMARY


def tidy(text: str) -> str:
    """Return a text without needless parentheses and wide lines."""
    return wrapped("\n".join(map(without_needless_parentheses, text.split("\n"))))


def wrapped(text: str) -> str:
    """Return a text whose lines are broken where they are wider than `WIDTH`: behind operators and commas."""
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
        may_break = sign in _LEVELS and line[place : place + 1] == " " and token[:1] in (" ", ",") and place > least
        if may_break and (best == (0, 0) or -depth >= best[0]):
            best = (-depth, place)
    return best[1]
