"""Floats of any parameters by their definitions, in exact rationals, sharing nothing with the code under test."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

NAN, INFINITY = "nan", "infinity"


@dataclass(frozen=True)
class FloatOracle:
    """A float of ``bits`` bits as `graft.datatypes.small_float` describes it."""

    bits: int
    mantissa: int
    infinities: bool
    subnormals: bool
    nan: str
    saturate: bool
    extra_bias: int

    @property
    def bias(self) -> int:
        """What is taken from the exponent's code."""
        return 2 ** (self.bits - self.mantissa - 2) - 1 + self.extra_bias

    def value(self, code: int) -> Fraction | str:
        """Return the number of a code; infinities of both signs are one text, as NaNs are."""
        digits = format(code, f"0{self.bits}b")
        exponent, fraction = digits[1 : self.bits - self.mantissa], digits[self.bits - self.mantissa :]
        if self.nan == "zero" and code == 1 << (self.bits - 1):
            return NAN
        if self.nan == "top" and "0" not in exponent + fraction:
            return NAN
        if self.nan == "zero" and self.infinities and "0" not in exponent + fraction:
            return INFINITY
        if self.nan == "ieee" and "0" not in exponent:
            return INFINITY if self.infinities and "1" not in fraction else NAN
        part = Fraction(int(fraction or "0", 2), 2**self.mantissa)
        if "1" in exponent:
            size = (1 + part) * Fraction(2) ** (int(exponent, 2) - self.bias)
        else:
            size = part * Fraction(2) ** (1 - self.bias) if self.subnormals else Fraction(0)
        return -size if digits[0] == "1" else size

    @cached_property
    def sizes(self) -> list[Fraction]:
        """The numbers that are not negative, each once, and what would be the next one behind them."""
        half = [self.value(code) for code in range(1 << (self.bits - 1))]
        found = sorted({one for one in half if isinstance(one, Fraction)})
        step = Fraction(2)
        while step > found[-1]:
            step /= 2
        while step * 2 <= found[-1]:
            step *= 2
        return [*found, found[-1] + step / 2**self.mantissa]

    def round(self, number: Fraction) -> Fraction | str:
        """Return the nearest number, of two the one with the even mantissa; zero where there are no subnormals."""
        size, sizes = abs(number), self.sizes
        place = bisect_left(sizes, size)
        if place == len(sizes):
            place -= 1
        elif sizes[place] != size:
            low, high = sizes[place - 1], sizes[place]
            if 2 * size < low + high or (2 * size == low + high and self.is_even(low, place - 1)):
                place -= 1
        if place == len(sizes) - 1:
            if self.saturate or self.nan == "none":
                place -= 1
            else:
                return INFINITY if self.infinities else NAN
        return -sizes[place] if number < 0 else sizes[place]

    def is_even(self, low: Fraction, place: int) -> bool:
        """Whether the lesser of two neighbours has an even mantissa: its place counts codes, but for a missing zero."""
        if not self.subnormals:
            return low == 0 or (place - 1) % 2 == 0
        return place % 2 == 0

    def root(self, number: Fraction) -> Fraction | str:
        """Return the square root, rounded once: the number whose neighbours' middles, squared, enclose it."""
        sizes = self.sizes
        for place in range(len(sizes) - 1):
            middle = (sizes[place] + sizes[place + 1]) / 2
            if number < middle**2 or (number == middle**2 and self.is_even(sizes[place], place)):
                return sizes[place]
        return self.round(sizes[-1])
