"""Random bits by counter: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011).

A draw depends on a seed and on the place of an element, on nothing else: it is the same with any number of threads, in
any order, in NumPy and in a kernel. All words are uint64 that hold 32 bits.
"""

from __future__ import annotations

from graft.core.tensor_ir.scalar_math import Value, select

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox(counter: tuple[Value, Value, Value, Value], key: tuple[int, int]) -> tuple[Value, Value, Value, Value]:
    """Return the four random words of a counter of four words."""
    a, b, c, d = counter
    for step in range(_ROUNDS):
        first, second = ((word + step * one) & _WORD for word, one in zip(key, _KEY_STEPS, strict=True))
        low, high = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b, c, d = (high >> 32) ^ b ^ first, high & _WORD, (low >> 32) ^ d ^ second, low & _WORD
    return a, b, c, d


def draw(place: Value, seed: int) -> Value:
    """Return the 32 random bits of an element by its place (uint64): word ``place % 4`` of counter ``place // 4``."""
    counter = place >> 2
    nothing = place.constant(0)
    words = philox((counter & _WORD, counter >> 32, nothing, nothing), (seed & _WORD, seed >> 32))
    lane = place & 3
    chosen = words[3]
    for number in (2, 1, 0):
        chosen = select(lane.equals(number), words[number], chosen)
    return chosen
