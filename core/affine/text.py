"""The text of a dimension: how an extent is written, and what a text says."""

from __future__ import annotations

import re
from functools import lru_cache

from graft.core.affine.expressions import (
    CACHED,
    add,
    flat,
    floordiv,
    maximum,
    minimum,
    modulo,
    multiply,
    subtract,
    terms,
)
from graft.errors import ModelError
from graft.runtime.extents import Extent, Operation, Symbol


def text(extent: Extent) -> str:
    """Return an extent as text that `parsed` reads back: ``2*seq + past - 1``, ``(w - 1)//2 + 1``."""
    if not isinstance(extent, Operation):
        return str(extent)
    shown = ""
    for monomial, factor in terms(extent):
        size = abs(factor)
        parts = [str(size)] if size != 1 or not monomial else []
        inner = len(monomial) > 1 or size != 1 or (factor < 0 and not shown)
        parts += [_atom_text(atom, inner=inner) for atom in monomial]
        sign = "-" if factor < 0 else "+"
        shown += f" {sign} {'*'.join(parts)}" if shown else ("-" if factor < 0 else "") + "*".join(parts)
    return shown


@lru_cache(CACHED)
def parsed(dimension: str) -> Extent | None:
    """Return the canonical extent that a dimension's text says, None if it is no expression."""
    if dimension.isidentifier() and dimension not in ("min", "max"):
        return Symbol(dimension)
    try:
        return _Parser(dimension).whole()
    except (ModelError, SyntaxError, IndexError, RecursionError):
        return None


MOST_DIGITS = 19
"""Of a number: no extent has more."""
MOST_TOKENS = 1024
"""Of a text that is read as an expression."""
_TOKEN = re.compile(r"\s*(\d+|[^\W\d][\w.]*|//|[-+*%(),])")


class _Parser:
    """Reads sums, products, ``//``, ``%``, ``min``, ``max`` and brackets."""

    def __init__(self, source: str) -> None:
        self._tokens: list[str] = []
        place = 0
        source = source.rstrip()
        while place < len(source):
            found = _TOKEN.match(source, place)
            if found is None:
                raise SyntaxError(source)
            self._tokens.append(found[1])
            place = found.end()
            if len(self._tokens) > MOST_TOKENS:
                raise SyntaxError(source)
        self._tokens.append("")
        self._next = 0

    def whole(self) -> Extent:
        """Return the extent that all of the text is."""
        result = self._sum()
        self._expect("")
        return result

    def _take(self) -> str:
        self._next += 1
        return self._tokens[self._next - 1]

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise SyntaxError(token)

    def _at(self, *tokens: str) -> bool:
        return self._tokens[self._next] in tokens

    def _sum(self) -> Extent:
        result = self._product()
        while self._at("+", "-"):
            operation = add if self._take() == "+" else subtract
            result = operation(result, self._product())
        return result

    def _product(self) -> Extent:
        result = self._atom()
        while self._at("*", "//", "%"):
            operator, operand = self._take(), self._atom()
            result = (
                multiply(result, operand)
                if operator == "*"
                else floordiv(result, operand)
                if operator == "//"
                else modulo(result, operand)
            )
        return result

    def _atom(self) -> Extent:
        token = self._take()
        if token == "-":
            return multiply(-1, self._atom())
        if token.isdecimal():
            if len(token) > MOST_DIGITS:
                raise SyntaxError(token)
            return int(token)
        if token in ("min", "max"):
            self._expect("(")
            operands = [self._sum()]
            while self._at(","):
                self._take()
                operands.append(self._sum())
            self._expect(")")
            return (minimum if token == "min" else maximum)(*operands)
        if token == "(":
            result = self._sum()
            self._expect(")")
            return result
        if not token or not (token[0].isalpha() or token[0] == "_"):
            raise SyntaxError(token)
        return Symbol(token)


def _atom_text(atom: Symbol | Operation, *, inner: bool) -> str:
    if isinstance(atom, Symbol):
        return atom.name
    if atom.operator in ("min", "max"):
        return f"{atom.operator}({', '.join(map(text, flat(atom.operator, atom)))})"
    parts = [f"({text(side)})" if _is_compound(side) else text(side) for side in (atom.left, atom.right)]
    shown = ("%" if atom.operator == "mod" else "//").join(parts)
    return f"({shown})" if inner else shown


def _is_compound(extent: Extent) -> bool:
    monomials = terms(extent)
    plain = len(monomials) == 1 and monomials[0][1] == 1 and len(monomials[0][0]) == 1
    compound = isinstance(extent, Operation) and not (plain and extent.operator in ("min", "max"))
    return compound or (isinstance(extent, int) and extent < 0)
