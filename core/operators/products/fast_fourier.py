"""Discrete Fourier transforms: DFT and STFT, as sums over the factors of the length.

With ``n = r m`` the transform is ``m`` of length ``r``, factors, and ``r`` of length ``m`` (Cooley and Tukey 1965, in
the order of Stockham, which leaves nothing to turn back). The first stage sums along what lies apart and is rotated, so
that in all others what is transformed already lies side by side: ``S'[j, K + |K| k] = w^(j k) sum over i < r of
S[m i + j, K] u^(i k)``, ``w`` and ``u`` roots of unity, whose numbers are tables that are known. A length with a
large prime factor is a convolution with a chirp, of a length that is a power of two (Bluestein 1970). Sums are in
float64, for what cancels in a spectrum is to be 0 to the last bit of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Lowering
from graft.core.tensor_ir.ir import Buffer, Expression, Stage

Indices = Sequence[Expression]
Part = Callable[[Indices, Expression], Expression]
"""The real or imaginary part of what is transformed: by the leading indices and the place along the axis."""
Parts: TypeAlias = tuple[Part, Part | None]
Stages: TypeAlias = list[Stage]
KIND = "float64"
SIDE_BY_SIDE = 8
"""How many transforms the first stage leaves side by side, at least, if the length has such a factor."""
RADICES = (8, 4, 2, 3, 5, 7)
LARGEST = 61
"""The largest prime that is summed directly: so many products for each point."""


def radices(length: int) -> list[int]:
    """Return factors of a length: first one that leaves vectors of transforms, then small ones."""
    first = next((one for one in range(SIDE_BY_SIDE, 2 * SIDE_BY_SIDE) if length % one == 0), 1)
    found, length = ([first] if first > 1 else []), length // first
    for radix in RADICES:
        while length % radix == 0 and length > 1:
            found.append(radix)
            length //= radix
    factor = 11
    while length > 1:
        factor = factor if factor * factor <= length else length
        if length % factor == 0:
            found.append(factor)
            length //= factor
        else:
            factor += 2
    return sorted(found, reverse=True) if found and found[0] < SIDE_BY_SIDE else found or [1]


def roots(length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return cosines and sines of all multiples of a turn by ``length``, to the last bit: from the first octant."""
    quarter, rest = np.divmod(4 * np.arange(length), length)
    near = np.minimum(rest, length - rest) * (math.pi / 2 / length)
    is_low = 2 * rest <= length
    cosine, sine = np.where(is_low, np.cos(near), np.sin(near)), np.where(is_low, np.sin(near), np.cos(near))
    rotated = ((cosine, sine), (-sine, cosine), (-cosine, -sine), (sine, -cosine))
    return tuple(np.choose(quarter, [one[part] for one in rotated]) for part in range(2))  # type: ignore[return-value]


