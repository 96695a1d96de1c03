"""Panels of right factors of products over varying rows: constant ones are packed and fetched ahead, others copied."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from graft.core.machine.machine import Machine
from graft.core.operators.definition import build as b
from graft.core.schedule.loops.flat_stages import FlatStage, Layout, constant_extent, flatten
from graft.core.schedule.loops.nest import nest
from graft.core.schedule.loops.segments import part
from graft.core.schedule.primitives.statements import ramp
from graft.core.schedule.primitives.vectorize import lower_loops
from graft.core.schedule.products.accumulation import SECOND_LEVEL
from graft.core.tensor_ir.ir import (
    Allocate,
    Axis,
    Block,
    Buffer,
    CallExtern,
    Expression,
    If,
    Load,
    Stage,
    Statement,
    Variable,
)
from graft.core.tensor_ir.rewriting.simplify import simplify_statement
from graft.core.tensor_ir.visit import substitute, substitution
from graft.core.types import element_bits

AHEAD_SHARE = 0.25
"""A right factor of so much of the second-level cache stays there; panels of a larger one are fetched ahead."""
SHARED = ((1, 1), (3, 2), (None, 4))
"""Up to so many tiles of rows each fetch such a part of what comes next; as many as there are streams, one each."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Memory that is fetched into the second-level cache in ``lines`` streams, ``apart`` elements from each other.

    Memory is faster when several places are read in turns: it has a row open, and a fetcher at work, for each.
    """

    buffer: Buffer
    begin: Expression
    each: int
    """The elements that a fetch brings."""
    apart: int
    when: Expression
    """Whether there is one at all."""
    lines: Expression
    numbers: tuple[int, ...]
    """The numbers of streams that there may be, from 1 on."""

    def after(self, steps: Expression) -> Streams:
        """Return what to fetch after so many steps."""
        return replace(self, begin=b.add(self.begin, b.multiply(steps, self.each)))

    def fetches(self, step: Expression) -> list[Statement]:
        """Return the fetches of one step: a line of each stream."""
        start = b.add(self.begin, b.multiply(step, self.each))
        fetches: list[Statement] = []
        for least, most in reversed(list(pairwise((0, *self.numbers)))):
            places = [b.add(start, stream * self.apart) for stream in range(least, most)]
            own = [CallExtern("prefetch", (Load(self.buffer, (place,)), SECOND_LEVEL)) for place in places]
            condition = b.less(least, self.lines) if least else self.when
            fetches = [If(condition, Block((*own, *fetches)))]
        return fetches


@dataclass(frozen=True, slots=True)
class Panels:
    """A right factor in ``count`` panels of ``terms`` rows of ``width`` columns."""

    buffer: Buffer
    count: int
    terms: int
    width: int

    @classmethod
    def of(cls, name: str, contents: np.ndarray, dtype: str, width: int) -> tuple[Panels, np.ndarray]:
        """Return a matrix of terms and columns in panels, the last one padded with zeros, and its elements in order."""
        terms, columns = contents.shape
        count = -(-columns // width)
        padded = np.zeros((terms, count * width), contents.dtype)
        padded[:, :columns] = contents
        packed = np.ascontiguousarray(padded.reshape(terms, count, width).transpose(1, 0, 2)).reshape(-1)
        return cls(
            Buffer(f"{name}_panels", dtype, (b.index(packed.size),), None, "host", 64), count, terms, width
        ), packed

    def vector(self, panel: Expression, term: Expression, offset: Expression, lanes: int) -> Expression:
        """Return the elements of a row of a panel from ``offset`` on; behind the last column are zeros."""
        return Load(self.buffer, (ramp(b.add(self.place(panel, term), offset), lanes),))

    def ahead(
        self, place: Expression, terms: int, unroll: int, machine: Machine, number: Expression, count: Expression
    ) -> Streams | None:
        """Return what tile ``number`` of ``count`` fetches while it sums ``terms`` terms from element ``place`` on.

        That are as many terms behind them, which come next, all tiles together; None of a factor that stays in a cache.
        """
        if self.count * self.terms * self.width * self._bytes < AHEAD_SHARE * machine.working_set(2):
            return None
        each = machine.cache(2).line // self._bytes
        streams = -(-unroll * self.width // each)
        apart = terms // unroll * each
        shares = [-(-streams // part) for _, part in SHARED]
        lines: Expression = b.index(1)
        for (most, _), share in reversed(list(zip(SHARED, shares, strict=True))):
            lines = b.select(b.less_equal(count, most or streams - 1), b.index(share), lines)
        following = b.add(place, terms * self.width)
        last = max(0, self.count * self.terms * self.width - streams * apart)
        first = b.multiply(number, lines)
        begin = b.minimum(b.add(following, b.multiply(first, apart)), last)
        return Streams(self.buffer, begin, each, apart, b.less(first, streams), lines, (*sorted({1, *shares}),))

    def place(self, panel: Expression, term: Expression) -> Expression:
        """Return the number of the element where a row of a panel begins."""
        return b.add(b.multiply(panel, self.terms * self.width), b.multiply(term, self.width))

    @property
    def _bytes(self) -> int:
        return element_bits(self.buffer.dtype) // 8


@dataclass(frozen=True, slots=True)
class PanelCopy:
    """What fills one panel of a factor whose columns lie apart, before its rows are multiplied by it."""

    panels: Panels
    stage: FlatStage
    column: Variable
    """Where the panel begins."""
    layout: Layout
    machine: Machine

    @classmethod
    def of(
        cls, right: Expression, term: Axis, column: Variable, width: int, layout: Layout, machine: Machine
    ) -> PanelCopy:
        """Return the copy of ``width`` columns of a factor, whose terms are a constant number."""
        terms, begin, own = constant_extent(term.extent), Variable("begin"), Variable(column.name)
        rows = Buffer("panel", right.type.dtype, (b.index(terms), b.index(width)), None, "scratch", 64)
        value = substitute(right, {column: b.add(begin, own)})
        stage = flatten(Stage(rows, (term.variable, own), value), layout)
        return cls(Panels(stage.target, 1, terms, width), stage, begin, layout, machine)

    def before(self, body: Statement, begin: Expression, count: b.Count) -> Statement:
        """Return a statement behind the copy of so many columns from ``begin`` on."""
        simplifier, at = self.layout.simplifier, substitution({self.column: begin})
        filled = part(self.stage, self.stage.axes[1], 0, count, simplifier)
        filled = filled.map(lambda expression: simplifier(at(expression)))
        copy = nest(filled, simplifier, self.machine, parallel=False)
        return Allocate(self.panels.buffer, Block((lower_loops(simplify_statement(copy)), body)))
