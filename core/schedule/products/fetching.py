"""What is fetched into a cache while a tile is summed: constants that come next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from graft.core.operators.definition import build as b
from graft.core.tensor_ir import ir
from graft.core.types import INT64, element_bits

SECOND_LEVEL = ir.Constant(2, INT64)
"""The cache into which panels are fetched ahead of use, as ``prefetch`` counts: 3 is the first level."""
SHARED = ((1, 1), (3, 2), (None, 4))
"""Up to so many tiles of rows each fetch such a part of what comes next; as many as there are streams, one each."""


class Fetching(Protocol):
    """What is fetched into a cache while a tile is summed."""

    def after(self, steps: ir.Expression) -> Fetching:
        """Return what to fetch after so many steps."""

    def fetches(self, step: ir.Expression) -> list[ir.Statement]:
        """Return the fetches of one step."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """Memory that is fetched into the second-level cache meanwhile: from ``begin`` on, ``advance`` elements a step."""

    buffer: ir.Buffer
    begin: ir.Expression
    advance: int
    line: int
    """The bytes that a fetch brings."""

    def after(self, steps: ir.Expression) -> Ahead:
        """Return what to fetch after so many steps."""
        return replace(self, begin=b.add(self.begin, b.multiply(steps, self.advance)))

    def fetches(self, step: ir.Expression) -> list[ir.Statement]:
        """Return the fetches of one step."""
        line = self.line * 8 // element_bits(self.buffer.dtype)
        start = b.add(self.begin, b.multiply(step, self.advance))
        places = (b.add(start, offset) for offset in range(0, self.advance, line))
        return [ir.CallExtern("prefetch", (ir.Load(self.buffer, (place,)), SECOND_LEVEL)) for place in places]


@dataclass(frozen=True, slots=True)
class Streams:
    """Memory that is fetched into the second-level cache in ``lines`` streams, ``apart`` elements from each other.

    Memory is faster when several places are read in turns: it has a row open, and a fetcher at work, for each.
    """

    buffer: ir.Buffer
    begin: ir.Expression
    each: int
    """The elements that a fetch brings."""
    apart: int
    when: ir.Expression
    """Whether there is one at all."""
    lines: ir.Expression
    numbers: tuple[int, ...]
    """The numbers of streams that there may be, from 1 on."""

    def after(self, steps: ir.Expression) -> Streams:
        """Return what to fetch after so many steps."""
        return replace(self, begin=b.add(self.begin, b.multiply(steps, self.each)))

    def fetches(self, step: ir.Expression) -> list[ir.Statement]:
        """Return the fetches of one step: a line of each stream."""
        start = b.add(self.begin, b.multiply(step, self.each))
        fetches: list[ir.Statement] = []
        for least, most in reversed(list(pairwise((0, *self.numbers)))):
            places = [b.add(start, stream * self.apart) for stream in range(least, most)]
            own = [ir.CallExtern("prefetch", (ir.Load(self.buffer, (place,)), SECOND_LEVEL)) for place in places]
            condition = b.less(least, self.lines) if least else self.when
            fetches = [ir.If(condition, ir.Block((*own, *fetches)))]
        return fetches


def streams_of(
    buffer: ir.Buffer,
    size: int,
    following: ir.Expression,
    steps: int,
    width: int,
    line: int,
    number: ir.Expression,
    count: ir.Expression,
) -> Streams:
    """Return what tile ``number`` of ``count`` fetches while it sums in so many steps of ``width`` elements each.

    That are as many elements from ``following`` on, in lines of ``line`` elements, all tiles together; ``size``
    elements there are.
    """
    streams = -(-width // line)
    apart = steps * line
    shares = [-(-streams // part) for _, part in SHARED]
    lines: ir.Expression = b.index(1)
    for (most, _), share in reversed(list(zip(SHARED, shares, strict=True))):
        lines = b.select(b.less_equal(count, most or streams - 1), b.index(share), lines)
    first = b.multiply(number, lines)
    begin = b.minimum(b.add(following, b.multiply(first, apart)), max(0, size - streams * apart))
    return Streams(buffer, begin, line, apart, b.less(first, streams), lines, (*sorted({1, *shares}),))
