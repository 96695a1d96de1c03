"""Number formats by their definitions, in exact rationals: nothing here is shared with the code under test."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property

import numpy as np


def posit_value(bits: int, es: int, code: int) -> Fraction | None:
    """Return the number of a posit code, read off its binary digits; None for NaR."""
    if code == 0:
        return Fraction(0)
    if code == 1 << (bits - 1):
        return None
    negative = code >> (bits - 1)
    magnitude = (-code) & ((1 << bits) - 1) if negative else code
    body = format(magnitude, f"0{bits}b")[1:]
    run = len(body) - len(body.lstrip(body[0]))
    regime = run - 1 if body[0] == "1" else -run
    rest = body[run + 1 :]
    exponent = int(rest[:es].ljust(es, "0") or "0", 2)
    digits = rest[es:]
    fraction = Fraction(int(digits, 2), 1 << len(digits)) if digits else Fraction(0)
    size = (1 + fraction) * Fraction(2) ** (regime * (1 << es) + exponent)
    return -size if negative else size


class PositOracle:
    """Posits of one width: exact values, and rounding by comparing with the values half a code away."""

    def __init__(self, bits: int, es: int = 2) -> None:
        self.bits, self.es, self.nar = bits, es, 1 << (bits - 1)

    @cached_property
    def values(self) -> list[Fraction | None]:
        """The number of every code."""
        return [posit_value(self.bits, self.es, code) for code in range(1 << self.bits)]

    @cached_property
    def numbers(self) -> np.ndarray:
        """The number of every code as float64."""
        return np.array([math.nan if value is None else float(value) for value in self.values])

    @cached_property
    def middles(self) -> list[Fraction]:
        """What separates code 1 from 2, 2 from 3, ...: the odd codes of one more bit."""
        odd = range(3, (1 << self.bits) - 2, 2)
        return [value for code in odd if (value := posit_value(self.bits + 1, self.es, code)) is not None]

    @cached_property
    def middle_numbers(self) -> np.ndarray:
        """The same as float64."""
        return np.array([float(middle) for middle in self.middles])

    def round(self, value: Fraction | None) -> int:
        """Return the code nearest to a number; ties to the even code, never to zero or NaR."""
        if value is None:
            return self.nar
        if value == 0:
            return 0
        place = bisect_left(self.middles, abs(value))
        code = place + 1
        if place < len(self.middles) and self.middles[place] == abs(value) and code % 2:
            code += 1
        return code if value > 0 else (1 << self.bits) - code

    def round_floats(self, numbers: np.ndarray) -> np.ndarray:
        """Return the codes nearest to float64 numbers."""
        size = np.abs(numbers)
        place = np.searchsorted(self.middle_numbers, size, side="left")
        tie = self.middle_numbers[np.minimum(place, len(self.middle_numbers) - 1)] == size
        code = place + 1 + (tie & (place % 2 == 0) & (place < len(self.middle_numbers)))
        code = np.where(numbers < 0, (1 << self.bits) - code, code)
        code = np.where(numbers == 0, 0, code)
        return np.where(np.isfinite(numbers), code, self.nar)

    def apply(self, function: Callable[..., Fraction | None], *codes: int) -> int:
        """Return an operation of codes, rounded once; NaR if an operand is NaR or the result is None."""
        values = [self.values[code] for code in codes]
        return self.nar if None in values else self.round(function(*values))


def divide(x: Fraction, y: Fraction) -> Fraction | None:
    """Return the quotient, None (NaR) by zero."""
    return None if y == 0 else x / y


def root(oracle: PositOracle, code: int) -> int:
    """Return the correctly rounded square root: the code whose neighbours' middles, squared, enclose the number."""
    value = oracle.values[code]
    if value is None or value < 0:
        return oracle.nar
    if value == 0:
        return 0
    low, high = 0, len(oracle.middles)
    while low < high:
        place = (low + high) // 2
        if oracle.middles[place] ** 2 < value:
            low = place + 1
        else:
            high = place
    found = low + 1
    if low < len(oracle.middles) and oracle.middles[low] ** 2 == value and found % 2:
        found += 1
    return found
