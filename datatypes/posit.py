"""Posits, after "Standard for Posit Arithmetic (2022)".

A posit's body (the bits behind the sign, of the magnitude) is a regime, ``es`` exponent bits and a fraction; the more
regime, the less fraction. Rounding is to the nearest *encoding*, ties to the even one, never to zero or NaR. In the
carrier's own bits exponent and fraction of the posit are the low bits of a float's, so rounding is an integer rounding
at a place that depends on the regime alone. The standard fixes ``es = 2``; older conventions have 0 for 8 and 1 for 16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from graft.core.tensor_ir.scalar_math import Value, select
from graft.datatypes.formats import Format, either, is_nan, power


@dataclass(frozen=True)
class _Layout:
    """A carrier's layout: bits of the word, of the fraction, and the exponent's bias."""

    word: int
    fraction: int
    bias: int

    @property
    def signed(self) -> str:
        return f"int{self.word}"

    @property
    def unsigned(self) -> str:
        return f"uint{self.word}"


LAYOUTS = {"float32": _Layout(32, 23, 127), "float64": _Layout(64, 52, 1023)}


@dataclass(frozen=True)
class Posit(Format):
    """A posit of 3 to 32 bits with ``es`` exponent bits. NaR is the carrier's NaN; there is one zero."""

    es: int = 2

    @property
    def carrier(self) -> str:
        """float32 for significands of at most 12 bits: then sums, products and quotients survive a second rounding."""
        return "float32" if self.bits - 3 - self.es <= 11 and self._exponent <= 60 else "float64"

    @property
    def significant(self) -> int:
        """The hidden bit, and the fraction beside the shortest regime."""
        return max(self.bits - 2 - self.es, 1)

    @property
    def top_exponent(self) -> int:
        """That of the shortest regime."""
        return (1 << self.es) - 1

    @property
    def in_complement(self) -> bool:
        """Negative numbers are two's complements."""
        return True

    @property
    def needs_odd(self) -> bool:
        """Whether significands are longer than 26 bits."""
        return self.bits - 3 - self.es > 25

    @property
    def _exponent(self) -> int:
        return (self.bits - 2) << self.es

    @property
    def largest(self) -> float:
        """Maxpos."""
        return 2.0**self._exponent

    @property
    def smallest(self) -> float:
        """Minpos."""
        return 2.0**-self._exponent

    @property
    def _layout(self) -> _Layout:
        return LAYOUTS[self.carrier]

    def decode(self, bits: Value) -> Value:
        """Count the regime's run, shift it out, and put exponent and fraction into the carrier's place."""
        layout = self._layout
        word, low = layout.word, layout.fraction + self.es
        top = bits.cast(layout.unsigned) << (word - self.bits)
        signed = top.bits(layout.signed)
        body = abs(signed) << 1
        sign = body >> (word - 1)
        run = ((body ^ sign) | 1).unary("clz")
        regime = select(body < 0, run - 1, -run)
        rest = ((body.bits(layout.unsigned) << run.bits(layout.unsigned)) << 1) >> (word - low)
        exponent = ((regime << self.es) + layout.bias) << layout.fraction
        magnitude = exponent + rest.bits(layout.signed)
        negative = (signed.bits(layout.unsigned) >> (word - 1) << (word - 1)).bits(layout.signed)
        number = (magnitude | negative).bits(self.carrier)
        number = select(signed.equals(0), 0.0, number)
        return select(signed.equals(-(1 << (word - 1))), float("nan"), number)

    def _parts(self, value: Value) -> tuple[Value, Value, Value]:
        """Sign bit, magnitude bits (not above maxpos, not below minpos), and the magnitude re-biased by a multiple."""
        layout = self._layout
        bits = value.bits(layout.signed)
        magnitude = bits & ((1 << (layout.word - 1)) - 1)
        least = (layout.bias - self._exponent) << layout.fraction
        most = (layout.bias + self._exponent) << layout.fraction
        return bits ^ magnitude, magnitude, magnitude.clamp(least, most) + (1 << layout.fraction)

    def _regime(self, biased: Value) -> tuple[Value, Value]:
        """The regime, and the length of its run less one."""
        layout = self._layout
        regime = (biased >> (layout.fraction + self.es)) - ((layout.bias + 1) >> self.es)
        return regime, regime ^ (regime >> (layout.word - 1))

    def round(self, value: Value) -> Value:
        """Round the carrier's bits to nearest even at the place that the regime leaves."""
        layout = self._layout
        sign, magnitude, biased = self._parts(value)
        regime, run = self._regime(biased)
        places = layout.fraction + self.es
        cut = (run + (places + 3 - self.bits)).at_most(places)
        even = (biased >> cut) & 1
        # Where nothing follows the regime, its last bit is the encoding's last bit: 0 above one, 1 below.
        at_end = run > self.bits - 4
        even = select(at_end, (regime >> (layout.word - 1)) & 1, even)
        half = biased.constant(1) << (cut - 1)
        rounded = (biased + (half - 1) + even) & -(half << 1)
        number = ((rounded - (1 << layout.fraction)) | sign).bits(self.carrier)
        number = select(magnitude.equals(0), 0.0, number)
        infinite = (2 * layout.bias + 1) << layout.fraction
        return select(magnitude >= infinite, float("nan"), number)

    def encode(self, value: Value) -> Value:
        """Put the two first bits of the regime before exponent and fraction and shift them in by the run."""
        layout = self._layout
        word, low = layout.word, layout.fraction + self.es
        sign, magnitude, biased = self._parts(value)
        regime, run = self._regime(biased)
        first = select(regime < 0, biased.constant(1 << (word - 2)), biased.constant(-(1 << (word - 1))))
        tail = (biased & ((1 << low) - 1)) << (word - 2 - low)
        body = ((first | tail) >> run).bits(layout.unsigned) >> (word - self.bits + 1)
        body = select(magnitude.equals(0), body.constant(0), body).bits(layout.signed)
        body = select(sign < 0, -body, body)
        infinite = (2 * layout.bias + 1) << layout.fraction
        body = select(magnitude >= infinite, 1 << (self.bits - 1), body)
        return (body & ((1 << self.bits) - 1)).cast(self.storage)

    def function(self, operation: str, operands: tuple[Value, ...]) -> Value | None:
        """A power of NaR, or to NaR, is NaR, also where a float's is 1."""
        if operation != "Pow":
            return None
        raised = self.convert(power(*(operand.cast("float64") for operand in operands)))
        return select(is_nan(operands[0]) | is_nan(operands[1]), math.nan, raised)

    def less(self, left: Value, right: Value) -> Value:
        """Compare as the standard does: NaR is less than everything else."""
        return either(left < right, is_nan(left) & is_nan(right).equals(False))

    def equal(self, left: Value, right: Value) -> Value:
        """Compare as the standard does: NaR equals NaR."""
        return either(left.equals(right), is_nan(left) & is_nan(right))
