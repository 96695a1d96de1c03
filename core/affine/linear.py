"""Linear forms over atoms, their intervals, and division with remainder.

A form is ``constant + sum(coefficient * atom) + lane * (0, 1, ..., lanes - 1)``. What an atom is its user says: the
tensor IR numbers int64 expressions that are not sums, in order of appearance, so that rebuilt expressions are the same
in every run; generated code has the texts of operands, the accelerator variables of loops. A scalar atom in a vector
form stands for its broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from math import gcd
from typing import Generic, TypeAlias, TypeVar

Atom = TypeVar("Atom", bound=Hashable)

Interval: TypeAlias = tuple[int, int]
"""The smallest and the largest value, both included."""


@dataclass(slots=True)
class Linear(Generic[Atom]):
    """A linear form; ``terms`` maps atoms to coefficients that are not zero.

    Nobody changes one; it is not frozen because so many are made, which takes three times as long then.
    """

    constant: int = 0
    terms: dict[Atom, int] = field(default_factory=dict)
    lane: int = 0
    lanes: int = 1

    def plus(self, other: Linear[Atom], factor: int = 1) -> Linear[Atom]:
        """Return ``self + factor * other``."""
        terms = self.terms
        if other.terms:
            terms = dict(terms)
            for atom, coefficient in other.terms.items():
                total = terms.pop(atom, 0) + factor * coefficient
                if total:
                    terms[atom] = total
        lanes = self.lanes if self.lanes > other.lanes else other.lanes  # `max` takes three times as long
        return Linear(self.constant + factor * other.constant, terms, self.lane + factor * other.lane, lanes)

    def times(self, factor: int) -> Linear[Atom]:
        """Return ``factor * self``."""
        zero: Linear[Atom] = Linear(lanes=self.lanes)
        return zero.plus(self, factor) if factor else zero

    @property
    def is_constant(self) -> bool:
        """Whether every lane is the same number."""
        return not self.terms and self.lane == 0

    def interval(self, of_atom: Callable[[Atom], Interval | None]) -> Interval | None:
        """Return bounds of the form from bounds of its atoms, None where an atom has none."""
        low = high = self.constant
        last = self.lane * (self.lanes - 1)
        low, high = low + min(0, last), high + max(0, last)
        for atom, coefficient in self.terms.items():
            bounds = of_atom(atom)
            if bounds is None:
                return None
            ends = (coefficient * bounds[0], coefficient * bounds[1])
            low, high = low + min(ends), high + max(ends)
        return low, high

    def split(self, divisor: int) -> tuple[Linear[Atom], Linear[Atom]]:
        """Return quotient and rest: ``self == divisor * quotient + rest`` term by term."""
        quotient_terms = {a: c // divisor for a, c in self.terms.items() if c % divisor == 0}
        rest_terms = {a: c for a, c in self.terms.items() if c % divisor}
        whole = self.lane % divisor == 0
        quotient = Linear(self.constant // divisor, quotient_terms, self.lane // divisor if whole else 0, self.lanes)
        return quotient, Linear(self.constant % divisor, rest_terms, 0 if whole else self.lane, self.lanes)


@dataclass(frozen=True, slots=True)
class Division(Generic[Atom]):
    """``form / divisor`` with its remainder: ``pending`` of both is still to be divided by ``pending_divisor``.

    The quotient is ``quotient + pending / pending_divisor`` and the remainder
    ``rest + scale * (pending % pending_divisor)``.
    """

    quotient: Linear[Atom]
    rest: Linear[Atom]
    pending: Linear[Atom]
    pending_divisor: int
    scale: int


def divide(form: Linear[Atom], divisor: int, of_atom: Callable[[Atom], Interval | None]) -> Division[Atom] | None:
    """Divide a form that is nowhere negative by a positive constant as far as intervals allow, or return None.

    Uses ``(g * q + r) / (g * d) == q / d`` and ``(g * q + r) % (g * d) == g * (q % d) + r`` for ``0 <= r < g``, and
    ``(d * q + r) / d == q + r / d`` for ``q, r >= 0``.
    """
    bounds = form.interval(of_atom)
    if bounds is None or bounds[0] < 0:
        return None
    zero: Linear[Atom] = Linear(lanes=form.lanes)
    if bounds[1] < divisor:
        return Division(zero, form, zero, 1, 1)
    coefficients = [
        *form.terms.values(),
        *([form.lane] if form.lane else []),
        *([form.constant] if form.constant else []),
    ]
    common = {gcd(coefficient, divisor) for coefficient in coefficients} | {divisor}
    for factor in sorted(common - {1}, reverse=True):
        quotient, rest = form.split(factor)
        rest_bounds = rest.interval(of_atom)
        if rest_bounds is not None and rest_bounds[0] >= 0 and rest_bounds[1] < factor:
            if factor == divisor:
                return Division(quotient, rest, zero, 1, 1)
            return Division(zero, rest, quotient, divisor // factor, factor)
    quotient, rest = form.split(divisor)
    bounds, rest_bounds = quotient.interval(of_atom), rest.interval(of_atom)
    apart = bounds is not None and bounds[0] >= 0 and rest_bounds is not None and rest_bounds[0] >= 0
    if apart and not (quotient.is_constant and quotient.constant == 0):
        return Division(quotient, zero, rest, divisor, 1)
    return None