class _Transform:
    """The transforms of one lowering; tables that are the same are one."""

    def __init__(self, lowering: Lowering, *, inverse: bool) -> None:
        self.lowering, self.sign = lowering, 1 if inverse else -1
        self.stages: Stages = []
        self._tables: dict[tuple[int, ...], Parts] = {}

    # ---- Tables

    def table(self, shape: tuple[int, int], scale: int, length: int) -> Parts:
        """Return the roots ``scale * i * j`` of a length, by the two indices."""
        turns = scale * np.multiply.outer(np.arange(shape[0]), np.arange(shape[1])) % length

        def place(i: Indices) -> Expression:
            return b.modulo(b.multiply(b.multiply(i[0], i[1]), scale), length)

        return self._tabulated((*shape, scale, length), shape, turns, place, length)

    def chirp(self, length: int) -> Parts:
        """Return the roots ``i * i / 2`` of a length."""
        turns = np.arange(length) ** 2 % (2 * length)

        def place(i: Indices) -> Expression:
            return b.modulo(b.multiply(i[0], i[0]), 2 * length)

        return self._tabulated((length,), (length,), turns, place, 2 * length)

    def _tabulated(
        self, key: tuple[int, ...], shape: tuple[int, ...], turns: np.ndarray,
        place: Callable[[Indices], Expression], length: int,
    ) -> Parts:  # fmt: skip
        if key not in self._tables:
            made = []
            for name, sign, numbers in zip(("cos", "sin"), (1, self.sign), roots(length), strict=True):

                def value(i: Indices, name: str = name, sign: int = sign) -> Expression:
                    angle = b.multiply(b.cast(place(i), KIND), 2 * math.pi / length)
                    return b.multiply(b.intrinsic(name, angle), float(sign))

                buffer = self.lowering.table(sign * numbers[turns])
                self.stages.append(b.compute(buffer, value))
                made.append(buffer)
            real, imaginary = made
            self._tables[key] = (_reads(real), _reads(imaginary))
        return self._tables[key]

    # ---- Stages

    def _temporary(self, shape: tuple[b.Count, ...]) -> list[Buffer]:
        return [self.lowering.temporary(KIND, shape) for _ in range(2)]

    def _sums(
        self,
        shape: tuple[b.Count, ...],
        radix: int,
        parts: Callable[[Indices, Expression], Sequence[Expression | None]],
    ) -> Parts:
        """Add sums of complex products, given as real and imaginary parts of both factors; return what they are."""
        buffers = self._temporary(shape)
        for number, buffer in enumerate(buffers):

            def term(i: Indices, k: Indices, number: int = number) -> Expression:
                return _product(parts(i, k[0]))[number]

            self.stages.append(b.reduce(buffer, "add", [radix], term))
        return _reads(buffers[0]), _reads(buffers[1])

    def _products(self, shape: tuple[b.Count, ...], parts: Callable[[Indices], Sequence[Expression | None]]) -> Parts:
        """Add complex products; return what they are."""
        buffers = self._temporary(shape)
        for number, buffer in enumerate(buffers):

            def value(i: Indices, number: int = number) -> Expression:
                return _product(parts(i))[number]

            self.stages.append(b.compute(buffer, value))
        return _reads(buffers[0]), _reads(buffers[1])

    def __call__(self, leading: tuple[b.Count, ...], length: int, parts: Parts) -> Parts:
        """Add the transforms of a length; return what they are, by the leading indices and the place."""
        factors = radices(length)
        if max(factors) > LARGEST:
            return self._chirped(leading, length, parts)
        first, *others = factors
        left, real, imaginary = length // first, *parts
        w = self.table((first, first), length // first, length)

        def summed(i: Indices, k: Expression) -> Sequence[Expression | None]:
            place = b.add(b.multiply(k, left), i[-1])
            return *_at((real, imaginary), i[:-2], place), *_at(w, (k,), i[-2])

        if not others:  # (of one place each)
            sums = self._sums((*leading, first), first, lambda i, k: (*_at(parts, i[:-1], k), *_at(w, (k,), i[-1])))
            return sums
        sums = self._sums((*leading, first, left), first, summed)
        rotated = self.table((left, first), 1, length)

        def moved(i: Indices) -> Sequence[Expression | None]:
            return *_at(sums, (*i[:-2], i[-1]), i[-2]), *_at(rotated, (i[-2],), i[-1])

        done, values = first, self._products((*leading, left, first), moved)
        for radix in others:
            values = self._stage(leading, length, (done, left, radix), values)
            done, left = done * radix, left // radix
        return tuple(lambda i, place, one=one: one((*i, b.index(0)), place) for one in values if one)  # type: ignore[return-value]

    def _stage(self, leading: tuple[b.Count, ...], length: int, sizes: tuple[int, int, int], values: Parts) -> Parts:
        """Add a later stage, of values at [*leading, left, done]."""
        done, left, radix = sizes
        rest = left // radix
        w = self.table((radix, radix), length // radix, length)

        def summed(i: Indices, k: Expression) -> Sequence[Expression | None]:
            place = b.add(b.multiply(k, rest), i[-2])
            return *_at(values, (*i[:-2], place), b.modulo(i[-1], done)), *_at(w, (k,), b.divide(i[-1], done))

        sums = self._sums((*leading, rest, done * radix), radix, summed)
        if rest == 1:
            return sums
        rotated = self.table((rest, radix), length // left, length)

        def moved(i: Indices) -> Sequence[Expression | None]:
            return *_at(sums, i[:-1], i[-1]), *_at(rotated, (i[-2],), b.divide(i[-1], done))

        return self._products((*leading, rest, done * radix), moved)

    def _chirped(self, leading: tuple[b.Count, ...], length: int, parts: Parts) -> Parts:
        """Add a transform as a convolution: ``k l = (k k + l l - (k - l) (k - l)) / 2``."""
        size = 1 << (2 * length - 2).bit_length()
        chirp, (real, imaginary) = self.chirp(length), parts

        def scaled(i: Indices) -> Sequence[Expression | None]:
            place, inside = i[-1], b.less(i[-1], length)
            near = b.minimum(place, length - 1)
            own = [None if one is None else b.select(inside, one, 0.0) for one in _at((real, imaginary), i[:-1], near)]
            return *own, *_at(chirp, (), near)

        def mirrored(i: Indices) -> list[Expression]:
            place = b.minimum(i[0], b.subtract(size, i[0]))
            inside, near = b.less(place, length), b.minimum(place, length - 1)
            values = [b.select(inside, one, 0.0) for one in _at(chirp, (), near) if one is not None]
            return [values[0], b.unary("neg", values[1])]

        buffers = self._temporary((size,))
        for number, buffer in enumerate(buffers):

            def own_part(i: Indices, number: int = number) -> Expression:
                return mirrored(i)[number]

            self.stages.append(b.compute(buffer, own_part))
        kernel = self((), size, (_reads(buffers[0]), _reads(buffers[1])))
        kept = [self.lowering.table(numbers) for numbers in self._spectrum(length, size)]
        for buffer, one in zip(kept, kernel, strict=True):
            assert one is not None, "a spectrum has two parts"

            def kept_part(i: Indices, one: Part = one) -> Expression:
                return one((), i[0])

            self.stages.append(b.compute(buffer, kept_part))
        factor = (_reads(kept[0]), _reads(kept[1]))
        spectrum = self((*leading,), size, self._products((*leading, size), scaled))

        def multiplied(i: Indices) -> Sequence[Expression | None]:
            return *_at(spectrum, i[:-1], i[-1]), *_at(factor, (), i[-1])

        product = self._products((*leading, size), multiplied)
        # Back again by the same transform: places but the first in reverse order, divided by their number.
        back = self((*leading,), size, product)

        def result(i: Indices) -> Sequence[Expression | None]:
            place = b.modulo(b.subtract(size, i[-1]), size)
            own = [None if one is None else b.multiply(one, 1 / size) for one in _at(back, i[:-1], place)]
            return *own, *_at(chirp, (), i[-1])

        return self._products((*leading, length), result)

    def _spectrum(self, length: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the transform of what a chirp is convolved with."""
        cosine, sine = roots(2 * length)
        turns = np.arange(length) ** 2 % (2 * length)
        row = np.zeros(size, np.complex128)
        row[:length] = cosine[turns] - 1j * self.sign * sine[turns]
        row[size - length + 1 :] = row[1:length][::-1]
        found = np.fft.fft(row) if self.sign < 0 else np.fft.ifft(row) * size
        return np.ascontiguousarray(found.real), np.ascontiguousarray(found.imag)


def _reads(buffer: Buffer) -> Part:
    return lambda i, place: b.load(buffer, *i, place)


def _at(parts: Parts, i: Indices, place: Expression) -> Sequence[Expression | None]:
    return [None if one is None else one(i, place) for one in parts]


def _product(factors: Sequence[Expression | None]) -> tuple[Expression, Expression]:
    """Return the real and imaginary part of a product; the first factor may be real."""
    x, y, c, s = factors
    assert x is not None and c is not None and s is not None, "a factor without a real part"
    if y is None:
        return b.multiply(x, c), b.multiply(x, s)
    return b.subtract(b.multiply(x, c), b.multiply(y, s)), b.add(b.multiply(y, c), b.multiply(x, s))


def transform(
    lowering: Lowering, leading: tuple[b.Count, ...], length: int, parts: Parts, *, inverse: bool
) -> tuple[Stages, Parts]:
    """Return the stages of transforms of a length, and what reads their parts by leading indices and the place."""
    made = _Transform(lowering, inverse=inverse)
    result = made(leading, length, parts)
    return made.stages, result
