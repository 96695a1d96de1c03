"""Scaled types by their definitions, in exact rationals and whole numbers: nothing of `graft` is used."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from tests.datatypes.proofs.float_oracle import FloatOracle


def floor_log2(value: Fraction) -> int:
    """The exponent of the power of two that is not above a positive number, and the next one is."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= value else exponent - 1


def round_half_even(value: Fraction) -> int:
    """The whole number nearest to a rational, the even one of two."""
    below = math.floor(value)
    rest = value - below
    return below + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and below % 2))


def float32_of(value: Fraction) -> float:
    """The float32 nearest to a rational, infinite from half a place above the largest."""
    if value == 0:
        return 0.0
    place = Fraction(2) ** max(floor_log2(abs(value)) - 23, -149)
    found = round_half_even(value / place) * place
    return math.copysign(math.inf, value) if abs(found) >= Fraction(2) ** 128 else float(found)


@dataclass(frozen=True)
class Element:
    """An element format: the number of each code (None where it is none), and what the specification says of it."""

    values: tuple[Fraction | None, ...]
    emax: int
    places: int
    """Significant bits."""

    @cached_property
    def largest(self) -> Fraction:
        return max(value for value in self.values if value is not None)

    def nearest(self, number: Fraction) -> Fraction:
        """The nearest number, of two the one with the even code; saturating, to the negative of the largest too."""
        held = max(min(number, self.largest), -self.largest)
        near = min(abs(value - held) for value in self.values if value is not None)
        codes = [code for code, value in enumerate(self.values) if value is not None and abs(value - held) == near]
        value = self.values[min(codes, key=lambda code: code % 2)]
        assert value is not None
        return value


def _float(bits: int, mantissa: int, nan: str, emax: int) -> Element:
    oracle = FloatOracle(bits, mantissa, nan == "ieee", True, nan, True, 0)
    values = (oracle.value(code) for code in range(1 << bits))
    return Element(tuple(one if isinstance(one, Fraction) else None for one in values), emax, mantissa + 1)


def _whole(bits: int, fraction: int, emax: int) -> Element:
    half = 1 << (bits - 1)
    values = [Fraction(code if code < half else code - 2 * half, 1 << fraction) for code in range(2 * half)]
    return Element(tuple(values), emax, bits - 1)


ELEMENTS = {
    "mxfp8e4m3": _float(8, 3, "top", 8),
    "mxfp8e5m2": _float(8, 2, "ieee", 15),
    "mxfp6e2m3": _float(6, 3, "none", 2),
    "mxfp6e3m2": _float(6, 2, "none", 4),
    "mxfp4": _float(4, 1, "none", 2),
    "mxint8": _whole(8, 6, 0),
    "msfp12": _whole(4, 0, 2),
    "msfp16": _whole(8, 0, 6),
}
E4M3, E2M1 = ELEMENTS["mxfp8e4m3"], ELEMENTS["mxfp4"]


def scale_exponent(element: Element, rule: str, largest: Fraction) -> int:
    """The exponent of a block's scale, E8M0."""
    if largest == 0:
        return -127
    if rule == "even":
        place = Fraction(2) ** (floor_log2(largest) - element.places + 1)
        largest = round_half_even(largest / place) * place
    exponent = floor_log2(largest)
    if rule == "ceil" and Fraction(2) ** exponent < largest:
        exponent += 1
    exponent -= element.emax
    if rule == "rceil":
        exponent = next(e for e in range(exponent - 2, exponent + 3) if largest <= element.largest * Fraction(2) ** e)
    return max(min(exponent, 127), -127)


def converted(element: Element, rule: str, block: Sequence[Fraction]) -> tuple[int, list[Fraction]]:
    """A block's exponent and its elements."""
    exponent = scale_exponent(element, rule, max(map(abs, block)))
    return exponent, [element.nearest(one / Fraction(2) ** exponent) for one in block]
