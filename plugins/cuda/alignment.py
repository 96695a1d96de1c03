"""What is known of the alignment of accesses: the multiples that indices are, seen through what is bound to a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import gcd

ALIGNED = 16
"""Bytes of the widest access, and what is promised of pointers where they were looked at."""


@dataclass(slots=True)
class Multiples:
    """Of operands of linear forms, by their text, the numbers that they are multiples of; 1 where nothing is known."""

    known: dict[str, int] = field(default_factory=dict)

    def bind(self, operand: str, terms: Mapping[str, int], constant: int) -> None:
        """Let an operand stand for ``sum(factor * operand) + constant``."""
        self.known[operand] = self._common(terms, constant) or ALIGNED

    def alignment(self, size: int, terms: Mapping[str, int], constant: int) -> int:
        """Return the alignment in bytes, `ALIGNED` at the most, of an element of ``size`` bytes at a linear offset."""
        return gcd(ALIGNED, size * self._common(terms, constant))

    def _common(self, terms: Mapping[str, int], constant: int) -> int:
        return gcd(constant, *(factor * self.known.get(operand, 1) for operand, factor in terms.items()))
