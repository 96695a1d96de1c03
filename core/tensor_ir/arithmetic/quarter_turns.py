"""Angles in quarter turns: ``x * 2 / pi`` modulo 4 for every float64, as Payne and Hanek have it (1983).

2/pi is cut into chunks of 48 bits. Beyond 2^55 an argument is scaled down by whole chunks and as many chunks are left
out, which are multiples of 4 in the product; five chunks from there on leave at least 117 bits behind the point, and no
float64 is nearer than 2^-62 to a whole number of quarter turns. Which five is chosen by halves of the table, so this is
code for vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from graft.core.tensor_ir.arithmetic.exact_rounding import sum_error
from graft.core.tensor_ir.scalar_math import Value, select

CHUNK = 48
EXACT = 55
"""An argument of ``2**EXACT`` or more is a multiple of 4 even when it is scaled down to that."""
USED = 5
LARGEST_EXPONENT = 1023
GROUPS = (LARGEST_EXPONENT - EXACT) // CHUNK + 1
_RECIPROCAL, _SHIFT = 1366, 16
"""``number * _RECIPROCAL >> _SHIFT`` is ``number // CHUNK`` for all exponents."""


@cache
def pi(bits: int) -> int:
    """Return pi times ``2^bits``, rounded down (Machin's formula)."""
    one = 1 << (bits + 16)

    def arctan_of_inverse(number: int) -> int:
        total, term, divisor = 0, one // number, 1
        while term:
            total += term // divisor if divisor % 4 == 1 else -(term // divisor)
            term //= number * number
            divisor += 2
        return total

    return 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239)) >> 16


@cache
def half_pi() -> tuple[float, float]:
    """Return pi/2 as the sum of two float64."""
    bits = 200
    high = pi(bits) / (1 << (bits + 1))
    numerator, denominator = high.as_integer_ratio()
    return high, (pi(bits) - (numerator << (bits + 1)) // denominator) / (1 << (bits + 1))


@cache
def _chunks() -> tuple[float, ...]:
    """Return 2/pi in chunks, the first bits first, each as a whole number."""
    count = GROUPS + USED
    bits = count * CHUNK + 64
    whole = (1 << (2 * bits + 1)) // pi(bits) >> 64
    return tuple(float(whole >> (CHUNK * (count - 1 - number)) & ((1 << CHUNK) - 1)) for number in range(count))


def _from(table: Sequence[Value], group: Value, count: int) -> list[Value]:
    """Return ``count`` entries of a table from entry ``group`` on: by its halves, their halves, ..."""
    rows = list(table)
    for bit in reversed(range((GROUPS - 1).bit_length())):
        wanted = count + (1 << bit) - 1
        moved = (group & (1 << bit)).differs(0)
        last = rows[-1]
        rows = [
            select(moved, rows[place + (1 << bit)] if place + (1 << bit) < len(rows) else last, rows[place])
            for place in range(min(wanted, len(rows)))
        ]
    return rows[:count]


def quarter_turns(x: Value) -> tuple[Value, Value, Value]:
    """Return an angle in quarter turns: ``(high, low, count)`` with ``high + low`` in about [-1/2, 1/2].

    ``count`` is a whole number, right modulo 4, all in float64. Infinities and NaN give NaN.
    """
    exponent = ((x.bits("int64") >> 52) & 0x7FF) - 1023
    group = ((exponent - EXACT).at_least(0) * _RECIPROCAL) >> _SHIFT
    scaled = x * ((1023 - group * CHUNK) << 52).bits("float64")
    chunks = _from([x.constant(chunk) for chunk in _chunks()], group, USED)
    terms: list[Value] = []
    for number, chunk in enumerate(chunks):
        part = chunk * 2.0 ** (-CHUNK * (number + 1))
        product = scaled * part
        error = scaled.times_plus(part, -product)
        terms += [_modulo_4(product) if number < 3 else product]
        terms += [_modulo_4(error) if number < 1 else error]
    total, errors = _summed(terms[:-1])
    count = total.unary("round_even")
    high, errors = _summed([total - count, *errors])
    low = errors[0]
    for error in errors[1:]:
        low = low + error
    return high, low, count


def _modulo_4(value: Value) -> Value:
    """Return a number less a multiple of 4, exactly, in [-2, 2]."""
    return value - (value * 0.25).unary("round_even") * 4.0


def _summed(terms: Sequence[Value]) -> tuple[Value, list[Value]]:
    """Return the sum of terms and the errors of its steps, whose sum with it is exact."""
    total, errors = terms[0], []
    for term in terms[1:]:
        following = total + term
        errors.append(sum_error(total, term, following))
        total = following
    return total, errors
