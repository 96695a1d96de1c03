"""Operations of C as text: operands get the parentheses that precedence asks for, and those that compilers advise.

What has an operator at its top is an `Operation`, a text that knows it; any other text (a name, a literal, a call, an
element) stands bare wherever it is put. Operands of shifts and of bitwise operators keep theirs, and so do conditions
inside of others.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Final

LEVELS: Final = {
    sign: 20 - number
    for number, signs in enumerate(("* / %", "+ -", "<< >>", "< <= > >=", "== !=", "&", "^", "|", "&&", "||"))
    for sign in signs.split()
}
"""How tight the operators of two operands bind."""
UNARY, CHOICE = 25, 5
_OF_BITS = frozenset(LEVELS[sign] for sign in ("<<", "&", "^", "|"))
_COMPARED = frozenset(LEVELS[sign] for sign in ("<", "=="))
_SIGNS = ("-", "+", "&", "*", "!")
"""What reads as two operands where something stands before it."""


class Operation(str):
    """The text of an operation: its operator, which is empty for a cast, and how tight that binds."""

    sign: str
    level: int

    def __new__(cls, text: str, sign: str, level: int) -> Operation:
        """Return a text as an operation."""
        made = super().__new__(cls, text)
        made.sign, made.level = sign, level
        return made


def infix(left: str, sign: str, right: str) -> Operation:
    """Return an operation of two operands."""
    text = f"{_operand(left, sign, is_right=False)} {sign} {_operand(right, sign, is_right=True)}"
    return Operation(text, sign, LEVELS[sign])


def choice(condition: str, on_true: str, on_false: str) -> Operation:
    """Return ``condition ? on_true : on_false``."""
    one, two, three = (_grouped(text, CHOICE + 1) for text in (condition, on_true, on_false))
    return Operation(f"{one} ? {two} : {three}", "?", CHOICE)


def prefix(sign: str, operand: str) -> Operation:
    """Return an operation of one operand, which follows."""
    bare = isinstance(operand, Operation) and operand.level == UNARY and sign in "!~&*" and operand.sign != sign
    return Operation(f"{sign}{operand if bare else _grouped(operand, UNARY + 1)}", sign, UNARY)


def cast(type: str, operand: str) -> Operation:
    """Return an operand as another type."""
    return Operation(f"({type}){_grouped(operand, UNARY)}", "", UNARY)


def postfix(operand: str, text: str) -> str:
    """Return an operand with what follows it: an index, or a member."""
    return f"{_grouped(operand, UNARY + 1)}{text}"


def displaced(base: str, offset: int) -> str:
    """Return a place so far behind another."""
    return infix(base, "+", str(offset)) if offset else base


def product(factors: Iterable[str]) -> str:
    """Return the product of some factors, "1" of none."""
    texts = list(factors)
    return reduce(lambda left, right: infix(left, "*", right), texts) if texts else "1"


def _grouped(text: str, least: int) -> str:
    return f"({text})" if isinstance(text, Operation) and text.level < least else text


def _operand(text: str, sign: str, *, is_right: bool) -> str:
    if not isinstance(text, Operation):
        return text
    if text.level == UNARY:
        is_bare = text.sign not in _SIGNS or not (is_right or text.sign == "!")
    else:
        is_bare = text.level > CHOICE and _reads_well(text, sign, is_right)
    return text if is_bare else f"({text})"


def _reads_well(inner: Operation, sign: str, is_right: bool) -> bool:
    """Whether an operation may stand bare beside an operator, as its operand on the right, or on the left."""
    outer, added = LEVELS[sign], LEVELS["+"]
    if outer in _OF_BITS:
        return not is_right and inner.sign == sign
    if inner.level in _OF_BITS or (outer in _COMPARED and inner.level < added) or (inner.sign, sign) == ("&&", "||"):
        return False
    if outer == inner.level:
        return not is_right and (inner.sign == sign or outer == added)
    return inner.level > outer
