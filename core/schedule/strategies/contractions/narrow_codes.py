"""How narrow weights are stored: bytes, or words of 32 bits that hold whole numbers or small floats of fewer bits.

Words hold the terms of a group one behind the other, the first in the lowest bits; of 3 and 6 bits some lie in two
words. A small float has a sign, two bits of exponent and a mantissa (OCP's E2M1 and E2M3); what it stands for is given
in units of its smallest number, which are whole: 0, 1, 2, 3, 4, 6, 8, 12 for E2M1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm

import numpy as np

from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.statements import multiply_add, wide
from graft.core.tensor_ir import ir

GROUP = 8
"""The terms of a group of bytes."""
WORD = 32
HALF = 4
"""The digits of 4 bits that are masked where they stand, before the word is shifted."""
SAMPLE = 4096
"""The elements that are looked at before all are."""


@dataclass(frozen=True, slots=True)
class Code:
    """Numbers of ``bits`` bits: whole ones, from ``low`` on, or small floats with a mantissa of so many bits."""

    bits: int = 8
    low: int = 0
    mantissa: int | None = None

    @property
    def terms(self) -> int:
        """The terms of a group, which fill whole words."""
        return GROUP if self.bits == 8 else lcm(self.bits, WORD) // self.bits

    @property
    def words(self) -> int:
        """The words of a group; 0 for bytes."""
        return 0 if self.bits == 8 else self.terms * self.bits // WORD

    @property
    def stands_in_place(self) -> bool:
        """Whether digits are masked where they stand: digit ``i`` of a half of a word is ``16**i`` times too large."""
        return self.bits == 4 and self.mantissa is None

    def holds(self, contents: np.ndarray) -> bool:
        """Whether all of some weights are among the numbers."""
        if self.mantissa is None:
            return bool(contents.min() >= self.low and contents.max() < self.low + (1 << self.bits))
        known = np.zeros(256, bool)
        sizes = magnitudes(self.mantissa)
        known[np.concatenate((sizes, -sizes)).astype(np.int8).view(np.uint8)] = True
        return bool(known[contents.view(np.uint8)].all())

    def packed(self, digits: np.ndarray) -> np.ndarray:
        """Return ``[term, column]`` numbers, less the lowest, as they are stored: rows of groups, in words or bytes."""
        if self.bits == 8:
            return digits
        codes = digits.view(np.uint8) & ((1 << self.bits) - 1)
        if self.mantissa is not None:
            codes = np.searchsorted(magnitudes(self.mantissa), np.abs(digits)).astype(np.uint8)
            codes |= (digits < 0).astype(np.uint8) << (self.bits - 1)
        groups = codes.reshape(len(codes) // self.terms, self.terms, -1)
        words = np.zeros((len(groups), self.words, groups.shape[2]), np.uint32)
        for term in range(self.terms):
            word, shift = divmod(term * self.bits, WORD)
            words[:, word] |= groups[:, term].astype(np.uint32) << shift
            if shift + self.bits > WORD:
                words[:, word + 1] |= groups[:, term].astype(np.uint32) >> (WORD - shift)
        return words.view(np.int32).reshape(-1, groups.shape[2])

    def number(self, words: Sequence[ir.Expression], term: int) -> ir.Expression:
        """Return a term of each column as float32, from vectors of the words of its group."""
        if self.stands_in_place:
            return ir.Cast(_masked(words[0], term), "float32")
        lanes = words[0].type.lanes
        word, shift = divmod(term * self.bits, WORD)
        code = _shifted(words[word], "shr", shift)
        if shift + self.bits > WORD:
            known = _anded(code, (1 << (WORD - shift)) - 1)
            code = ir.Binary("or", known, _shifted(words[word + 1], "shl", WORD - shift))
        if self.mantissa is None:
            return ir.Cast(_anded(code, (1 << self.bits) - 1), "float32")
        size = _anded(code, (1 << (self.bits - 1)) - 1)
        raised = b.constant((126 + self.mantissa) << 23, "int32")
        known = ir.Binary("add", _shifted(size, "shl", 23 - self.mantissa), wide(raised, lanes))
        sign = ir.Binary("and", _shifted(code, "shl", WORD - self.bits), wide(b.constant(-(1 << 31), "int32"), lanes))
        bits = ir.Bitcast(_below(ir.Bitcast(known, "float32"), 1 << self.mantissa), "int32")
        return ir.Bitcast(ir.Binary("or", bits, sign), "float32")


def code_of(contents: np.ndarray, block: int) -> Code | None:
    """Return the code of the fewest bits for weights in blocks of some terms; None where bytes are as good."""
    for bits, mantissa in ((2, None), (3, None), (4, None), (4, 1), (6, None), (6, 3)):
        signed = contents.dtype == np.int8
        low = -(1 << (bits - 1)) if signed and mantissa is None else 0
        code = Code(bits, low, mantissa)
        few = contents.reshape(-1)[:: max(contents.size // SAMPLE, 1)]
        if (signed or mantissa is None) and block % code.terms == 0 and code.holds(few) and code.holds(contents):
            return code
    return None


def magnitudes(mantissa: int) -> np.ndarray:
    """Return the sizes of small floats with two bits of exponent, in units of the smallest."""
    whole = np.arange(1 << (mantissa + 2))
    exponent = np.maximum(whole >> mantissa, 1)
    sizes: np.ndarray = np.where(whole >> mantissa > 0, (1 << mantissa) + whole % (1 << mantissa), whole) << (
        exponent - 1
    )
    return sizes


def _below(number: ir.Expression, least: int) -> ir.Expression:
    """Return numbers with a hidden bit that those below the least normal one have not.

    Without it such a number is ``2 * number - least``, which is the smaller of both there alone.
    """
    lanes = number.type.lanes
    two, less = (wide(b.constant(one, "float32"), lanes) for one in (2, -least))
    without = multiply_add(number, two, less)
    return ir.Select(ir.Binary("lt", number, without), number, without)


def _masked(word: ir.Expression, term: int) -> ir.Expression:
    """Return the digits of a term, where they stand in a half of their words."""
    return _anded(_shifted(word, "shr", 4 * HALF if term >= HALF else 0), 15 << 4 * (term % HALF))


def _shifted(word: ir.Expression, operator: ir.BinaryOperator, by: int) -> ir.Expression:
    return ir.Binary(operator, word, wide(b.constant(by, "int32"), word.type.lanes)) if by else word


def _anded(word: ir.Expression, mask: int) -> ir.Expression:
    return ir.Binary("and", word, wide(b.constant(mask, "int32"), word.type.lanes))
